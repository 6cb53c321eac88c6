"""All that is wrong in a study file, found at once: within fields, and between parts, rows and groups."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from apical.errors import StudyError
from apical.study import checks
from apical.study.imports import import_all
from apical.study.lines import Path
from apical.study.source import Document, Fault, refuse, row_name
from apical.study.written import GROUPS, GroupTable, PartTable, RowTable, StudyTable, Tune, fields_at

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
    tables: list[tuple[Path, Any]] = [(("training",), document.values.get("training"))]
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
    tables: list[tuple[Path, Any]] = [(("tune",), document.values.get("tune")), (("quick", "tune"), quick.get("tune"))]
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


def _row_messages(row: RowTable, parts: Sequence[str], groups: Sequence[str]) -> Iterator[tuple[Path, str]]:
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
