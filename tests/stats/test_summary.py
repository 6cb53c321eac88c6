"""Means, deviations, intervals and Holm's adjustment against scipy and statsmodels."""

import gc
from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from apical.errors import InvalidArgumentError
from apical.stats import holm, summarise, wilson


def test_random_trials_equal_scipy() -> None:
    random = np.random.default_rng(9)
    for _ in range(1000):
        values = random.normal(0.89, 0.01, int(random.integers(2, 12)))
        found = summarise(values, level=0.9)
        oracle = scipy_stats.t.interval(0.9, len(values) - 1, values.mean(), scipy_stats.sem(values))
        assert (found.low, found.high) == pytest.approx(oracle, rel=1e-12)
        assert (found.mean, found.deviation) == pytest.approx((values.mean(), values.std(ddof=1)), rel=1e-12)


def test_one_trial_has_a_mean_alone_and_none_has_nothing() -> None:
    one, none = summarise([0.5]), summarise([])
    assert (one.n, one.mean) == (1, 0.5)
    assert all(map(isnan, (one.deviation, one.low, one.high, none.mean, none.deviation, none.low, none.high)))


def test_equal_trials_have_no_deviation() -> None:
    found = summarise([0.25] * 5)
    assert (found.mean, found.deviation, found.low, found.high) == (0.25, 0.0, 0.25, 0.25)


def test_random_p_values_equal_statsmodels(monkeypatch) -> None:
    monkeypatch.setattr(gc, "collect", int)  # which statsmodels calls each time, for 0.1 s beside torch
    random = np.random.default_rng(10)
    for _ in range(1000):
        p = random.random(int(random.integers(1, 30))) ** 3
        assert holm(p) == pytest.approx(multipletests(p, method="holm")[1], rel=1e-12)


def test_example_of_four_hypotheses() -> None:
    """The step-down procedure of Holm (1979) on 0.01, 0.04, 0.03, 0.005: 0.005 * 4, 0.01 * 3, 0.03 * 2, then kept."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_tests_that_were_not_made_are_not_counted() -> None:
    adjusted = holm([0.01, nan, 0.02])
    assert isnan(adjusted[1])
    assert [adjusted[0], adjusted[2]] == holm([0.01, 0.02]) == [0.02, 0.02]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=30))
def test_adjustment_keeps_the_order_and_never_helps(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(raw <= new <= 1 for raw, new in zip(p, adjusted, strict=True))
    by_raw = [new for _, new in sorted(zip(p, adjusted, strict=True))]
    assert by_raw == sorted(by_raw)


def test_faults_are_said_in_a_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match="between 0 and 1"):
        holm([0.5, 1.5])
    with pytest.raises(InvalidArgumentError, match=r"values\[0\] is inf"):
        summarise([float("inf")])


def test_intervals_of_shares_equal_statsmodels() -> None:
    random = np.random.default_rng(11)
    for _ in range(1000):
        n = int(random.integers(1, 500))
        count = int(random.integers(0, n + 1))
        oracle = proportion_confint(count, n, alpha=0.1, method="wilson")
        assert wilson(count, n, level=0.9) == pytest.approx(oracle, abs=1e-12)


@pytest.mark.parametrize(("count", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_a_share_of_nothing_is_an_error(count: int, n: int) -> None:
    with pytest.raises(InvalidArgumentError, match="n must be at least 1"):
        wilson(count, n)
