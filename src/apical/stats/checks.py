"""What every statistic asks of its arguments: one sentence where something is wrong."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apical.errors import InvalidArgumentError

Numbers = Sequence[float] | NDArray[Any]


def vector(name: str, values: Numbers) -> NDArray[np.float64]:
    """`values` as one row of finite numbers."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name} must be a row of numbers ({error})") from error
    if found.ndim != 1:
        raise InvalidArgumentError(f"{name} has the shape {found.shape}, but must be one row of numbers")
    if not np.isfinite(found).all():
        where = int(np.flatnonzero(~np.isfinite(found))[0])
        raise InvalidArgumentError(f"{name}[{where}] is {found[where]}, but must be finite: leave such samples out")
    return found


def pair(a: Numbers, b: Numbers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two rows of the same samples in the same order."""
    first, second = vector("a", a), vector("b", b)
    same_length(len(first), len(second))
    return first, second


def same_length(a: int, b: int) -> None:
    """Refuse rows that cannot be of the same samples."""
    if a != b:
        raise InvalidArgumentError(
            f"a has {a} samples and b has {b}, but a paired statistic needs the same samples in the same order: "
            "apical.stats.align puts them in order by their ids"
        )


def share(name: str, value: float) -> float:
    """A number between 0 and 1, both excluded."""
    if not 0 < value < 1:
        raise InvalidArgumentError(f"{name} is {value}, but must lie between 0 and 1")
    return float(value)


def count(name: str, value: int, *, least: int) -> int:
    """A whole number that is at least `least`."""
    if int(value) != value or value < least:
        raise InvalidArgumentError(f"{name} is {value}, but must be a whole number of at least {least}")
    return int(value)
