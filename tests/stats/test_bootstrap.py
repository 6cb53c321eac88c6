"""Bootstrap intervals: seeded, against the normal theory, against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from apical.errors import InvalidArgumentError
from apical.stats import bootstrap_difference


def test_the_same_seed_gives_the_same_interval() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 500))
    assert bootstrap_difference(a, b, seed=7) == bootstrap_difference(a, b, seed=7)
    assert bootstrap_difference(a, b, seed=7) != bootstrap_difference(a, b, seed=8)


@pytest.mark.parametrize("kind", ["answers", "errors"])
def test_wide_samples_agree_with_the_normal_interval_and_scipy(kind: str) -> None:
    random = np.random.default_rng(1)
    a, b = (random.random((2, 5000)) < 0.8).astype(float) if kind == "answers" else random.normal(size=(2, 5000))
    found = bootstrap_difference(a, b, resamples=20_000)
    error = (a - b).std() / np.sqrt(len(a))
    assert found.difference == pytest.approx((a - b).mean())
    assert (found.low, found.high) == pytest.approx(
        (found.difference - 1.96 * error, found.difference + 1.96 * error), abs=0.05 * error
    )
    oracle = scipy_stats.bootstrap((a - b,), np.mean, method="percentile", n_resamples=2000, rng=random)
    assert oracle.confidence_interval.low == pytest.approx(found.low, abs=0.2 * error)
    assert oracle.confidence_interval.high == pytest.approx(found.high, abs=0.2 * error)


def test_counting_and_gathering_draw_from_the_same_distribution() -> None:
    random = np.random.default_rng(2)
    a, b = random.integers(0, 2, (2, 400)).astype(float)
    jitter = 1e-9 * np.arange(400)  # many distinct values: drawn sample by sample
    counted, gathered = bootstrap_difference(a, b), bootstrap_difference(a + jitter, b)
    assert (counted.low, counted.high) == pytest.approx((gathered.low, gathered.high), abs=0.004)


def test_strata_give_the_difference_of_weighted_accuracies() -> None:
    classes = np.array([0] * 90 + [1] * 10)
    a = np.concatenate([np.ones(90), np.zeros(10)])  # recalls 1 and 0
    b = np.concatenate([np.zeros(90), np.ones(10)])
    found = bootstrap_difference(a, b, strata=classes)
    assert (found.difference, found.low, found.high) == (0.0, 0.0, 0.0)
    assert bootstrap_difference(a, b).difference == pytest.approx(0.8)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.floats(-2, 2)), min_size=1, max_size=30), st.booleans())
def test_swapping_a_and_b_mirrors_the_interval(samples: list[tuple[float, float]], by_class: bool) -> None:
    a, b = np.array(samples).T
    for second in (b, np.round(b)):  # many values, few values: two ways of drawing
        strata = np.arange(len(a)) % 2 if by_class else None
        one = bootstrap_difference(a, second, resamples=60, strata=strata)
        other = bootstrap_difference(second, a, resamples=60, strata=strata)
        assert (one.difference, one.low, one.high) == (-other.difference, -other.high, -other.low)


def test_coverage_is_near_its_level() -> None:
    random = np.random.default_rng(6)
    inside = 0
    for seed in range(400):
        d = random.choice([-1.0, 0.0, 1.0], p=[0.05, 0.85, 0.1], size=400)
        found = bootstrap_difference(d, np.zeros(400), resamples=1000, seed=seed)
        inside += found.low <= 0.05 <= found.high
    assert 0.92 <= inside / 400 <= 0.98


def test_faults_are_said_in_a_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match="empty"):
        bootstrap_difference([], [])
    with pytest.raises(InvalidArgumentError, match="level is 95"):
        bootstrap_difference([1], [2], level=95)
    with pytest.raises(InvalidArgumentError, match="resamples is 0"):
        bootstrap_difference([1], [2], resamples=0)
