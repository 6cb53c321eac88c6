"""How many test samples would show a difference?

For McNemar's test, with shares p_a and p_b of samples that only the first or only the second model gets right,
psi = p_a + p_b and delta = |p_a - p_b| (Connor 1987, eq. for matched pairs):

    n = (z[1 - level/2] * sqrt(psi) + z[power] * sqrt(psi - delta^2))^2 / delta^2

For the Wilcoxon signed-rank test, with the rank-biserial correlation r (Noether 1987, whose p' - 1/2 is r/2):

    n = 4 * (z[1 - level/2] + z[power])^2 / (3 * r^2)

Both are normal approximations, rounded up. Without a difference no number of samples would do: the answer is inf.
"""

from math import ceil, inf, sqrt

from scipy import special

from apical.errors import InvalidArgumentError
from apical.stats import pairs


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
    pairs.check_count("n", n, least=1)
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
        float(special.ndtri(1 - pairs.check_share("level", level) / 2)),
        float(special.ndtri(pairs.check_share("power", power))),
    )
