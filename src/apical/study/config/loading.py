"""`load`: a study file made into a Study, with all that is wrong in it said at once."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from apical.errors import StudyError
from apical.study.config import checks, toml
from apical.study.config.schema import (
    GROUPS,
    GroupTable,
    PartTable,
    Printed,
    QuickTable,
    RowTable,
    StudyTable,
    Tune,
    fields_at,
)
from apical.study.config.toml import Document, Fault, KeyPath, refuse, row_name
from apical.study.model import Group, PaperNumber, Part, Row, Study, Value, import_all
from apical.study.plan import spec_of

LABELS = {
    "relu": "ReLU",
    "leaky_relu": "leaky ReLU",
    "rbf": "RBF",
    "swish": "Swish",
    "ada": "ADA",
    "leaky_ada": "leaky ADA",
    "pynrelu": "PyNReLU",
    "pynrbf": "PyNRBF",
    "pynswish": "PyNSwish",
    "pynada": "PyNADA",
    "leaky_pynada": "leaky PyNADA",
}


def names() -> tuple[str, ...]:
    """The studies that come with apical."""
    return tuple(toml.shipped())


QUICK = ("trials", "training.", "samples")
"""What a quick variant reduces, and `--set` may say too."""


def load(name: str | Path, *, quick: bool = False, sets: Sequence[str] = (), tune_c: bool = False) -> Study:
    """The study of a shipped name or in a file, with `key=value` changes; `quick` gives its reduced variant.

    `tune_c` also tries c = 0 and c = 1 in every row that tunes alpha.
    """
    document = toml.read(name)
    quick = quick and not checked(document).quick.always
    said = [f"quick.{text}" if quick and text.startswith(QUICK) else text for text in sets]
    document = toml.changed(document, said)
    table = checked(document)
    study = _study(table, document, sets)
    if tune_c:
        study = with_c_tuned(study)
    return reduced(study, table.quick) if quick else study


def with_c_tuned(study: Study) -> Study:
    """The study with c over {0, 1} in every row that tunes alpha, its own c first, so that it wins ties."""
    from apical.nn import Unit  # noqa: PLC0415  torch

    rows = []
    for row in study.rows:
        own = row.tune.get("c", (Unit.parse(row.unit).c,))
        values = tuple(dict.fromkeys((*own, 0.0, 1.0)))
        rows.append(row.model_copy(update={"tune": row.tune | {"c": values}}) if "alpha" in row.tune else row)
    note = "c was tuned over 0 and 1 too (--tune-c)"
    return study.model_copy(update={"rows": tuple(rows), "notes": (*study.notes, note)})


def _study(table: StudyTable, document: Document, sets: Sequence[str]) -> Study:
    chosen = [part for part in table.parts if _kept(part.name, table.only_parts)]
    if not chosen:
        there = ", ".join(part.name for part in table.parts)
        raise StudyError(f"{document.origin}: no part is called {' or '.join(table.only_parts or ())}: it has {there}")
    parts = tuple(_part(part, table) for part in chosen)
    written = [row for row in table.rows if _kept(row.called, table.only_rows)]
    groups = {group.name: group for group in (GROUPS if table.groups is None else table.groups)}
    rows = tuple(_row(row, part, table, groups) for part in parts for row in written if row.stands_in(part.name))
    if all(row.quoted for row in rows):
        raise StudyError(f"{document.origin}: no row is left to train: see only_parts, only_rows and quoted")
    if table.form == "curve" and any(row.x is None and part.x is None for part in parts for row in written):
        raise StudyError(f"{document.origin}: a curve needs the place of each part or row on its axis: give them x")
    changes = [f"changed on the command line: {text}" for text in sets]
    extended = [f"a variant of {table.extends}"] if table.extends else []
    name = table.name or toml.slug(document.name)
    return Study(
        name=name,
        title=table.title,
        source=table.source,
        notes=(*table.notes, *extended, *changes),
        base=document.shipped,
        quick=table.quick.always,
        form=table.form,
        axis=table.axis,
        trials=table.trials,
        stack=table.stack,
        imports=tuple(table.imports),
        parts=parts,
        rows=rows,
        groups=tuple(_group(group, rows) for group in groups.values() if any(r.group == group.name for r in rows)),
    )


def _kept(name: str, only: Sequence[str] | None) -> bool:
    return only is None or any(fnmatchcase(name, pattern) for pattern in only)


def _part(part: PartTable, table: StudyTable) -> Part:
    from apical.study.plan import spec_of  # noqa: PLC0415  torch

    made = Part(
        name=part.name,
        title=part.title or part.name,
        data=part.data,
        model=part.model,
        dims=part.dims,
        corruptions=tuple(part.corruptions),
        split=part.split,
        partial=part.partial,
        x=part.x,
        training={**table.training, **part.training},
    )
    return made.model_copy(update={"metric": spec_of(made).metric})


def _row(row: RowTable, part: Part, table: StudyTable, groups: dict[str, GroupTable]) -> Row:
    from apical.nn import Unit  # noqa: PLC0415  torch

    unit = Unit.parse(row.unit)
    return Row(
        key=f"{part.name}/{row.called}",
        part=part.name,
        label=row.label or label(row.unit),
        unit=str(unit),
        tune={} if row.quoted else tuned(row.unit, row.tune, table.tune),
        group=row.group if row.quoted or row.group else default_group(unit, groups),
        paper=_paper(row.paper.get(part.name)),
        quoted=row.quoted,
        x=row.x,
    )


def tuned(unit: str, own: Tune | None, common: Tune) -> dict[str, tuple[Any, ...]]:
    """The grids of a row: its own, or else those common to all rows, of the parameters that its unit leaves open."""
    grids = (common if own is None else own).grids()
    return {name: values for name, values in grids.items() if checks.tunes(unit, name)}


def label(unit: str) -> str:
    """What tables call a unit."""
    kind, bracket, settings = unit.partition("(")
    return LABELS.get(kind.strip(), kind.strip()) + (f" ({settings.rstrip(' )')})" if bracket else "")


def default_group(unit: Any, groups: dict[str, GroupTable]) -> str | None:
    """The paper's group of a unit, where the study has that group."""
    name = "pyramidal" if unit.pyramidal else "leaky" if unit.kind.startswith("leaky_") else "standard"
    return name if name in groups else None


