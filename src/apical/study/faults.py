"""All that is wrong in a study file, found at once: within fields, and between parts, rows and groups."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel, ValidationError

from apical.errors import ApicalError, StudyError
from apical.study import checks
from apical.study.imports import import_all
from apical.study.lines import Path
from apical.study.source import Document, Fault, refuse
from apical.study.written import GROUPS, PartTable, RowTable, StudyTable


def checked(document: Document) -> StudyTable:
    """The table that a document holds, or a StudyError with every fault in it."""
    faults = list(_import_faults(document))
    found: StudyTable | None = None
    try:
        found = StudyTable.model_validate(document.values)
    except ValidationError as error:
        faults += [_field_fault(document, item) for item in error.errors(include_url=False)]
    faults += _training_faults(document)
    faults += _part_faults(document)
    faults += _row_faults(document)
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
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        message = "there is no such field"
    elif item["type"] == "missing":
        message = "it is missing"
    elif item["type"] != "value_error":
        message = f"{message[0].lower()}{message[1:]}, not {item['input']!r:.60}"
    return Fault(document.where(_field(document.values, item["loc"])), message)


def _field(values: Any, steps: Sequence[str | int]) -> Path:
    """The steps that lead to a field: those that name the members of a union lead nowhere in the file."""
    path: Path = ()
    for step in steps:
        if not isinstance(values, dict | list) or isinstance(values, list) != isinstance(step, int):
            break
        path = (*path, step)
        values = dict(enumerate(values) if isinstance(values, list) else values).get(step)
    return path


def _training_faults(document: Document) -> Iterator[Fault]:
    parts, quick = _list(document.values.get("parts")), document.values.get("quick")
    tables: list[tuple[Path, Any]] = [(("training",), document.values.get("training"))]
    tables += [(("parts", i, "training"), _table(part).get("training")) for i, part in enumerate(parts)]
    tables.append((("quick", "training"), _table(quick).get("training")))
    for path, table in tables:
        for key, message in checks.training(_table(table)).items():
            yield Fault(document.where((*path, key)), message)


def _part_faults(document: Document) -> Iterator[Fault]:
    seen = set()
    for i, part in _valid(PartTable, document.values.get("parts")):
        if part.name in seen:
            yield Fault(document.where(("parts", i, "name")), f"there is a part {part.name!r} already")
        seen.add(part.name)
        for key, message in checks.dims(part.model, part.dims).items():
            yield Fault(document.where(("parts", i, "dims", key)), message)
        try:
            checks.data(part.data, part.split)
        except ApicalError as error:
            yield Fault(document.where(("parts", i, "data")), str(error))


def _row_faults(document: Document) -> Iterator[Fault]:
    parts = [str(_table(part).get("name")) for part in _list(document.values.get("parts"))]
    groups = document.values.get("groups")
    known = [g.name for g in GROUPS] if groups is None else [str(_table(g).get("name")) for g in _list(groups)]
    keys: set[str] = set()
    for i, row in _valid(RowTable, document.values.get("rows")):
        for path, message in _row_messages(row, parts, known):
            yield Fault(document.where(("rows", i, *path)), message)
        own = {f"{part}/{row.called}" for part in parts if row.stands_in(part)}
        if own & keys:
            message = f"there is a row {min(own & keys)!r} already: give this one another name"
            yield Fault(document.where(("rows", i)), message)
        keys |= own


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
        fault = checks.tuning(row.unit, name, values)
        if fault:
            yield ("tune", name), fault


def _valid(model: type[BaseModel], items: Any) -> Iterator[tuple[int, Any]]:
    """The items that are right by themselves, with their positions: the others have been complained about."""
    for i, item in enumerate(_list(items)):
        try:
            found = model.model_validate(item)
        except ValidationError:
            continue
        yield i, found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _there(known: Sequence[str]) -> str:
    return f"there are {', '.join(known)}" if known else "there are none"
