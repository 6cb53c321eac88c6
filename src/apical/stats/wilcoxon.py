"""The Wilcoxon signed-rank test on paired values, e.g. the absolute errors of two models.

Of the differences d = a - b, zeros are left out (Wilcoxon's own rule); the others are ranked by |d|, ties share the
mean of their ranks. W+ is the sum of the ranks of positive d, W- that of the negative ones; the statistic is the
smaller. Up to EXACT_UP_TO differences p is exact: the distribution of W+ over all signs, ties included.
Beyond, p is the normal approximation with the variance corrected for ties. Where no difference is left, p is 1.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apical.stats import checks
from apical.stats.checks import Numbers

EXACT_UP_TO = 50


@dataclass(frozen=True)
class Wilcoxon:
    """A test's result: `n` counts the differences that are not 0, `zeros` those that are."""

    n: int
    zeros: int
    positive: float
    negative: float
    method: Literal["exact", "normal"]
    p_value: float

    @property
    def statistic(self) -> float:
        """The smaller of the two rank sums."""
        return min(self.positive, self.negative)

    @property
    def rank_biserial(self) -> float:
        """(W+ - W-) / (W+ + W-), in [-1, 1], positive where a is larger; 0 where nothing differs (Kerby 2014)."""
        total = self.positive + self.negative
        return (self.positive - self.negative) / total if total else 0.0


def wilcoxon(a: Numbers, b: Numbers) -> Wilcoxon:
    """The two-sided test that a - b is symmetric around 0; a and b are of the same samples in the same order."""
    first, second = checks.pair(a, b)
    differences = first - second
    kept = differences[differences != 0]
    ranks, ties = _ranks(np.abs(kept))
    positive, negative = float(ranks[kept > 0].sum()), float(ranks[kept < 0].sum())
    exact = len(kept) <= EXACT_UP_TO
    p = _exact(ranks, min(positive, negative)) if exact else _normal(len(kept), ties, min(positive, negative))
    zeros = len(differences) - len(kept)
    return Wilcoxon(len(kept), zeros, positive, negative, "exact" if exact else "normal", p)


def _ranks(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Mean ranks from 1, and how many values share each."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse], counts


def _exact(ranks: NDArray[np.float64], smaller: float) -> float:
    """2 * P(W+ <= smaller) over the 2^n equally likely signs; ranks are halves at worst, so doubled they are whole."""
    doubled = np.rint(2 * ranks).astype(int)
    probabilities = np.zeros(doubled.sum() + 1)
    probabilities[0] = 1.0
    for rank in doubled:
        with_rank = np.zeros_like(probabilities)
        with_rank[rank:] = probabilities[: len(probabilities) - rank]
        probabilities = (probabilities + with_rank) / 2
    return min(1.0, 2 * float(probabilities[: round(2 * smaller) + 1].sum()))


def _normal(n: int, ties: NDArray[np.intp], smaller: float) -> float:
    """n and counts are made floats: cubes of large counts overflow whole numbers."""
    size, shared = float(n), ties.astype(float)
    variance = size * (size + 1) * (2 * size + 1) / 24 - float((shared**3 - shared).sum()) / 48
    z = (smaller - size * (size + 1) / 4) / sqrt(variance)
    return min(1.0, 2 * float(special.ndtr(z)))
