"""Comparisons of rows: over seeds, and of the best trials on the same samples."""

from dataclasses import replace

import numpy as np
import pytest

from apical import stats
from apical.report.comparison import AnswerBook, Beside, Evidence, compare, fingerprint, in_words, turned
from apical.train.metrics import find


def made(fashion, metric: str = "accuracy", a: str = "mlp-1/ada", b: str = "mlp-1/relu"):
    return compare(fashion.row(a), fashion.row(b), find(metric), AnswerBook())


def test_the_test_is_that_of_the_statistics_on_the_stored_answers(fashion) -> None:
    a, b = fashion.row("mlp-1/ada"), fashion.row("mlp-1/relu")
    test = made(fashion).test
    right = [r.best.outputs().outputs.argmax(1) == r.best.outputs().labels for r in (a, b)]
    assert test.p_value == stats.mcnemar(*right, method="exact").p_value
    assert test.p_paper == stats.mcnemar(*right, method="chi2").p_value
    assert test.difference == pytest.approx(a.best.test["accuracy"] - b.best.test["accuracy"])
    assert test.low < test.difference < test.high
    assert (test.n, test.trials) == (1500, (a.best.digest, b.best.digest))


def test_without_rows_to_pool_the_decision_is_the_paired_t_test(fashion) -> None:
    scores = [fashion.row(key).tests("accuracy") for key in ("mlp-1/ada", "mlp-1/relu")]
    assert made(fashion).decision == stats.decide(*scores, margin=0.002)


def test_the_bootstrap_beside_it_has_all_trials_and_samples(fashion) -> None:
    tables = [
        np.array([t.outputs().outputs.argmax(1) == t.outputs().labels for t in fashion.row(key).trials])
        for key in ("mlp-1/ada", "mlp-1/relu")
    ]
    own, expected = made(fashion).crossed, stats.crossed_bootstrap(*tables)
    assert (own.difference, own.low, own.high) == pytest.approx((expected.difference, expected.low, expected.high))


@pytest.mark.parametrize("metric", ["accuracy", "weighted-accuracy", "top-5", "cross-entropy"])
def test_every_metric_agrees_with_the_trials_scores(fashion, metric: str) -> None:
    comparison, rows = made(fashion, metric), [fashion.row(key) for key in ("mlp-1/ada", "mlp-1/relu")]
    best = [row.best.test[metric] for row in rows]
    means = [np.mean([t.test[metric] for t in row.trials]) for row in rows]
    sign = 1 if find(metric).larger_is_better else -1
    assert comparison.test.difference == pytest.approx(best[0] - best[1], abs=1e-6)
    assert comparison.decision.difference == pytest.approx(sign * (means[0] - means[1]), abs=1e-6)
    assert comparison.crossed.difference == pytest.approx(comparison.decision.difference, abs=1e-6)


def test_mean_recall_is_tested_by_sign_flips_and_losses_by_the_bootstrap(fashion) -> None:
    assert made(fashion, "weighted-accuracy").test.test == "McNemar, sign flip"
    losses = made(fashion, "cross-entropy").test
    assert (losses.test, losses.p_value < 0.001) == ("bootstrap", True)


def test_rows_without_tests_are_not_compared(fashion) -> None:
    bare = replace(fashion.row("mlp-1/ada"), best=None, trials=())
    comparison = compare(bare, fashion.row("mlp-1/relu"), find("accuracy"), AnswerBook())
    assert (comparison.decision, comparison.test, comparison.verdict) == (None, None, "not run")


def test_different_samples_are_said_and_left_out(fashion, tmp_path) -> None:
    a, b = fashion.row("mlp-1/ada"), fashion.row("mlp-1/relu")
    arrays = b.best.outputs()._asdict()
    np.savez(tmp_path / "test.npz", **{name: array[:-1] for name, array in arrays.items()})
    book = AnswerBook()
    moved = replace(b, best=replace(b.best, directory=tmp_path, digest="other"))
    assert compare(a, moved, find("accuracy"), book).test is None
    assert "tested on different samples" in book.faults[0]


def test_damaged_answers_are_said_and_left_out(fashion, tmp_path) -> None:
    a, b = fashion.row("mlp-1/ada"), fashion.row("mlp-1/relu")
    (tmp_path / "test.npz").write_bytes(b"no archive")
    book = AnswerBook()
    moved = replace(b, best=replace(b.best, directory=tmp_path, digest="other"))
    assert compare(a, moved, find("accuracy"), book).test is None
    assert "missing or damaged" in book.faults[0]


@pytest.mark.parametrize("metric", ["accuracy", "cross-entropy"])
def test_a_pair_is_one_whichever_way_round_it_is_asked_for(fashion, metric: str) -> None:
    a, b = ("table-fashion-mlp", "mlp-1/ada"), ("table-fashion-mlp", "mlp-1/relu")
    evidence = Evidence([fashion])
    one, other = evidence.get(a, b, metric), evidence.get(b, a, metric)
    assert other == turned(one)
    assert turned(other) == one
    fresh = Evidence([fashion]).get(b, a, metric)
    assert (fresh.verdict, other.verdict) == ("contradicted", "contradicted")
    for name in ("low", "high", "next_low", "next_high"):
        assert getattr(fresh.decision, name) == pytest.approx(getattr(other.decision, name))
    assert (fresh.test.low, fresh.test.high) == pytest.approx((other.test.low, other.test.high))
    assert (fresh.crossed.low, fresh.crossed.high) == pytest.approx((other.crossed.low, other.crossed.high))
    assert len(evidence.of("table-fashion-mlp")) == 1


def test_words_say_whom_the_papers_test_favours(fashion) -> None:
    a, b = fashion.row("mlp-1/ada"), fashion.row("mlp-1/relu")
    better = compare(a, b, find("accuracy"), AnswerBook())
    assert in_words(better).endswith(", ‡")
    assert in_words(turned(better)).endswith(", no mark, but ‡ for the other")
    recall = compare(a, b, find("weighted-accuracy"), AnswerBook())
    assert "sign flip p = " in in_words(recall)


def test_two_studies_of_one_name_are_told_apart(fashion) -> None:
    assert list(Evidence([fashion, fashion]).studies) == ["table-fashion-mlp", "table-fashion-mlp (2)"]


def test_what_answers_told_is_kept_without_them(fashion) -> None:
    a, b = ("table-fashion-mlp", "mlp-1/ada"), ("table-fashion-mlp", "mlp-1/relu")
    whole = Evidence([fashion]).get(a, b, "accuracy")
    assert whole.test is not None
    assert whole.crossed is not None
    rows = tuple(
        replace(
            row,
            best=row.best and replace(row.best, directory=None),
            trials=tuple(replace(t, directory=None) for t in reversed(row.trials)),
        )
        for row in fashion.rows
    )
    blind = replace(fashion, rows=rows)
    assert Evidence([blind]).get(a, b, "accuracy").test is None
    kept = {fingerprint(whole): Beside(whole.crossed, whole.test)}
    found = Evidence([blind], beside=kept).get(a, b, "accuracy")
    assert (found.test, found.crossed, found.mark) == (whole.test, whole.crossed, whole.mark)
    assert Evidence([blind], beside=kept).get(b, a, "accuracy").test is None, "of this pair, not of its opposite"
    other = replace(blind, rows=tuple(replace(row, trials=row.trials[1:]) for row in rows))
    assert Evidence([other], beside=kept).get(a, b, "accuracy").test is None, "and of these trials"
