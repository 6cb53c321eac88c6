"""Two models on the same samples: aligned by id, counted in a 2 x 2 table, and tested."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

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
            f"a and b have different samples ({len(missing)} are only in a, {len(extra)} only in b, e.g. {example!s}): "
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


# McNemar's test: do two models get different shares of the same samples right?
#
# With b samples that only the first gets right and c that only the second does, and m = b + c:
#
#     exact            2 * P(X <= min(b, c)),  X ~ Binomial(m, 1/2), at most 1
#     mid-p            P(X <= min(b, c)) + P(X < min(b, c)), or 1 - P(X = b) / 2 where b = c (Fagerland et al. 2013)
#     chi2             (b - c)^2 / m against chi-square with one degree of freedom: the paper's form
#     chi2-corrected   max(0, |b - c| - 1)^2 / m, Edwards' continuity correction
#
# All are two-sided. Where m = 0 the models are not told apart: the statistic is 0 and p is 1.

Method = Literal["exact", "mid-p", "chi2", "chi2-corrected"]
METHODS: tuple[Method, ...] = ("exact", "mid-p", "chi2", "chi2-corrected")


@dataclass(frozen=True)
class McNemar:
    """A test's result. `statistic` is min(b, c) for exact and mid-p, else chi-square."""

    table: PairedTable
    method: Method
    statistic: float
    p_value: float

    @property
    def cohens_g(self) -> float:
        """b / (b + c) - 1/2, in [-1/2, 1/2], positive where the first is better; 0 without discordant samples.

        Cohen (1988) calls 0.05 small, 0.15 medium, 0.25 large.
        """
        return self.table.only_a / self.table.discordant - 0.5 if self.table.discordant else 0.0

    @property
    def odds_ratio(self) -> float:
        """b / c, the conditional estimate: inf where c = 0, NaN where both are 0."""
        b, c = self.table.only_a, self.table.only_b
        return b / c if c else (float("inf") if b else float("nan"))

    def odds_ratio_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Exact interval of b / c, from the Clopper-Pearson interval of b / (b + c); (0, inf) without discordant."""
        tail = (1 - check_share("level", level)) / 2
        b, c = self.table.only_a, self.table.only_b
        low = special.betaincinv(b, c + 1, tail) if b else 0.0
        high = special.betaincinv(b + 1, c, 1 - tail) if c else 1.0
        return float(low / (1 - low)), float(high / (1 - high)) if high < 1 else float("inf")


def mcnemar(
    right_a: Sequence[bool] | NDArray[Any], right_b: Sequence[bool] | NDArray[Any], *, method: Method = "exact"
) -> McNemar:
    """The test on two rows of right and wrong answers to the same samples."""
    return mcnemar_table(table(right_a, right_b), method=method)


def mcnemar_table(counts: PairedTable, *, method: Method = "exact") -> McNemar:
    """The test on a table of counts."""
    if method not in METHODS:
        raise InvalidArgumentError(f"method is {method!r}, but must be one of {', '.join(METHODS)}")
    fewer, m = min(counts.only_a, counts.only_b), counts.discordant
    if m == 0:
        return McNemar(counts, method, 0.0, 1.0)
    if method in ("exact", "mid-p"):
        p = _exact(fewer, m) if method == "exact" else _mid_p(fewer, m)
        return McNemar(counts, method, float(fewer), p)
    gap = abs(counts.only_a - counts.only_b)
    statistic = (gap if method == "chi2" else max(0, gap - 1)) ** 2 / m
    return McNemar(counts, method, statistic, float(special.chdtrc(1, statistic)))


def _exact(fewer: int, m: int) -> float:
    return min(1.0, 2 * _at_most(fewer, m))


def _mid_p(fewer: int, m: int) -> float:
    if 2 * fewer == m:
        return 1.5 - _at_most(fewer, m)  # which is 1/2 + P(X = fewer) / 2
    return _at_most(fewer, m) + _at_most(fewer - 1, m)


def _at_most(k: int, m: int) -> float:
    """P(X <= k) for k < m throws of a fair coin: the incomplete beta function keeps its digits in the far tail."""
    return float(special.betainc(m - k, k + 1, 0.5)) if k >= 0 else 0.0


# The Wilcoxon signed-rank test on paired values, e.g. the absolute errors of two models.
#
# Of the differences d = a - b, zeros are left out (Wilcoxon's own rule); the others are ranked by |d|, ties share the
# mean of their ranks. W+ is the sum of the ranks of positive d, W- that of the negative ones; the statistic is the
# smaller. Up to EXACT_UP_TO differences p is exact: the distribution of W+ over all signs, ties included.
# Beyond, p is the normal approximation with the variance corrected for ties. Where no difference is left, p is 1.

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
    first, second = check_pair(a, b)
    differences = first - second
    kept = differences[differences != 0]
    ranks, ties = _ranks(np.abs(kept))
    positive, negative = float(ranks[kept > 0].sum()), float(ranks[kept < 0].sum())
    exact = len(kept) <= EXACT_UP_TO
    p = _exact_sum(ranks, min(positive, negative)) if exact else _normal_sum(len(kept), ties, min(positive, negative))
    zeros = len(differences) - len(kept)
    return Wilcoxon(len(kept), zeros, positive, negative, "exact" if exact else "normal", p)


def _ranks(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Mean ranks from 1, and how many values share each."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse], counts


def _exact_sum(ranks: NDArray[np.float64], smaller: float) -> float:
    """2 * P(W+ <= smaller) over the 2^n equally likely signs; ranks are halves at worst, so doubled they are whole."""
    doubled = np.rint(2 * ranks).astype(int)
    probabilities = np.zeros(doubled.sum() + 1)
    probabilities[0] = 1.0
    for rank in doubled:
        with_rank = np.zeros_like(probabilities)
        with_rank[rank:] = probabilities[: len(probabilities) - rank]
        probabilities = (probabilities + with_rank) / 2
    return min(1.0, 2 * float(probabilities[: round(2 * smaller) + 1].sum()))


def _normal_sum(n: int, ties: NDArray[np.intp], smaller: float) -> float:
    """n and counts are made floats: cubes of large counts overflow whole numbers."""
    size, shared = float(n), ties.astype(float)
    variance = size * (size + 1) * (2 * size + 1) / 24 - float((shared**3 - shared).sum()) / 48
    z = (smaller - size * (size + 1) / 4) / sqrt(variance)
    return min(1.0, 2 * float(special.ndtr(z)))


# How many test samples would show a difference?
#
# For McNemar's test, with shares p_a and p_b of samples that only the first or only the second model gets right,
# psi = p_a + p_b and delta = |p_a - p_b| (Connor 1987, eq. for matched pairs):
#
#     n = (z[1 - level/2] * sqrt(psi) + z[power] * sqrt(psi - delta^2))^2 / delta^2
#
# For the Wilcoxon signed-rank test, with the rank-biserial correlation r (Noether 1987, whose p' - 1/2 is r/2):
#
#     n = 4 * (z[1 - level/2] + z[power])^2 / (3 * r^2)
#
# Both are normal approximations, rounded up. Without a difference no number of samples would do: the answer is inf.


def mcnemar_sample_size(only_a: float, only_b: float, *, level: float = 0.05, power: float = 0.8) -> float:
    """Samples that show the difference at `level` with probability `power`; the arguments are shares of samples."""
    psi, delta = _shares(only_a, only_b)
    if delta == 0:
        return inf
    z_level, z_power = _z(level, power)
    n = (z_level * sqrt(psi) + z_power * sqrt(psi - delta**2)) ** 2 / delta**2
    return float(ceil(round(n, 9)))


def mcnemar_power(n: int, only_a: float, only_b: float, *, level: float = 0.05) -> float:
    """The probability that n samples show the difference at `level`: the same approximation, solved for the power."""
    psi, delta = _shares(only_a, only_b)
    check_count("n", n, least=1)
    spread = sqrt(psi - delta**2)
    margin = delta * sqrt(n) - _z(level, 0.5)[0] * sqrt(psi)
    if spread == 0:
        return float(margin > 0)
    return float(special.ndtr(margin / spread))


def wilcoxon_sample_size(rank_biserial: float, *, level: float = 0.05, power: float = 0.8) -> float:
    """Samples that show a shift with this rank-biserial correlation at `level` with probability `power`."""
    if not -1 <= rank_biserial <= 1:
        raise InvalidArgumentError(f"rank_biserial is {rank_biserial}, but must lie between -1 and 1")
    if rank_biserial == 0:
        return inf
    return float(ceil(round(4 * sum(_z(level, power)) ** 2 / (3 * rank_biserial**2), 9)))


def _shares(only_a: float, only_b: float) -> tuple[float, float]:
    if not (only_a >= 0 and only_b >= 0 and only_a + only_b <= 1 + 1e-12):
        raise InvalidArgumentError(
            f"only_a is {only_a} and only_b is {only_b}, but they must be shares of the samples that sum to at most 1"
        )
    return only_a + only_b, abs(only_a - only_b)


def _z(level: float, power: float) -> tuple[float, float]:
    return (
        float(special.ndtri(1 - check_share("level", level) / 2)),
        float(special.ndtri(check_share("power", power))),
    )