def _paper(printed: Printed | None) -> dict[str, PaperNumber]:
    if printed is None:
        return {}
    given = printed.model_dump(by_alias=True, exclude_none=True)
    beside = {"alpha": given.pop("alpha", None), "c": given.pop("c", None)}
    mark = given.pop("mark", "")
    return {
        metric: PaperNumber(value=value, mark="" if metric == "seconds" else mark, **beside)
        for metric, value in given.items()
    }


def _group(group: GroupTable, rows: Sequence[Row]) -> Group:
    members = tuple(dict.fromkeys(row.name for row in rows if row.group == group.name))
    return Group(name=group.name, title=group.title, baseline=group.baseline, rows=members)


# All that is wrong in a study file, found at once: within fields, and between parts, rows and groups.

T = TypeVar("T", bound=BaseModel)


def checked(document: Document) -> StudyTable:
    """The table that a document holds, or a StudyError with every fault in it."""
    faults = list(_import_faults(document))
    found: StudyTable | None = None
    try:
        found = StudyTable.model_validate(document.values)
    except ValidationError as error:
        faults += [_field_fault(document, item) for item in error.errors(include_url=False)]
    for find in (_training_faults, _tuning_faults, _part_faults, _row_faults, _group_faults):
        faults += find(document)
    if faults or found is None:
        raise refuse(faults)
    return found


def _import_faults(document: Document) -> Iterator[Fault]:
    """Import the user's modules first: the units and networks that they register are looked for below."""
    for i, name in enumerate(_list(document.values.get("imports"))):
        try:
            import_all([name] if isinstance(name, str) else [])
        except StudyError as error:
            yield Fault(document.where(("imports", i)), str(error))


