"""ConversionReport: what became of each activation, as data, as a table, and the way back; and the refusals."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from apical import notation
from apical.convert.branch import ApicalBranch, WiredNeuron
from apical.convert.flow import FlowGraph, Site
from apical.convert.kinds import DEFAULT_KINDS, is_ours
from apical.convert.observation import DID_NOT_RUN
from apical.convert.plan import BASAL, FILTERED, NOT_ASKED, PER_CHANNEL, STAYED, Decision
from apical.convert.record import ATTRIBUTE, local_units
from apical.convert.source import LEAVES, NOT_LINEAR, UNKNOWN, make_a_module
from apical.errors import ConversionError
from apical.nn.unit import Unit

COLUMNS = ("name", "before", "after", "inputs", "reason")


@dataclass(frozen=True)
class Change:
    """One activation: its name, what it was, what it is, the inputs it saw, and why it was kept, where it was.

    `asked` is False for what the kinds or the filter leave out.
    """

    name: str
    before: str
    after: str
    reason: str = ""
    inputs: str = ""
    kind: str = ""
    asked: bool = True

    @property
    def converted(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Cost:
    """Parameters, and multiplications with an addition in one forward on the example inputs, before and after."""

    parameters: tuple[int, int]
    multiply_adds: tuple[int, int] | None = None

    def __str__(self) -> str:
        parts = [f"parameters: {_short(self.parameters[0])} -> {_short(self.parameters[1])}"]
        if self.multiply_adds is not None:
            parts.append(f"multiply-adds: {_short(self.multiply_adds[0])} -> {_short(self.multiply_adds[1])}")
        return "; ".join(parts)


def _short(number: int) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}" if number < 1000 * size else f"{number / size:.0f} {letter}"
    return str(number)


@dataclass
class ConversionReport:
    """What `convert_` did. `model` is the model to use; `print(report)` shows the table; `undo()` takes it back.

    `details` holds torch's own words about forwards that could not be traced, by name; `cost` what the change costs;
    `record` what `save` writes; `doubtful` those of these forwards in which code may run that was not read; `varying`
    the activations whose numbers differ from call to call, for which the check on example inputs was left out.
    """

    model: nn.Module
    unit: str
    rows: list[Change]
    _restore: Callable[[], nn.Module] = field(repr=False)
    details: dict[str, str] = field(default_factory=dict)
    cost: Cost = field(default_factory=lambda: Cost((0, 0)))
    record: dict[str, Any] = field(default_factory=dict, repr=False)
    doubtful: list[str] = field(default_factory=list)
    varying: list[str] = field(default_factory=list)
    _values: dict[str, Tensor] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._remember()

    def _remember(self) -> None:
        state = _state(self.model).items()  # of the device `meta`, there are no values
        self._values = {name: value.detach().cpu().clone() for name, value in state if not value.is_meta}

    @property
    def converted(self) -> list[Change]:
        """The rows of what was converted."""
        return [row for row in self.rows if row.converted]

    @property
    def kept(self) -> list[Change]:
        """The rows of what was not, each with its reason."""
        return [row for row in self.rows if not row.converted]

    def save(self, path: str | Path) -> None:
        """Write what was done as a small JSON file, for `apical.convert.load(model, path)`."""
        if later := self._later():
            raise ConversionError(
                f"the model was converted to {later[-1]['unit']} after this: call save of that conversion's report, "
                "which holds both"
            )
        if local := local_units(self.record["conversions"]):
            raise ConversionError(f"the conversion cannot be saved: {local}")
        Path(path).write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")

    def undo(self, *, discard: bool = False) -> nn.Module:
        """Put the model back as it was, and return it; values that changed since need `discard=True`.

        What has another size since (a head that you replaced) stays as it is.
        """
        if later := self._later():
            raise ConversionError(
                f"the model was converted to {later[-1]['unit']} after this: call undo of that conversion's report"
            )
        changed = self._changed()
        if changed and not discard:
            number = _count(len(changed), "value")
            raise ConversionError(
                f"{number} of the model {'has' if len(changed) == 1 else 'have'} changed since its conversion (e.g. "
                f"{changed[0]}), and undo would lose that: call report.undo(discard=True)"
            )
        state = _state(self.model)
        with torch.no_grad():
            for name in changed:
                if name in state and name in self._values and state[name].shape == self._values[name].shape:
                    state[name].copy_(self._values[name])
        device = next((value.device for value in state.values()), None)
        self.model = self._restore()
        if device is not None:
            self.model.to(device)
        self._remember()
        return self.model

    def _later(self) -> list[dict[str, Any]]:
        """The records of conversions of the model after this one."""
        return list(getattr(self.model, ATTRIBUTE, [])[len(self.record.get("conversions", ())) :])

    def _changed(self) -> list[str]:
        state = {name: value for name, value in _state(self.model).items() if not value.is_meta}
        differs = [
            name for name, value in state.items() if name not in self._values or not _equal(value, self._values[name])
        ]
        return differs + [name for name in self._values if name not in state]

    def __str__(self) -> str:
        asked = [row for row in self.rows if row.asked]
        columns = [name for name in COLUMNS if any(getattr(row, name) for row in asked)]
        lines = [columns, *([str(getattr(row, name)) for name in columns] for row in asked)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        table = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        parts = [self._headline(asked), "", table[0], "  ".join("-" * width for width in widths), *table[1:]]
        parts += [f"\n{line}" for line in self._left_out()]
        return "\n".join([*parts, "", str(self.cost)])

    def _repr_html_(self) -> str:
        """For notebooks: what `print` shows, as a table."""
        asked = [row for row in self.rows if row.asked]
        cells = [[getattr(row, name) for name in COLUMNS] for row in asked]
        notes = [*self._left_out(), str(self.cost)]
        return notation.html_table(COLUMNS, cells, title=self._headline(asked), notes=notes)

    def _left_out(self) -> list[str]:
        """Activations that are not converted because nobody asked for them, with what to pass."""
        left = [row for row in self.rows if not row.asked]
        filtered = [row for row in left if row.reason == FILTERED]
        others = [row for row in left if row.reason.startswith(NOT_ASKED)]
        leaving = [row for row in left if row.reason.startswith(LEAVES)]
        unknown = [row for row in left if row.reason.startswith(UNKNOWN)]
        bent = [row for row in left if row.reason.startswith(NOT_LINEAR)]
        stayed = [row for row in left if row.reason == STAYED]
        known = [*filtered, *others, *leaving, *unknown, *bent, *stayed]
        fixed = [row for row in left if row not in known]
        lines = [f"left out by filter_fn: {_kinds(filtered)}"] if filtered else []
        if others:
            names = ", ".join(repr(kind) for kind in dict.fromkeys(row.kind for row in others))
            lines.append(f"not asked for: {_kinds(others)}; kinds=[*apical.convert.DEFAULT_KINDS, {names}] adds them")
        lines += [f"left as it was when the conversion was saved: {_kinds(stayed)}"] if stayed else []
        lines += [f"out of reach: {_kinds(fixed)} (report.kept says why)"] if fixed else []
        lines += [f"values that leave torch: {_kinds(leaving)} (report.kept says where)"] if leaving else []
        seen = (
            "they computed nothing" if self.cost.multiply_adds else "example_inputs show whether they compute anything"
        )
        lines += (
            [f"calls whose code was not read: {_kinds(unknown)}; {seen} (report.kept says where)"] if unknown else []
        )
        lines += [f"operators that are not linear: {_kinds(bent)} (report.kept says where)"] if bent else []
        differ = f"numbers in {', '.join(self.varying)} differ from call to call"
        return lines + ([f"not checked on example_inputs: {differ}"] if self.varying else [])

    def _headline(self, asked: list[Change]) -> str:
        head = f"{len(self.converted)} of {_count(len(asked), 'activation')} converted to {self.unit}"
        unused = sum(row.inputs == DID_NOT_RUN for row in self.converted)
        if unused:
            head += f", {unused} of which did not run on example_inputs"
        if not self.details or self.cost.multiply_adds:  # where a forward was observed, nothing was missed there
            return head
        head += f"; {_count(len(self.details), 'forward')} could not be traced"
        if not self.doubtful:
            return f"{head}, but {'its' if len(self.details) == 1 else 'their'} code was read"
        some = "" if len(self.doubtful) == len(self.details) else f", {len(self.doubtful)} of them with code not read"
        return f"{head}{some} (report.details): example_inputs show what else runs there"


def _kinds(rows: list[Change]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(row.kind for row in rows).items())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _state(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, those that state_dict leaves out included."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _equal(value: Tensor, before: Tensor) -> bool:
    value = value.detach().to(device=before.device, dtype=before.dtype)
    return value.shape == before.shape and bool(((value == before) | (value.isnan() & before.isnan())).all())


def rows(
    decisions: list[Decision], made: dict[Decision, nn.Module], inputs: Callable[[Site], str], unit: Unit
) -> list[Change]:
    """One row for each activation."""
    return [
        Change(
            d.site.label,
            _before(d),
            _after(d, made, unit),
            d.reason,
            inputs(d.site),
            d.site.kind,
            d.asked,
        )
        for d in decisions
    ]


def _before(decision: Decision) -> str:
    own = decision.site.written
    if decision.form in ("swap", "keep"):
        return own
    layers = [type(layer).__name__ for layer in (decision.affine, decision.norm) if layer is not None]
    return " + ".join([*layers, *["sum"] * decision.additions, own])


def _after(decision: Decision, made: dict[Decision, nn.Module], unit: Unit) -> str:
    if decision.form == "keep":
        return "kept"
    if decision.form == "swap":
        return str(unit)
    new = made[decision]
    if isinstance(new, (ApicalBranch, WiredNeuron)):
        return "pyramidal neuron: apical branch added"
    return type(new).__name__


def nothing_to_convert(network: FlowGraph, decisions: list[Decision], unit: Unit, *, has_inputs: bool) -> str:
    """The sentence for a model without activations of the kinds asked for."""
    call = f"convert_(model, {str(unit)!r}"
    others = Counter(d.site.kind for d in decisions if d.site.fixed is None and d.site.part_of is None)
    if others:
        listed = ", ".join(f"{count} {kind}" for kind, count in others.items())
        wanted = ", ".join(repr(kind) for kind in others)
        kinds = DEFAULT_KINDS if network.selection.kinds is None else network.selection.kinds
        parts = {
            f"{d.site.name} is a part of {d.site.part_of.name}": d for d in decisions if d.site.part_of is not None
        }
        inside = "; ".join(text for text, d in parts.items() if d.site.kind in kinds)
        asked = f"no activation of the kinds {', '.join(kinds)} was found{f' by itself ({inside})' if inside else ''}"
        return f"{asked}, but {listed}: {call}, kinds=[{wanted}])"
    if any(is_ours(module) for module in network.model.modules()):
        return _converted_already(call)
    inside = "".join(f"; {d.site.label}: {d.reason}" for d in decisions)
    if network.blind() and not has_inputs:
        inside += f"; {network.blind()[0].error}, and example_inputs=... would show what runs there"
    number = _count(len(list(network.model.modules())), "module")
    return (
        f"the model has no activation to convert ({number} looked at{inside}): "
        f"give the network that has them, e.g. {call.replace('model', 'model.backbone')})"
    )


def _converted_already(call: str) -> str:
    return f"every activation of the model is apical's already: build it anew, or report.undo(), then {call})"


def nothing_converted(decisions: list[Decision], unit: Unit, *, has_inputs: bool) -> str:
    """The sentence for a model whose activations all have to stay."""
    asked = [decision for decision in decisions if decision.asked and decision.reason != BASAL]
    if not asked:
        return _converted_already(f"convert_(model, {str(unit)!r}")
    number = "the one activation" if len(asked) == 1 else f"none of the {len(asked)} activations"
    why = f"{asked[0].site.label}: {asked[0].reason}"
    no = "not " if len(asked) == 1 else ""
    if asked[0].reason.startswith(PER_CHANNEL):
        wider = str(unit.with_(scope="layer"))
        return f"{number} {'cannot' if no else 'can'} be converted ({why}): convert_(model, {wider!r})"
    if all(decision.site.fixed is not None for decision in asked) or not unit.pyramidal:
        what, _, advice = (
            why.rpartition(": ") if ": " in asked[0].reason else (why, "", make_a_module(asked[0].site.kind))
        )
        call = f"convert_(model, {str(unit)!r})"
        return f"{number} {'cannot' if no else 'can'} be converted ({what}): {advice}, then {call}"
    if not has_inputs and any("example_inputs" in decision.reason for decision in asked):
        return (
            f"{number} is {no}known to have an affine layer before it ({why}): let convert_ observe a forward, "
            f"convert_(model, {str(unit)!r}, example_inputs=...), or use a standard unit, "
            f"e.g. convert_(model, {str(unit.apical)!r})"
        )
    return (
        f"{str(unit)!r} needs one affine layer that feeds the activation, which {number} "
        f"{'does not have' if no else 'has'} ({why}): use a standard unit, e.g. convert_(model, {str(unit.apical)!r})"
    )
