"""A few trials in numbers, and many tests at once."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy import special

from apical.errors import InvalidArgumentError
from apical.stats import checks
from apical.stats.checks import Numbers


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
    checks.share("level", level)
    found = checks.vector("values", values)
    n, nan = len(found), float("nan")
    if n == 0:
        return Summary(0, nan, nan, nan, nan)
    mean = float(found.mean())
    if n == 1:
        return Summary(1, mean, nan, nan, nan)
    deviation = float(found.std(ddof=1))
    half = float(special.stdtrit(n - 1, (1 + level) / 2)) * deviation / sqrt(n)
    return Summary(n, mean, deviation, mean - half, mean + half)


def wilson(count: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share: `count` of `n`. It stays within 0 and 1 and is right for 0 of n too."""
    checks.share("level", level)
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