def _field_fault(document: Document, item: Any) -> Fault:
    """A fault that pydantic found, at the field it is about."""
    path, message = item["loc"], item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        near = get_close_matches(str(path[-1]), fields_at(path[:-1]), n=1)
        message = "there is no such field" + (f": did you mean {near[0]!r}?" if near else "")
    elif item["type"] == "missing":
        message = "it is missing"
    elif item["type"] != "value_error":
        message = f"{message[0].lower()}{message[1:]}, not {item['input']!r:.60}"
    return Fault(document.where(path), message)


def _training_faults(document: Document) -> Iterator[Fault]:
    parts, quick = _list(document.values.get("parts")), document.values.get("quick")
    tables: list[tuple[KeyPath, Any]] = [(("training",), document.values.get("training"))]
    tables += [(("parts", i, "training"), _table(part).get("training")) for i, part in enumerate(parts)]
    tables.append((("quick", "training"), _table(quick).get("training")))
    for path, table in tables:
        for key, message in checks.training(_table(table)).items():
            yield Fault(document.where((*path, key)), message)


def _part_faults(document: Document) -> Iterator[Fault]:
    names: set[str] = set()
    common = _table(document.values.get("training"))
    for i, part in _tables(PartTable, document, "parts"):
        if part.name in names - {_MADE_UP["name"]}:
            yield Fault(document.where(("parts", i, "name")), f"there is a part {part.name!r} already")
        names.add(part.name)
        for key, message in checks.dims(part.model, part.dims).items():
            yield Fault(document.where(("parts", i, "dims", key)), message)
        if message := checks.split(part.data, part.split):
            yield Fault(document.where(("parts", i, "split")), message)
        settings = {**common, **part.training}
        if not checks.training(settings) and (message := checks.task(part.data, part.model, settings)):
            yield Fault(document.where(("parts", i)), message)


def _tuning_faults(document: Document) -> Iterator[Fault]:
    """Grids for all rows: their values must suit the unit that has every parameter."""
    quick = _table(document.values.get("quick"))
    tables: list[tuple[KeyPath, Any]] = [
        (("tune",), document.values.get("tune")),
        (("quick", "tune"), quick.get("tune")),
    ]
    for path, table in tables:
        if not isinstance(table, dict) or _wrong(Tune, table):
            continue
        for name, values in Tune.model_validate(table).grids().items():
            if message := checks.tuning("leaky_ada", name, values):
                yield Fault(document.where((*path, name)), message)


def _row_faults(document: Document) -> Iterator[Fault]:
    parts = [str(_table(part).get("name")) for part in _list(document.values.get("parts"))]
    groups = document.values.get("groups")
    known = [g.name for g in GROUPS] if groups is None else [str(_table(g).get("name")) for g in _list(groups)]
    keys: set[str] = set()
    for i, row in _tables(RowTable, document, "rows"):
        for path, message in _row_messages(row, parts, known):
            yield Fault(document.where(("rows", i, *path)), message)
        named = row.name is not None or row.unit == _table(document.values["rows"][i]).get("unit")  # not made up
        own = {f"{part}/{row.called}" for part in parts if named and row.stands_in(part)}
        if own & keys:
            message = f"there is a row {min(own & keys)!r} already: give this one another name"
            yield Fault(document.where(("rows", i)), message)
        keys |= own


def _group_faults(document: Document) -> Iterator[Fault]:
    """A group of the study's own needs its baseline; the usual ones do without where it is not compared."""
    rows = [row_name(row) for row in _list(document.values.get("rows"))]
    for i, group in _tables(GroupTable, document, "groups"):
        if group.baseline not in rows:
            message = f"no row is called {group.baseline!r}: {_there(rows)}"
            yield Fault(document.where(("groups", i, "baseline")), message)


