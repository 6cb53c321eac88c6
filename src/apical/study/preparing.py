"""Data of a study: opened before anything runs, so that what is missing is said at once."""

from apical.data import load
from apical.errors import DataError
from apical.study.file import Part, Study
from apical.study.plan import spec_of
from apical.train import Execution
from apical.train.trial import open_data


def check_data(study: Study, how: Execution) -> None:
    """Open the data of every part that is trained, which prepares what is not ready."""
    for part in _trained(study):
        try:
            open_data(spec_of(part), how)
        except DataError as error:
            raise type(error)(f"the data of part {part.name!r}: {error}") from error


def mark_partial(study: Study, how: Execution) -> Study:
    """The study with the mark that each part's data bears where it is a subset."""
    marks = {}
    for part in _trained(study):
        spec = spec_of(part)
        marks[part.name] = load(part.data, how.root, True, split=spec.split, size=spec.size).partial
    parts = tuple(part.model_copy(update={"partial": marks.get(part.name)}) for part in study.parts)
    return study.model_copy(update={"parts": parts})


def _trained(study: Study) -> list[Part]:
    return [part for part in study.parts if any(row.part == part.name for row in study.trained)]
