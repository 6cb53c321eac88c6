"""Where a study differs from the paper's own, as the package ships it: such rows carry no verdict."""

from collections.abc import Iterator
from typing import Any

from apical.study.model import Part, Row, Study

SHOWN_OF_PART = {"title", "x", "partial"}
"""Fields that change what is printed, not what is trained; a partial mark is told apart."""
SHOWN_OF_ROW = {"label", "paper", "group", "x"}


def deviations(study: Study, paper: Study | None) -> tuple[str, ...]:
    """In words, once each: what of a study is not as the paper's; nothing where there is no study of the paper."""
    if paper is None or study.quick:
        return ()
    found = [*_of_trials(study, paper)]
    for part in study.parts:
        found += _of_part(part, paper)
    for row in study.rows:
        found += _of_row(row, paper)
    return tuple(dict.fromkeys(found))


def changed(row: Row, part: Part, study: Study, paper: Study | None) -> str:
    """How one row differs from the paper's, in words; "" where it does not."""
    if paper is None:
        return ""
    return ", ".join(dict.fromkeys([*_of_part(part, paper), *_of_row(row, paper), *_of_trials(study, paper)]))


def _of_trials(study: Study, paper: Study) -> Iterator[str]:
    if study.trials < paper.trials:
        yield f"{study.trials} trials instead of {paper.trials}"


def _of_part(part: Part, paper: Study) -> Iterator[str]:
    own = next((other for other in paper.parts if other.name == part.name), None)
    return _fields(part, own, SHOWN_OF_PART) if own else iter([f"{part.title} is no part of the paper's"])


def _of_row(row: Row, paper: Study) -> Iterator[str]:
    own = next((other for other in paper.rows if other.key == row.key), None)
    return _fields(row, own, SHOWN_OF_ROW) if own else iter([f"{row.key} is no row of the paper's"])


def _fields(ours: Part | Row, theirs: Part | Row, shown: set[str]) -> Iterator[str]:
    for field in sorted(set(type(ours).model_fields) - shown):
        yield from _difference(field, getattr(ours, field), getattr(theirs, field))


def _difference(field: str, ours: Any, theirs: Any) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys((*ours, *theirs)):
            yield from _difference(f"{field}.{key}", ours.get(key), theirs.get(key))
    elif ours != theirs:
        yield f"{field} = {_said(ours)} instead of {_said(theirs)}"


def _said(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(map(str, value))})"
    return "the protocol's" if value is None else str(value)
