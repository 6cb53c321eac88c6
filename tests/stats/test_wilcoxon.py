"""The signed-rank test against scipy and published examples."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from apical.errors import InvalidArgumentError
from apical.stats import wilcoxon

numbers = st.lists(st.floats(-1e3, 1e3).map(lambda v: round(v, 2)), max_size=80)


def against_zero(differences):
    return wilcoxon(differences, np.zeros(len(differences)))


def test_random_samples_equal_scipy() -> None:
    random = np.random.default_rng(3)
    for _ in range(1000):
        n = int(random.integers(1, 140))
        a, b = random.normal(size=n), random.normal(0.2, size=n)
        found = wilcoxon(a, b)
        method = "exact" if found.method == "exact" else "asymptotic"
        oracle = scipy_stats.wilcoxon(a, b, method=method, correction=False)
        assert found.statistic == pytest.approx(oracle.statistic, rel=1e-12)
        assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-12)


def test_many_ties_and_zeros_equal_scipys_normal_approximation() -> None:
    random = np.random.default_rng(4)
    for _ in range(200):
        a, b = random.integers(0, 6, 300), random.integers(0, 6, 300)
        found = wilcoxon(a, b)
        oracle = scipy_stats.wilcoxon(a, b, zero_method="wilcox", method="asymptotic", correction=False)
        assert found.method == "normal"
        assert found.zeros == int((a == b).sum())
        assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-12)


def test_few_samples_with_ties_are_exact_by_enumeration() -> None:
    random = np.random.default_rng(5)
    for _ in range(50):
        differences = random.integers(-4, 5, 10)
        found = against_zero(differences)
        kept = np.abs(differences[differences != 0])
        ranks = scipy_stats.rankdata(kept)
        sums = np.array([ranks[np.array(signs, dtype=bool)].sum() for signs in product((0, 1), repeat=len(kept))])
        assert found.p_value == pytest.approx(min(1, 2 * (sums <= found.statistic).mean()), rel=1e-12)


def test_depression_example_of_hollander_and_wolfe() -> None:
    """Nonparametric Statistical Methods (1973), p. 29: T+ = 40, one-sided p = 0.0195."""
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    found = wilcoxon(before, after)
    assert found.positive == 40
    assert found.p_value / 2 == pytest.approx(0.01953, abs=5e-6)


def test_darwins_maize() -> None:
    """Darwin's 15 pairs of maize plants, in eighths of an inch (Fisher 1935, The Design of Experiments, chapter 3)."""
    differences = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    found = against_zero(differences)
    assert (found.statistic, found.positive) == (24, 96)
    assert found.p_value == pytest.approx(0.041259765625, rel=1e-12)
    assert found.rank_biserial == pytest.approx((96 - 24) / 120)


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0, 0.0]])
def test_without_differences_nothing_is_shown(values: list[float]) -> None:
    found = against_zero(values)
    assert (found.n, found.zeros, found.p_value, found.rank_biserial) == (0, len(values), 1.0, 0.0)


@given(numbers)
def test_swapping_keeps_p_and_turns_the_effect(values: list[float]) -> None:
    one, other = against_zero(values), wilcoxon(np.zeros(len(values)), values)
    assert 0 <= one.p_value <= 1
    assert one.p_value == other.p_value
    assert one.rank_biserial == -other.rank_biserial
    assert one.positive + one.negative == one.n * (one.n + 1) / 2


def test_faults_are_said_in_a_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match="a has 1 samples and b has 2"):
        wilcoxon([1], [1, 2])
    with pytest.raises(InvalidArgumentError, match=r"b\[1\] is nan"):
        wilcoxon([1, 2], [1, float("nan")])
