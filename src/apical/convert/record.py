"""A conversion as a small JSON document: written with the report, carried out again on a fresh network.

The document names what was done, not how the network looks: which activation became what, and, where an observed
forward told it, which layer feeds it. Loading decides anew and compares: a network in which something would become
something else is refused before it is changed.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import nn

import apical
from apical import files
from apical.convert.flow import FlowGraph, Site
from apical.convert.kinds import NORMS, Selection
from apical.convert.plan import NOT_ASKED, STAYED, Decision
from apical.convert.source import Place, methods
from apical.errors import ConversionError

FORMAT = 1
ATTRIBUTE = "_apical_conversions"
"""Where a converted model keeps the records of its conversions; copies and pickles have it too."""

SUMS = 1_000
"""The most additions between a layer and its activation; each is named in the report."""

MARK = "converted_load_with_apical_hub_from_pretrained"
"""A buffer of converted models of Transformers. Loaded without apical, its name is in the warning of unused weights."""


def record_of(
    model: nn.Module, selection: Selection, unit: str, decisions: list[Decision], counting: Iterable[str]
) -> dict[str, Any]:
    """What one conversion did; `counting` names what example inputs showed to be called with whole numbers."""
    names = {id(module): name for name, module in model.named_modules()}
    return {
        "unit": unit,
        "root": type(model).__name__,
        "kinds": None if selection.kinds is None else list(selection.kinds),
        "also": [_class_name(each) for each in selection.also],
        "activations": [_entry(decision, names) for decision in decisions if decision.form != "keep"],
        "kept": sorted({decision.site.name for decision in decisions if decision.form == "keep"}),
        "refused": sorted(decision.site.label for decision in decisions if decision.form == "keep" and decision.asked),
        "counting": sorted(counting),
    }


FORMS = {
    "swap": "become another activation",
    "neuron": "get a second branch",
    "fuse": "become one layer with what feeds it",
    "branch": "get a branch in its forward",
    "wire": "get a branch beside its forward",
    "keep": "stay",
}


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _entry(decision: Decision, names: dict[int, str]) -> dict[str, Any]:
    site = decision.site
    entry: dict[str, Any] = {"name": site.label, "form": decision.form, "kind": site.kind}
    if decision.observed:
        entry["affine"] = names[id(decision.affine)]
        entry["norm"] = None if decision.norm is None else names[id(decision.norm)]
        entry["sums"] = decision.sums
        if site.module is not None and site.place is not None:
            entry["place"] = _relative(site.owner.module, site.place)
    return entry


def _relative(module: nn.Module, place: Place) -> list[Any]:
    """A place counted from the first line of its method, so that it does not depend on the rest of the file."""
    first = methods(type(module))[place.method].function.__code__.co_firstlineno
    return [place.method, place.line - first, place.column, place.end_line - first, place.end_column]


def _absolute(module: nn.Module, place: list[Any]) -> Place | None:
    method = methods(type(module)).get(place[0])
    if method is None:
        return None
    first = method.function.__code__.co_firstlineno
    return Place(place[0], place[1] + first, place[2], place[3] + first, place[4])


class Recorded:
    """What an observed forward told, read from a record."""

    def __init__(self, network: FlowGraph, record: dict[str, Any]) -> None:
        self.network, self.entries = network, {entry["name"]: entry for entry in record["activations"]}
        self.counting = set[str](record.get("counting", ()))

    def split(self, sites: list[Site]) -> list[Site]:
        """The sites, those of modules without a graph by the places that called them."""
        done: list[Site] = []
        for site in sites:
            done.append(site)
            for number in range(1, len(self.entries) + 1):
                other = site if number == 1 else replace(site, call=number)
                entry = self.entries.get(other.label, {})
                if site.nodes or site.module is None or "place" not in entry:
                    continue
                other.place = _absolute(site.owner.module, entry["place"])
                self.network.note_further(other)
                if other is not site:
                    done.append(other)
        return done

    def feed(self, site: Site) -> tuple[nn.Module, nn.Module | None, int] | str:
        """The layer and norm that the record names; nothing else, since branches have copies of both."""
        entry = self.entries.get(site.label, {})
        if "affine" not in entry:
            return "no layer is recorded to feed it"
        affine, norm = self._part(entry["affine"]), self._part(entry["norm"])
        if affine is None or not self.network.is_feed(affine):
            return f"there is no layer {entry['affine']!r}"
        if entry["norm"] is not None and not isinstance(norm, NORMS):
            return f"there is no norm {entry['norm']!r}"
        return affine, norm, entry["sums"]

    def _part(self, name: str | None) -> nn.Module | None:
        try:
            return None if name is None else self.network.model.get_submodule(name)
        except AttributeError:
            return None


def selection_of(model: nn.Module, record: dict[str, Any]) -> Selection:
    """The selection that a conversion was made with."""
    wanted = set(record["also"])
    classes = {type(module) for module in model.modules()}
    also = [kind for kind in classes if any(_class_name(base) in wanted for base in kind.__mro__)]
    return Selection(None if record["kinds"] is None else tuple(record["kinds"]), tuple(also))


def check_same(record: dict[str, Any], decisions: Iterable[Decision], network: FlowGraph) -> None:
    """Refuse a network with other activations than the converted one had: gone, new, or of another kind."""
    decisions = list(decisions)
    forms = {decision.site.label: decision for decision in decisions}
    wrong = []
    for entry in record["activations"]:
        decision = forms.get(entry["name"])
        if decision is None:
            wrong.append(f"it has no activation {entry['name']!r}")
        elif decision.form != entry["form"]:
            here, there = FORMS[decision.form], FORMS.get(entry["form"], entry["form"])
            why = decision.reason or "hooks and attributes of its layers count too"
            wrong.append(f"{entry['name']} would {here} ({why}), but was to {there} then")
        elif decision.site.kind != entry["kind"]:
            wrong.append(f"{entry['name']} is {decision.site.kind}, not {entry['kind']}")
    there = {*record["kept"], *(entry["name"].partition(" (call ")[0] for entry in record["activations"])}
    new = {decision.site.name for decision in decisions} - there
    wrong += [f"it has an activation {name!r} more" for name in sorted(new)]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ConversionError(
            f"{type(network.model).__name__} is not the network that was converted: {wrong[0]}{more}; build it with "
            "the code and settings that it had then"
        )


def as_recorded(record: dict[str, Any], decisions: Iterable[Decision]) -> None:
    """Say of what is kept again that it stayed then, and whether it had been asked for: why is not in the record."""
    refused = set(record.get("refused", ()))
    for decision in decisions:
        if decision.form == "keep":
            decision.asked = decision.site.label in refused
            decision.reason = STAYED if decision.reason.startswith(NOT_ASKED) else decision.reason


def document(records: list[dict[str, Any]]) -> dict[str, Any]:
    """All conversions of a model, in order."""
    return {"apical": apical.__version__, "format": FORMAT, "conversions": records}


def local_units(records: list[dict[str, Any]]) -> str | None:
    """The sentence about units that this process alone knows; None where there are none."""
    for record in records:
        if names := re.findall(r"\blocal_\w+", record["unit"]):
            return (
                f"the unit {names[0]} is known to this process alone: name it with apical.register_unit, here and "
                "where the model is loaded, and convert_ with that name"
            )
    return None


def read_document(source: Any) -> list[dict[str, Any]]:
    """The conversions in a file, or in the document itself."""
    if not isinstance(source, dict):
        try:
            source = files.parse_json(files.read_bytes(source, limit=files.LIMIT))
        except (OSError, ValueError) as error:
            raise ConversionError(
                f"{source} cannot be read as a saved conversion ({error}): give what report.save wrote"
            ) from error
    if not is_document(source):
        raise ConversionError(
            f"not a saved conversion of format {FORMAT} (made with apical {apical.__version__}): "
            "give what report.save wrote"
        )
    return list(source["conversions"])


def is_document(document: Any) -> bool:
    """Whether it has the form of what `report.save` writes."""
    records = document.get("conversions") if isinstance(document, dict) else None
    return isinstance(records, list) and document.get("format") == FORMAT and all(map(is_record, records))


def is_record(record: Any) -> bool:
    """Whether it has the form of what `record_of` makes; whether it fits the network is decided later."""
    return (
        isinstance(record, dict)
        and all(isinstance(record.get(key), str) for key in ("unit", "root"))
        and (record.get("kinds", 0) is None or _are(record.get("kinds"), str))
        and all(_are(record.get(key), str) for key in ("also", "kept"))
        and all(_are(record.get(key, []), str) for key in ("refused", "counting"))
        and _are(record.get("activations"), dict)
        and all(map(_is_entry, record["activations"]))
    )


def _is_entry(entry: dict[str, Any]) -> bool:
    place = entry.get("place", ["", 0, 0, 0, 0])
    return (
        all(isinstance(entry.get(key), str) for key in ("name", "form", "kind"))
        and isinstance(entry.get("affine", ""), str)
        and ("affine" not in entry or {"norm", "sums"} <= entry.keys())
        and isinstance(entry.get("norm"), str | None)
        and type(entry.get("sums", 0)) is int
        and 0 <= entry.get("sums", 0) <= SUMS
        and isinstance(place, list)
        and [type(each) for each in place] == [str, int, int, int, int]
    )


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(each, kind) for each in values)


def pretrained_models(model: nn.Module) -> list[tuple[str, Any]]:
    """The models in `model`, itself included, that Transformers' save_pretrained writes; the outermost first."""
    return [(name, module) for name, module in model.named_modules() if is_of_transformers(module, "PreTrainedModel")]


