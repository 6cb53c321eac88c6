"""The paired bootstrap: how far the difference of two means would move with other samples.

Samples are drawn with replacement, whole pairs at a time, as many as there are; the interval lies between the
quantiles of the resampled differences (Efron and Tibshirani 1993, chapter 13).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apical.errors import InvalidArgumentError
from apical.stats import checks
from apical.stats.checks import Numbers

CHUNK = 1 << 22
"""Positions drawn at once, which bounds the memory."""


@dataclass(frozen=True)
class Interval:
    """A difference and the interval around it."""

    difference: float
    low: float
    high: float
    level: float


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
    samples are drawn within each: for right/wrong answers that is the difference of weighted accuracies.
    """
    first, second = checks.pair(a, b)
    checks.share("level", level)
    checks.count("resamples", resamples, least=1)
    if not len(first):
        raise InvalidArgumentError("a and b are empty, but an interval needs at least one sample")
    differences = first - second
    random = np.random.default_rng(seed)
    groups = [differences] if strata is None else _by_stratum(differences, strata)
    drawn = np.mean([_resampled_means(group, resamples, random) for group in groups], axis=0)
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(float(np.mean([group.mean() for group in groups])), float(low), float(high), level)


def _by_stratum(differences: NDArray[np.float64], strata: Numbers) -> list[NDArray[np.float64]]:
    names = checks.vector("strata", strata)
    checks.same_length(len(differences), len(names))
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
