"""Comparisons of rows: on the same samples, adjusted together, or not at all."""

from dataclasses import replace

import numpy as np
import pytest

from apical import stats
from apical.report.comparison import AnswerBook, Evidence, adjusted, compare, turned
from apical.train.metrics import find


def test_a_comparison_is_that_of_the_statistics_on_the_stored_answers(fashion) -> None:
    a, b = fashion.row("mlp-1/ada"), fashion.row("mlp-1/relu")
    found = compare(a, b, find("accuracy"), AnswerBook())
    right = [r.best.outputs().outputs.argmax(1) == r.best.outputs().labels for r in (a, b)]
    assert found.p_value == stats.mcnemar(*right, method="exact").p_value
    assert found.p_paper == stats.mcnemar(*right, method="chi2").p_value
    assert found.difference == pytest.approx(a.best.test["accuracy"] - b.best.test["accuracy"])
    assert found.low < found.difference < found.high
    assert found.n == 1500
    assert found.trials == (a.best.digest, b.best.digest)
    seeds = [x.test["accuracy"] - y.test["accuracy"] for x, y in zip(a.trials, b.trials, strict=True)]
    assert found.over_trials.mean == pytest.approx(np.mean(seeds))


@pytest.mark.parametrize("metric", ["accuracy", "weighted-accuracy", "top-5", "cross-entropy"])
def test_every_metric_agrees_with_the_trials_scores(fashion, metric: str) -> None:
    found = compare(fashion.row("mlp-1/ada"), fashion.row("mlp-1/relu"), find(metric), AnswerBook())
    scores = [fashion.row(key).best.test[metric] for key in ("mlp-1/ada", "mlp-1/relu")]
    assert found.difference == pytest.approx(scores[0] - scores[1], abs=1e-6)


def test_rows_without_tests_are_not_compared(fashion) -> None:
    bare = replace(fashion.row("mlp-1/ada"), best=None)
    assert compare(bare, fashion.row("mlp-1/relu"), find("accuracy"), AnswerBook()) is None
    assert compare(fashion.row("mlp-1/ada"), fashion.row("mlp-1/relu"), find("seconds"), AnswerBook()) is None


def test_different_samples_are_said_and_left_out(fashion, tmp_path) -> None:
    a, b = fashion.row("mlp-1/ada"), fashion.row("mlp-1/relu")
    arrays = b.best.outputs()._asdict()
    np.savez(tmp_path / "test.npz", **{name: array[:-1] for name, array in arrays.items()})
    book = AnswerBook()
    assert (
        compare(a, replace(b, best=replace(b.best, directory=tmp_path, digest="other")), find("accuracy"), book) is None
    )
    assert "tested on different samples" in book.faults[0]


def test_damaged_answers_are_said_and_left_out(fashion, tmp_path) -> None:
    a, b = fashion.row("mlp-1/ada"), fashion.row("mlp-1/relu")
    (tmp_path / "test.npz").write_bytes(b"no archive")
    book = AnswerBook()
    assert (
        compare(a, replace(b, best=replace(b.best, directory=tmp_path, digest="other")), find("accuracy"), book) is None
    )
    assert "missing or damaged" in book.faults[0]


def test_each_pair_counts_once_in_holms_adjustment(fashion) -> None:
    book = AnswerBook()
    pairs = [("mlp-1/ada", "mlp-1/relu"), ("mlp-1/relu", "mlp-1/ada"), ("mlp-1/rbf", "mlp-1/swish")]
    found = adjusted(compare(fashion.row(a), fashion.row(b), find("accuracy"), book) for a, b in pairs)
    assert [c.p_holm for c in found] == [
        stats.holm([found[0].p_value, found[2].p_value])[0],
        found[0].p_holm,
        stats.holm([found[0].p_value, found[2].p_value])[1],
    ]


def test_a_pair_is_found_whichever_way_round_it_was_made(fashion) -> None:
    evidence = Evidence([fashion])
    a, b = ("table-fashion-mlp", "mlp-1/ada"), ("table-fashion-mlp", "mlp-1/relu")
    evidence.make([(a, b, "accuracy")])
    one, other = evidence.get(a, b, "accuracy"), evidence.get(b, a, "accuracy")
    assert other.difference == -one.difference
    assert (other.low, other.high) == (-one.high, -one.low)
    assert (one.shown, other.shown) == (1, -1)
    assert turned(turned(one)) == one


def test_two_studies_of_one_name_are_told_apart(fashion) -> None:
    assert list(Evidence([fashion, fashion]).studies) == ["table-fashion-mlp", "table-fashion-mlp (2)"]