def _row_messages(row: RowTable, parts: Sequence[str], groups: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong with a row among the parts and groups that there are."""
    for j, pattern in enumerate(row.parts):
        if not any(fnmatchcase(name, pattern) for name in parts):
            yield ("parts", j), f"no part is called {pattern!r}: {_there(parts)}"
    for name in row.paper:
        if name not in parts:
            yield ("paper", name), f"no part is called {name!r}: {_there(parts)}"
    if row.group is not None and row.group not in groups:
        yield ("group",), f"no group is called {row.group!r}: {_there(groups)}"
    for name, values in (row.tune.grids() if row.tune else {}).items():
        if fault := checks.tuning(row.unit, name, values):
            yield ("tune", name), fault


def _tables(model: type[T], document: Document, field: str) -> Iterator[tuple[int, T]]:
    """The tables of a list, with their positions, each without the fields that are wrong by themselves.

    What depends on such a field goes with it, and what a table must have is made up, so that the rest can be checked.
    """
    for i, item in enumerate(_list(document.values.get(field))):
        known = {key: value for key, value in _table(item).items() if key in model.model_fields}
        for key in _wrong(model, known):
            for dropped in (key, *_DEPENDENT.get(key, ())):
                known.pop(dropped, None)
        needed = {key: _MADE_UP[key] for key, info in model.model_fields.items() if info.is_required()}
        yield i, model.model_validate(needed | known)


def _wrong(model: type[BaseModel], item: dict[str, Any]) -> set[str]:
    try:
        model.model_validate(item)
    except ValidationError as error:
        return {str(fault["loc"][0]) for fault in error.errors(include_url=False)}
    return set()


_DEPENDENT = {"unit": ("tune",), "model": ("dims",), "data": ("split", "training")}
_MADE_UP = {
    "name": "nameless",
    "title": "a title",
    "unit": "relu",
    "data": "digits",
    "model": "mlp-1",
    "baseline": "relu",
}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _there(known: Sequence[str]) -> str:
    return f"there are {', '.join(known)}" if known else "there are none"


# The reduced variant of a study: fewer epochs, trials and samples, a smaller grid. Its name and its notes say so.

TRIALS = 2
SHARE = 0.1
"""Of the epochs, rounded up."""


def reduced(study: Study, quick: QuickTable) -> Study:
    """The quick variant: what `quick` says, and where it says nothing, 2 trials, a tenth of the epochs, two values."""
    trials = quick.trials or min(study.trials, TRIALS)
    parts = tuple(_reduced_part(part, quick) for part in study.parts)
    rows = tuple(_reduced_row(row, quick.tune.grids()) for row in study.rows)
    pairs = zip(study.parts, parts, strict=True)
    epochs = ", ".join(dict.fromkeys(f"{spec_of(new).epochs} of {spec_of(old).epochs}" for old, new in pairs))
    grid = ", a smaller grid" if rows != study.rows else ""
    samples = f", at most {quick.samples} samples of each split" if quick.samples else ""
    note = f"quick: {trials} of {study.trials} trials, {epochs} epochs{grid}{samples}: no replication"
    changes = {"name": f"{study.name}-quick", "title": f"{study.title} (quick)", "notes": (note, *study.notes)}
    return study.model_copy(update={**changes, "quick": True, "trials": trials, "parts": parts, "rows": rows})


def _reduced_part(part: Part, quick: QuickTable) -> Part:
    full, changes = spec_of(part), quick.training
    epochs = changes.get("epochs", ceil(SHARE * full.epochs))
    milestones = [max(1, round(m * epochs / full.epochs)) for m in full.milestones]
    training = {**part.training, "epochs": epochs, "milestones": milestones, **changes}
    if not training["milestones"]:
        del training["milestones"]
    fewer = (f"subset(samples={quick.samples})",) if quick.samples else ()
    return part.model_copy(update={"training": training, "corruptions": (*fewer, *part.corruptions)})


def _reduced_row(row: Row, grids: dict[str, tuple[Value, ...]]) -> Row:
    tune = {name: grids.get(name, _fewer(values)) for name, values in row.tune.items()}
    return row.model_copy(update={"tune": tune})


def _fewer(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """At most two: one from the first half, and the last, which may be "learn"."""
    return values if len(values) <= 2 else (values[len(values) // 4], values[-1])
