"""The paired bootstrap: how far the difference of two means would move with other samples.

Samples are drawn with replacement, whole pairs at a time, as many as there are; the interval lies between the
quantiles of the resampled differences (Efron and Tibshirani 1993, chapter 13).
"""

from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apical.errors import InvalidArgumentError
from apical.stats import pairs
from apical.stats.pairs import Numbers

CHUNK = 1 << 22
"""Positions drawn at once, which bounds the memory."""


@dataclass(frozen=True)
class Interval:
    """A difference and the interval around it; `p_value` is 1 minus the largest level whose interval excludes 0."""

    difference: float
    low: float
    high: float
    level: float
    p_value: float = nan


def bootstrap_difference(
    a: Numbers,
    b: Numbers,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    strata: Numbers | None = None,
) -> Interval:
    """Interval of mean(a) - mean(b) over the same samples in the same order.

    With `strata` (one number for each sample, e.g. its class) both are the mean over strata of the strata's means, and
    samples are drawn within each: for right/wrong answers that is the difference of weighted accuracies. Swapping a
    and b mirrors the interval.
    """
    first, second = pairs.check_pair(a, b)
    pairs.check_share("level", level)
    pairs.check_count("resamples", resamples, least=1)
    if not len(first):
        raise InvalidArgumentError("a and b are empty, but an interval needs at least one sample")
    differences = first - second
    leading = differences[np.flatnonzero(differences)[:1]]
    sign = -1.0 if len(leading) and leading[0] < 0 else 1.0  # a - b and b - a are resampled as one, then turned
    differences, random = sign * differences, np.random.default_rng(seed)
    groups = [differences] if strata is None else by_stratum(differences, strata)
    drawn = np.mean([_resampled_means(group, resamples, random) for group in groups], axis=0)
    tail = (1 - level) / 2
    low, high = sorted(sign * np.quantile(drawn, [tail, 1 - tail]) + 0.0)  # + 0.0: a zero has no sign
    difference = sign * float(np.mean([group.mean() for group in groups])) + 0.0
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    p_value = min(1.0, 2 * (beyond + 1) / (resamples + 1))
    return Interval(difference, float(low), float(high), level, p_value)


def by_stratum(differences: NDArray[np.float64], strata: Numbers) -> list[NDArray[np.float64]]:
    """The differences of each stratum."""
    names = pairs.check_vector("strata", strata)
    pairs.check_same_length(len(differences), len(names))
    return [differences[names == name] for name in np.unique(names)]


def _resampled_means(values: NDArray[np.float64], resamples: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Means of `resamples` draws. Few distinct values (right and wrong give three) are drawn as counts, at once."""
    distinct, counts = np.unique(values, return_counts=True)
    n = len(values)
    if len(distinct) <= 16:
        return np.asarray(random.multinomial(n, counts / n, size=resamples) @ distinct / n)
    rows = max(1, CHUNK // n)
    sizes = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    return np.concatenate([values[random.integers(n, size=(size, n))].mean(1) for size in sizes])


# A few trials in numbers, and many tests at once.


@dataclass(frozen=True)
class Summary:
    """n values: their mean, sample deviation (n - 1 below), and Student's interval of the mean.

    NaN where a number is not defined: all of them for no value, deviation and interval for one.
    """

    n: int
    mean: float
    deviation: float
    low: float
    high: float


def summarise(values: Numbers, *, level: float = 0.95) -> Summary:
    """Mean, deviation and the interval mean -+ t * deviation / sqrt(n)."""
    pairs.check_share("level", level)
    numbers = pairs.check_vector("values", values)
    n = len(numbers)
    if n == 0:
        return Summary(0, nan, nan, nan, nan)
    mean = float(numbers.mean())
    if n == 1:
        return Summary(1, mean, nan, nan, nan)
    deviation = float(numbers.std(ddof=1))
    half = float(special.stdtrit(n - 1, (1 + level) / 2)) * deviation / sqrt(n)
    return Summary(n, mean, deviation, mean - half, mean + half)


def wilson(count: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share: `count` of `n`. It stays within 0 and 1 and is right for 0 of n too."""
    pairs.check_share("level", level)
    if not 0 <= count <= n or n < 1:
        raise InvalidArgumentError(f"count is {count} and n is {n}, but n must be at least 1 and count between 0 and n")
    z, share = float(special.ndtri((1 + level) / 2)), count / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def holm(p_values: Numbers) -> list[float]:
    """Holm's step-down adjustment: reject where the result is at most the level, and any false rejection among all
    has at most that probability. NaN stands for a test that was not made: it stays NaN and is not counted.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or ((p < 0) | (p > 1)).any():
        raise InvalidArgumentError("p_values must be one row of numbers between 0 and 1")
    adjusted = np.full(len(p), np.nan)
    made = np.flatnonzero(~np.isnan(p))
    order = made[np.argsort(p[made], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p[order]))
    return [float(value) for value in adjusted]
