"""Sample sizes against the exact power of the tests that they plan."""

from math import inf, isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from apical.errors import InvalidArgumentError
from apical.stats import mcnemar_power, mcnemar_sample_size, wilcoxon, wilcoxon_sample_size

shares = st.floats(0.001, 0.3)


def exact_power(n: int, only_a: float, only_b: float, level: float = 0.05) -> float:
    """Sum over all counts of discordant samples and their halves of the probability that chi-square rejects."""
    critical = scipy_stats.chi2.isf(level, 1)
    total = 0.0
    for m in range(1, n + 1):
        b = np.arange(m + 1)
        rejected = (2 * b - m) ** 2 / m > critical
        chance = scipy_stats.binom.pmf(b, m, only_a / (only_a + only_b))
        total += scipy_stats.binom.pmf(m, n, only_a + only_b) * chance[rejected].sum()
    return float(total)


@pytest.mark.parametrize(("a", "b"), [(0.2, 0.05), (0.12, 0.06), (0.3, 0.15)])
@pytest.mark.parametrize("power", [0.8, 0.9])
def test_the_planned_number_has_the_asked_power(a: float, b: float, power: float) -> None:
    n = int(mcnemar_sample_size(a, b, power=power))
    assert exact_power(n, a, b) == pytest.approx(power, abs=0.04)  # a normal approximation: 85 samples give 0.835
    assert mcnemar_power(n, a, b) >= power
    assert mcnemar_power(n - 1, a, b) < power


def test_a_difference_of_one_tenth_of_a_percent_needs_half_a_million_images() -> None:
    """88.98 against 88.88 on 10,000 images with 6 % discordant: such a table cannot show it."""
    n = mcnemar_sample_size(0.0305, 0.0295)
    assert n == pytest.approx((1.959964 + 0.841621) ** 2 * 0.06 / 0.001**2, rel=1e-3)
    assert mcnemar_power(10_000, 0.0305, 0.0295) < 0.1


def test_planned_wilcoxon_rejects_as_often_as_asked() -> None:
    random = np.random.default_rng(11)
    shift = 0.3
    p_prime = float(scipy_stats.norm.cdf(shift * np.sqrt(2)))  # P(X + X' > 0)
    n = int(wilcoxon_sample_size(2 * p_prime - 1, power=0.8))
    rejected = [wilcoxon(random.normal(shift, 1, n), np.zeros(n)).p_value <= 0.05 for _ in range(2000)]
    assert np.mean(rejected) == pytest.approx(0.8, abs=0.05)


@given(shares, shares)
def test_more_power_or_a_smaller_difference_needs_more_samples(a: float, b: float) -> None:
    n = mcnemar_sample_size(a, b)
    assert n <= mcnemar_sample_size(a, b, power=0.95)
    assert n == mcnemar_sample_size(b, a)
    if n < inf and isqrt(int(n)) < 10**6:
        assert mcnemar_power(int(n), a, b) >= 0.8 - 1e-9


def test_without_a_difference_no_number_of_samples_would_do() -> None:
    assert mcnemar_sample_size(0.1, 0.1) == mcnemar_sample_size(0, 0) == wilcoxon_sample_size(0) == inf
    assert mcnemar_power(100, 0, 0) == 0.0
    assert mcnemar_power(100, 1.0, 0.0) == 1.0


def test_faults_are_said_in_a_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match="sum to at most 1"):
        mcnemar_sample_size(0.8, 0.4)
    with pytest.raises(InvalidArgumentError, match="rank_biserial is 2"):
        wilcoxon_sample_size(2)
    with pytest.raises(InvalidArgumentError, match="power is 1"):
        mcnemar_sample_size(0.1, 0.2, power=1)