def is_of_transformers(module: nn.Module, base: str = "") -> bool:
    """Whether Transformers has written the class of a module, or the class `base` that it is derived from."""
    kinds = [kind for kind in type(module).__mro__ if kind.__module__.partition(".")[0] == "transformers"]
    return any(kind.__name__ == base for kind in kinds) if base else bool(kinds)


def part_of(record: dict[str, Any], name: str, kind: str) -> dict[str, Any] | None:
    """What one conversion did in the part `name` of the model, of the class `kind`; None where a layer is elsewhere."""
    start = f"{name}." if name else ""
    inside = [entry for entry in record["activations"] if entry["name"].startswith(start)]
    layers = [entry[key] for entry in inside for key in ("affine", "norm") if entry.get(key) is not None]
    if not all(layer.startswith(start) for layer in layers):
        return None
    short = {key: [each.removeprefix(start) for each in record.get(key, ()) if each.startswith(start)]
             for key in ("kept", "refused", "counting")}  # fmt: skip
    return {**record, **short, "root": kind, "activations": [_shortened(entry, start) for entry in inside]}


def _shortened(entry: dict[str, Any], start: str) -> dict[str, Any]:
    names = {key: entry[key].removeprefix(start) for key in ("name", "affine", "norm") if entry.get(key) is not None}
    return {**entry, **names}
