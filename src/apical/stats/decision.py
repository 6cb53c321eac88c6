"""Decide between two methods by their trials: which of four verdicts does the mean difference over seeds bear?

Each method is a row of scores, one for each seed, and all rows have the same seeds: trial k of every row starts from
the same weights where shapes allow and sees the data in the same order. With R rows and S seeds the scores are taken
as row mean + seed effect + error. The variance of the error is pooled over the rows (two-way layout, (R - 1)(S - 1)
degrees of freedom), and the difference of two rows has the standard error sqrt(2 * variance / S).

A row whose own variance is more than SPREAD times the rows' median (a unit that sometimes fails to train) is left out
of the pool; a pair with such a row has the interval of its own paired differences, S - 1 degrees of freedom.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apical.errors import InvalidArgumentError
from apical.stats import pairs
from apical.stats.intervals import Interval, by_stratum
from apical.stats.pairs import Numbers

Verdict = Literal["supported", "contradicted", "negligible", "inconclusive"]
SPREAD: Final = 4.0
"""Times the median variance of the rows that a row may have to be pooled with them."""
EQUIVALENCE: Final = 0.90
"""Level of the interval that must lie within the margin: two one-sided tests at 0.05 each (Schuirmann 1987)."""


@dataclass(frozen=True)
class Pool:
    """The variance of a score's error, of which `rows`, with its degrees of freedom."""

    variance: float
    degrees: int
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """The mean over seeds of a - b, its interval, and the verdict.

    `deviation` is that of one pair of trials, `degrees` those of Student's t; `next_low` and `next_high` bound the
    difference of one further pair of trials (95 % prediction interval): a printed difference lies inside or outside.
    """

    verdict: Verdict
    difference: float
    low: float
    high: float
    p_value: float
    seeds: int
    deviation: float
    degrees: int
    pooled: bool
    next_low: float
    next_high: float

    def contains(self, printed: float) -> bool:
        """True where a printed difference is one that another pair of trials could give."""
        return self.next_low <= printed <= self.next_high


def pool(rows: Mapping[str, Numbers]) -> Pool:
    """Pool the error's variance over rows of scores with equal seeds; at least two rows of two seeds."""
    scores = {name: pairs.check_vector(name, values) for name, values in rows.items()}
    seeds = {len(values) for values in scores.values()}
    if len(scores) < 2 or len(seeds) != 1 or min(seeds) < 2:
        raise InvalidArgumentError("pooling needs at least two rows of scores with the same two or more seeds")
    own = {name: float(values.var(ddof=1)) for name, values in scores.items()}
    bound = SPREAD * float(np.median(list(own.values())))
    names = tuple(name for name in scores if own[name] <= bound)
    table = np.array([scores[name] for name in names])
    errors = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    degrees = (len(names) - 1) * (table.shape[1] - 1)
    return Pool(float((errors**2).sum() / degrees) if degrees else float("nan"), degrees, names)


def decide(
    a: Numbers,
    b: Numbers,
    *,
    margin: float,
    pooled: Pool | None = None,
    level: float = 0.95,
    larger_is_better: bool = True,
    span: float | None = None,
) -> Decision:
    """Decide whether a is better than b; both have the same seeds in the same order.

    supported: the interval of the gain lies above 0. contradicted: below 0. negligible: the 90 % interval lies within
    -margin and +margin. inconclusive: none of these. The gain is a - b, or b - a where smaller scores are better;
    `pooled` is the variance of a `pool` that has both rows, else that of the differences is taken.

    A difference that is the same for every seed has no variance to judge it by, and is inconclusive; but where all
    scores lie within a known `span` (1 for shares, and for 0 and 1), its interval has in it what further seeds may
    change: with n seeds, at most 1 - (1 - level)^(1/n) of all seeds have another difference (exact binomial bound).
    """
    first, second = pairs.check_pair(a, b)
    pairs.check_share("level", level)
    seeds = len(first)
    if seeds < 2:
        raise InvalidArgumentError(f"a and b have {seeds} seeds, but a decision needs at least 2")
    if not margin > 0:
        raise InvalidArgumentError(f"margin is {margin}, but must be above 0")
    if span is not None and (np.ptp(first) > span or np.ptp(second) > span):
        raise InvalidArgumentError(f"span is {span}, but must be at least the range of the scores")
    gains = first - second if larger_is_better else second - first
    variance, degrees = (2 * pooled.variance, pooled.degrees) if pooled else (float(gains.var(ddof=1)), seeds - 1)
    mean, error = float(gains.mean()), sqrt(variance / seeds)
    varies = error > 1e-9 * abs(mean)

    def interval(share: float, spread: float) -> tuple[float, float]:
        if span is not None and not varies:
            others = 1 - (1 - share) ** (1 / seeds)
            return mean - others * (span + mean), mean + others * (span - mean)
        half = float(special.stdtrit(degrees, (1 + share) / 2)) * spread
        return mean - half, mean + half

    low, high = interval(level, error)
    near = interval(EQUIVALENCE, error)
    next_low, next_high = interval(level, sqrt(variance * (1 + 1 / seeds)))
    verdict: Verdict = "inconclusive"
    if not varies and span is None:
        pass
    elif low > 0:
        verdict = "supported"
    elif high < 0:
        verdict = "contradicted"
    elif -margin < near[0] and near[1] < margin:
        verdict = "negligible"
    p = 2 * float(special.stdtr(degrees, -abs(mean) / error)) if error else float(mean == 0)
    return Decision(
        verdict=verdict, difference=mean, low=low, high=high, p_value=p, seeds=seeds, deviation=sqrt(variance),
        degrees=degrees, pooled=pooled is not None, next_low=next_low, next_high=next_high,
    )  # fmt: skip


