"""Decisions between two methods: against scipy and statsmodels, and their long-run error rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from apical import stats
from apical.errors import InvalidArgumentError


def rows(
    random: np.random.Generator, means: list[float], seeds: int = 40, deviation: float = 0.2
) -> dict[str, np.ndarray]:
    """Scores with a seed effect that all rows share."""
    shared = random.normal(0, 0.3, seeds)
    return {f"row {i}": mean + shared + random.normal(0, deviation, seeds) for i, mean in enumerate(means)}


def test_without_a_pool_it_is_the_paired_t_test() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(88.8, 0.2, 40), random.normal(88.7, 0.2, 40)
    decision, paired = stats.decide(a, b, margin=0.2), reference.ttest_rel(a, b)
    interval = paired.confidence_interval(0.95)
    assert decision.p_value == pytest.approx(paired.pvalue)
    assert (decision.low, decision.high) == pytest.approx((interval.low, interval.high))
    assert (decision.seeds, decision.degrees, decision.pooled) == (40, 39, False)


def test_two_pooled_rows_are_the_paired_t_test_too() -> None:
    random = np.random.default_rng(1)
    scores = rows(random, [1.0, 1.1], seeds=12)
    a, b = scores.values()
    together = stats.pool(scores)
    assert together.degrees == 11
    with_pool, alone = stats.decide(a, b, margin=0.2, pooled=together), stats.decide(a, b, margin=0.2)
    assert (with_pool.low, with_pool.high) == pytest.approx((alone.low, alone.high))


def test_the_pool_is_the_residual_of_a_two_way_layout() -> None:
    """Least squares on the indicators of rows and seeds."""
    scores = rows(np.random.default_rng(2), [1.0, 1.1, 0.9, 1.0], seeds=7)
    row, seed = np.repeat(np.arange(4), 7), np.tile(np.arange(7), 4)
    design = np.hstack([np.eye(4)[row], np.eye(7)[seed][:, 1:]])
    _, squares, rank, _ = np.linalg.lstsq(design, np.concatenate(list(scores.values())), rcond=None)
    together = stats.pool(scores)
    assert together.degrees == 28 - rank == 18
    assert together.variance == pytest.approx(squares[0] / 18)


def test_a_row_that_fails_now_and_then_is_not_pooled() -> None:
    scores = rows(np.random.default_rng(3), [1.0, 1.0, 1.0, 1.0])
    scores["rbf"] = scores["row 0"] - np.where(np.arange(40) % 8 == 0, 20.0, 0.0)
    assert stats.pool(scores).rows == ("row 0", "row 1", "row 2", "row 3")


@pytest.mark.parametrize(
    ("gap", "deviation", "verdict"),
    [(0.5, 0.1, "supported"), (-0.5, 0.1, "contradicted"), (0.0, 0.1, "negligible"), (0.0, 3.0, "inconclusive")],
)
def test_the_four_verdicts(gap: float, deviation: float, verdict: str) -> None:
    noise = np.tile([-deviation, deviation], 20)
    assert stats.decide(88.0 + gap + noise, np.full(40, 88.0), margin=0.2).verdict == verdict
    turned = stats.decide(np.full(40, 88.0), 88.0 + gap + noise, margin=0.2, larger_is_better=False)
    assert turned.verdict == verdict


@pytest.mark.parametrize("difference", [0.0, 0.001, 0.7, -0.7])
def test_a_difference_that_is_the_same_for_every_seed_decides_nothing(difference: float) -> None:
    decision = stats.decide(np.arange(5) + difference, np.arange(5.0), margin=1.0)
    assert decision.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("ours", "theirs", "seeds", "verdict"),
    [
        (0, 0, 200, "negligible"),  # at most 1.5 % of all starts solve it
        (0, 0, 2, "inconclusive"),  # two starts say nothing
        (1, 1, 200, "negligible"),
        (1, 0, 200, "supported"),
        (0, 1, 200, "contradicted"),
        (1, 0, 2, "inconclusive"),
    ],
)
def test_starts_that_all_end_alike_have_the_exact_interval_of_a_share(
    ours: float, theirs: float, seeds: int, verdict: str
) -> None:
    decision = stats.decide([ours] * seeds, [theirs] * seeds, margin=0.15, span=1.0)
    bound = reference.binomtest(0, seeds).proportion_ci(confidence_level=0.90).high  # one-sided at 0.95
    assert decision.verdict == verdict
    assert decision.low == pytest.approx(ours - theirs - bound * (1 + ours - theirs))
    assert decision.high == pytest.approx(ours - theirs + bound * (1 - ours + theirs))


def test_errors_come_as_often_as_the_level_says() -> None:
    """5,000 studies without a difference, and with one just as large as the margin."""
    random = np.random.default_rng(4)
    wrong = equal = 0
    for _ in range(5000):
        scores = rows(random, [0.0, 0.0, 0.2, 0.0, 0.0], seeds=10)
        together = stats.pool(scores)
        wrong += stats.decide(scores["row 0"], scores["row 1"], margin=0.2, pooled=together).verdict in (
            "supported",
            "contradicted",
        )
        equal += stats.decide(scores["row 2"], scores["row 1"], margin=0.2, pooled=together).verdict == "negligible"
    assert reference.binomtest(wrong, 5000, 0.05).pvalue > 1e-4
    assert equal / 5000 < 0.05  # at the margin, "negligible" is wrong


def test_a_prediction_interval_holds_the_next_pair() -> None:
    random = np.random.default_rng(5)
    inside = 0
    for _ in range(4000):
        scores = rows(random, [0.0, 0.1, 0.0], seeds=6)
        seed = random.normal(0, 0.3)
        printed = (0.1 + seed + random.normal(0, 0.2)) - (seed + random.normal(0, 0.2))
        decision = stats.decide(scores["row 1"], scores["row 0"], margin=0.2, pooled=stats.pool(scores))
        inside += decision.contains(printed)
    assert reference.binomtest(inside, 4000, 0.95).pvalue > 1e-4


@given(st.integers(0, 2**32 - 1))
def test_turning_a_and_b_around_mirrors_everything(seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = random.random((4, 30)) < 0.8, random.random((4, 30)) < 0.7
    one, other = stats.crossed_bootstrap(a, b, resamples=50), stats.crossed_bootstrap(b, a, resamples=50)
    assert (one.difference, one.low, one.high) == pytest.approx((-other.difference, -other.high, -other.low))
    first, second = a.mean(1), b.mean(1)
    one_t, other_t = stats.decide(first, second, margin=0.1), stats.decide(second, first, margin=0.1)
    assert (one_t.low, one_t.high) == pytest.approx((-other_t.high, -other_t.low))


def test_the_crossed_bootstrap_counts_seeds_and_samples() -> None:
    """Its variance is about that of both factors and their error."""
    random = np.random.default_rng(6)
    d = random.normal(0, 1, (20, 1)) + random.normal(0, 2, (1, 400)) + random.normal(0, 1, (20, 400))
    interval = stats.crossed_bootstrap(d, np.zeros_like(d), resamples=4000)
    expected = 1.96 * np.sqrt(d.mean(1).var() / 20 + d.mean(0).var() / 400)
    assert (interval.high - interval.low) / 2 == pytest.approx(expected, rel=0.08)


def test_seeds_that_show_a_difference() -> None:
    assert stats.seeds_needed(0.12, 0.27) == 40
    assert stats.seeds_needed(0.0, 0.27) == float("inf")
    assert stats.seeds_needed(5.0, 0.1) == 2


def test_what_cannot_be_decided_is_one_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match="1 seeds, but a decision needs at least 2"):
        stats.decide([1.0], [2.0], margin=0.2)
    with pytest.raises(InvalidArgumentError, match="margin is 0, but must be above 0"):
        stats.decide([1.0, 2.0], [2.0, 1.0], margin=0)
    with pytest.raises(InvalidArgumentError, match=r"span is .*, but must be at least the range of the scores"):
        stats.decide([1.0, 3.0], [1.0, 1.0], margin=0.2, span=1.0)
    with pytest.raises(InvalidArgumentError, match="at least two rows of scores with the same"):
        stats.pool({"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]})
    with pytest.raises(InvalidArgumentError, match="seeds x samples"):
        stats.crossed_bootstrap(np.zeros((2, 3)), np.zeros((2, 4)))


def test_sign_flips_are_an_exact_binomial_for_answers() -> None:
    """Ten samples that only a gets right, four that only b does: 2 P(X <= 4) for 14 throws of a coin."""
    a, b = np.array([1] * 10 + [0] * 4 + [1] * 20), np.array([0] * 10 + [1] * 4 + [1] * 20)
    assert stats.sign_flip(a, b) == pytest.approx(reference.binomtest(4, 14).pvalue, abs=0.01)
    assert stats.sign_flip(a, a) == 1
    assert stats.sign_flip(a, b) == stats.sign_flip(b, a)


def test_sign_flips_within_classes_weigh_small_classes() -> None:
    """Six samples of class 1 decide, though a hundred of class 0 are answered alike: all signs equal in 2 of 64."""
    a, b = np.array([1] * 100 + [1] * 6), np.array([1] * 100 + [0] * 6)
    assert stats.sign_flip(a, b, strata=np.array([0] * 100 + [1] * 6)) == pytest.approx(2 / 64, abs=0.005)
    random = np.random.default_rng(8)
    p = [stats.sign_flip(*random.normal(size=(2, 30)), strata=np.arange(30) % 3, resamples=199) for _ in range(300)]
    assert reference.kstest(p, "uniform").pvalue > 1e-3
