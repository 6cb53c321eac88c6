"""Data that stays open between the trials of one process: a worker that trains hundreds opens it once.

Only inside `data_kept()`; elsewhere the data of a trial goes when the trial ends.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from apical.data import DataSet

_kept: dict[Hashable, DataSet] | None = None


@contextmanager
def data_kept() -> Iterator[None]:
    """Keep the data set that was opened last, with the inputs that were made of it."""
    global _kept  # noqa: PLW0603  one process trains one trial at a time
    before, _kept = _kept, {}
    try:
        yield
    finally:
        _kept = before


def kept(key: Hashable, make: Callable[[], DataSet]) -> DataSet:
    """The data set of that key, made where it is not the last one; another one goes first, to make room."""
    if _kept is None:
        return make()
    if key not in _kept:
        _kept.clear()
        _kept[key] = make()
    return _kept[key]