def seeds_needed(difference: float, deviation: float, *, level: float = 0.05, power: float = 0.8) -> float:
    """Seeds that show a mean difference with probability `power`, where one pair of trials has this deviation.

    A normal approximation, rounded up and at least 2; infinite for a difference of 0.
    """
    if abs(difference) <= 1e-9 * deviation:
        return float("inf")
    z = special.ndtri(1 - pairs.check_share("level", level) / 2) + special.ndtri(pairs.check_share("power", power))
    return float(max(2, np.ceil(round((float(z) * deviation / difference) ** 2, 9))))


def crossed_bootstrap(
    a: NDArray[Any], b: NDArray[Any], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Interval of the mean of a - b over seeds and samples, both drawn with replacement (Owen 2007's product weights).

    a and b have a line for each seed and a column for each sample. It answers for other seeds *and* other test samples
    of the same kind; the interval of `decide` answers for other seeds on these samples. Swapping a and b mirrors it.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 2 or 0 in first.shape:
        raise InvalidArgumentError(
            f"a is {first.shape} and b {second.shape}, but both must be the same seeds x samples"
        )
    pairs.check_share("level", level)
    pairs.check_count("resamples", resamples, least=1)
    differences = first - second
    seeds, samples = differences.shape
    by_seed, by_sample = _counts(seeds, resamples, seed), _counts(samples, resamples, seed + 1)
    narrow, drawn = differences.astype(np.float32), np.empty(resamples)
    for k in (slice(start, start + 256) for start in range(0, resamples, 256)):
        sums = narrow @ by_sample[k].T.astype(np.float32)
        drawn[k] = np.einsum("rs,sr->r", by_seed[k].astype(np.float32), sums) / (seeds * samples)
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(float(differences.mean()), float(low), float(high), level)


@lru_cache(maxsize=4)
def _counts(n: int, size: int, seed: int) -> NDArray[np.uint8]:
    """How often each of n was drawn in each of `size` draws of n: the same for all pairs of a report."""
    random = np.random.default_rng(seed)
    counts = np.empty((size, n), dtype=np.uint8)
    for line in counts:
        line[:] = np.minimum(np.bincount(random.integers(n, size=n), minlength=n), 255)
    return counts


def sign_flip(
    a: Numbers, b: Numbers, *, strata: Numbers | None = None, resamples: int = 10_000, seed: int = 0
) -> float:
    """Two-sided p-value of mean(a) - mean(b) over the same samples: each pair may as well be the other way round.

    With `strata` (e.g. the classes of the samples) the means are those over strata of the strata's means: for right and
    wrong answers, the difference of mean recalls. Signs are drawn at random; the smallest p is 1 / (resamples + 1).
    """
    first, second = pairs.check_pair(a, b)
    pairs.check_count("resamples", resamples, least=1)
    groups = [first - second] if strata is None else by_stratum(first - second, strata)
    weighted = np.concatenate([group / (max(1, len(group)) * len(groups)) for group in groups])
    moved = weighted[weighted != 0]  # a zero keeps its value under either sign
    random, reached = np.random.default_rng(seed), 0
    bound = abs(float(moved.sum())) - 1e-12
    for start in range(0, resamples, 256):
        signs = random.integers(0, 2, size=(min(256, resamples - start), len(moved))) * 2 - 1
        reached += int((np.abs(signs @ moved) >= bound).sum())
    return (reached + 1) / (resamples + 1)
