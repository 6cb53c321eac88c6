"""Two models on the same samples: aligned by id, counted in a 2 x 2 table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apical.errors import InvalidArgumentError

Ids = Sequence[str] | NDArray[Any]


@dataclass(frozen=True)
class PairedTable:
    """How many samples both models get right, only the first, only the second, neither."""

    both: int
    only_a: int
    only_b: int
    neither: int

    def __post_init__(self) -> None:
        for name in ("both", "only_a", "only_b", "neither"):
            check_count(name, getattr(self, name), least=0)

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def discordant(self) -> int:
        """The number of samples that one model alone gets right."""
        return self.only_a + self.only_b

    @property
    def difference(self) -> float:
        """Accuracy of the first minus accuracy of the second; NaN where there are no samples."""
        return (self.only_a - self.only_b) / self.n if self.n else float("nan")


def table(right_a: Sequence[bool] | NDArray[Any], right_b: Sequence[bool] | NDArray[Any]) -> PairedTable:
    """The table of two rows of right (True) and wrong (False) answers to the same samples."""
    a, b = _answers("right_a", right_a), _answers("right_b", right_b)
    check_same_length(len(a), len(b))
    return PairedTable(int((a & b).sum()), int((a & ~b).sum()), int((~a & b).sum()), int((~a & ~b).sum()))


def _answers(name: str, values: Sequence[bool] | NDArray[Any]) -> NDArray[np.bool_]:
    answers = np.asarray(values)
    if answers.ndim != 1 or not (answers.dtype == bool or np.isin(answers, (0, 1)).all()):
        raise InvalidArgumentError(f"{name} must be one row of right (True) and wrong (False)")
    return answers.astype(bool)


def align(ids_a: Ids, ids_b: Ids) -> NDArray[np.intp]:
    """Positions into b, so that `ids_b[align(ids_a, ids_b)]` is `ids_a`; the two must hold the same ids."""
    a, b = _unique("ids_a", ids_a), _unique("ids_b", ids_b)
    missing, extra = np.setdiff1d(a, b), np.setdiff1d(b, a)
    if len(missing) or len(extra):
        example = (missing if len(missing) else extra)[0]
        raise InvalidArgumentError(
            f"the two have different samples ({len(missing)} are only in a, {len(extra)} only in b, e.g. {example!s}): "
            "a paired statistic needs the same test samples"
        )
    by_a, by_b = np.argsort(a, kind="stable"), np.argsort(b, kind="stable")
    positions = np.empty(len(a), dtype=np.intp)
    positions[by_a] = by_b
    return positions


def _unique(name: str, ids: Ids) -> NDArray[Any]:
    array = np.asarray(ids)
    values, counts = np.unique(array, return_counts=True)
    if array.ndim != 1 or (counts > 1).any():
        twice = f": {values[counts > 1][0]!s} occurs {counts.max()} times" if (counts > 1).any() else ""
        raise InvalidArgumentError(f"{name} must be one row of ids that occur once{twice}")
    return array


# What every statistic asks of its arguments: one sentence where something is wrong.

Numbers = Sequence[float] | NDArray[Any]


def check_vector(name: str, values: Numbers) -> NDArray[np.float64]:
    """`values` as one row of finite numbers."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name} must be a row of numbers ({error})") from error
    if vector.ndim != 1:
        raise InvalidArgumentError(f"{name} has the shape {vector.shape}, but must be one row of numbers")
    if not np.isfinite(vector).all():
        where = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise InvalidArgumentError(f"{name}[{where}] is {vector[where]}, but must be finite: leave such samples out")
    return vector


def check_pair(a: Numbers, b: Numbers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two rows of the same samples in the same order."""
    first, second = check_vector("a", a), check_vector("b", b)
    check_same_length(len(first), len(second))
    return first, second


def check_same_length(a: int, b: int) -> None:
    """Refuse rows that cannot be of the same samples."""
    if a != b:
        raise InvalidArgumentError(
            f"a has {a} samples and b has {b}, but a paired statistic needs the same samples in the same order: "
            "apical.stats.align puts them in order by their ids"
        )


def check_share(name: str, value: float) -> float:
    """A number between 0 and 1, both excluded."""
    if not 0 < value < 1:
        raise InvalidArgumentError(f"{name} is {value}, but must lie between 0 and 1")
    return float(value)


def check_count(name: str, value: int, *, least: int) -> int:
    """A whole number that is at least `least`."""
    if int(value) != value or value < least:
        raise InvalidArgumentError(f"{name} is {value}, but must be a whole number of at least {least}")
    return int(value)
