"""What the networks of a study were trained on: the sizes of the splits and the names of the classes."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from apical.errors import ApicalError
from apical.study.model import Part
from apical.study.results import RowResults, StudyResults, TrialRecord

if TYPE_CHECKING:
    from apical.data import DataSet

NAMED = 40
"""How many classes are named; ImageNet has 1,000."""


@dataclass(frozen=True)
class Data:
    """One data set as a study uses it. Sizes are None where this machine does not have the data."""

    name: str
    changes: str
    train: int | None
    validation: int | None
    test: int | None
    classes: tuple[str, ...]

    @property
    def named(self) -> str:
        """The names of the classes, in a line."""
        rest = f" and {len(self.classes) - NAMED} more" if len(self.classes) > NAMED else ""
        return ", ".join(self.classes[:NAMED]) + rest


def datasets(results: StudyResults) -> tuple[Data, ...]:
    """Each data set once, however many networks were trained on it."""
    parts: dict[tuple[object, ...], Part] = {}
    for part in results.study.parts:
        parts.setdefault((part.data, part.split, part.partial, part.corruptions), part)
    return tuple(_data(part, [r for r in results.rows if r.part.data == part.data]) for part in parts.values())


def opened(part: Part) -> "DataSet | None":
    """The data of a part as its networks see it; None where it is not on this machine: a report fetches nothing."""
    from apical.data import corrupt, load, statuses  # noqa: PLC0415  torch and the data

    here = any(s.recipe.name == part.data and s.state != "not prepared" for s in statuses())
    if not here and not Path(part.data).expanduser().exists():
        return None
    try:
        return corrupt(load(part.data, partial=part.partial is not None, split=part.split), *part.corruptions)
    except ApicalError:
        return None  # a report is made where the data may never have been


def classes_of(rows: Iterable[RowResults]) -> tuple[str, ...]:
    """The names of the classes as the trials recorded them."""
    return next((t.classes for found in rows for t in found.trials if t.classes), ())


def _data(part: Part, rows: list[RowResults]) -> Data:
    data = opened(part)
    changes = ", ".join([*part.corruptions, *filter(None, (part.partial, _split(part)))])
    if data is not None:
        names = classes_of(rows) or data.class_names or ()
        return Data(part.data, changes, len(data.train), len(data.validation), len(data.test), tuple(names))
    tested = [r.best for r in rows if r.row.part == part.name and r.best is not None and r.best.test is not None]
    return Data(part.data, changes, None, None, _count(tested[0]) if tested else None, classes_of(rows))


def _split(part: Part) -> str:
    return "" if part.split == "paper" else f"split {part.split}"


def _count(record: TrialRecord) -> int | None:
    try:
        return len(record.outputs().ids)
    except ApicalError:
        return None
