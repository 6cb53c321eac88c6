import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as oracle

from apical.train import losses, metrics

shapes = st.tuples(st.integers(1, 200), st.integers(2, 12), st.integers(0, 10**6))


def draw(n, classes, seed):
    random = np.random.default_rng(seed)
    logits = random.normal(size=(n, classes)) * 3
    return losses.log_probabilities(torch.from_numpy(logits).float()), torch.from_numpy(random.integers(0, classes, n))


@given(shapes)
def test_classification_metrics_equal_scikit_learn(shape):
    n, classes, seed = shape
    logp, labels = draw(n, classes, seed)
    found = metrics.scores(logp, labels, task="classification")
    guess, all_labels, p = logp.argmax(1).numpy(), np.arange(classes), logp.double().exp().numpy()
    p /= p.sum(1, keepdims=True)
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(labels, guess), abs=1e-12)
    present = np.unique(labels)
    recalls = oracle.recall_score(labels, guess, labels=present, average="macro", zero_division=0)
    assert found["weighted-accuracy"] == pytest.approx(recalls, abs=1e-12)
    assert found["cross-entropy"] == pytest.approx(oracle.log_loss(labels, p, labels=all_labels), rel=1e-5, abs=1e-6)
    if classes > 5:
        top = oracle.top_k_accuracy_score(labels, p, k=5, labels=all_labels)
        assert found["top-5"] == pytest.approx(top, abs=1e-12)
    else:
        assert found["top-5"] == 1.0


@given(st.integers(1, 100), st.integers(0, 10**6))
def test_regression_metrics_equal_scikit_learn(n, seed):
    random = np.random.default_rng(seed)
    predictions, targets = (torch.from_numpy(random.normal(size=n).astype(np.float32)) for _ in range(2))
    found = metrics.scores(predictions[:, None], targets, task="regression")
    assert found["mae"] == pytest.approx(oracle.mean_absolute_error(targets, predictions), rel=1e-6)
    assert found["mse"] == pytest.approx(oracle.mean_squared_error(targets, predictions), rel=1e-6)
    assert found["psnr"] == pytest.approx(-10 * np.log10(found["mse"]), rel=1e-9)


def test_the_psnr_of_an_error_of_a_tenth_is_20_decibels():
    targets = torch.rand(50, 3, generator=torch.Generator().manual_seed(0))
    outputs = torch.stack([targets + 0.1, targets - 0.01, targets])
    found = [values["psnr"] for values in metrics.scores_of_each(outputs, targets, task="regression")]
    assert found == pytest.approx([20.0, 40.0, 200.0], abs=1e-3)  # equal values count as an error of 1e-20
    assert [metrics.psnr(own, targets) for own in outputs] == pytest.approx(found)
    assert metrics.find("psnr").better(21.0, 20.0)


def test_better_knows_which_way_a_metric_goes_and_keeps_the_earliest_of_equals():
    assert metrics.find("accuracy").better(0.2, 0.1)
    assert not metrics.find("accuracy").better(0.2, 0.2)
    assert metrics.find("mae").better(0.1, 0.2)
    assert not metrics.find("mae").better(0.2, 0.2)
    assert not metrics.find("mae").better(float("nan"), None)
    assert not metrics.find("accuracy").better(float("nan"), 0.1)


def test_binary_of_two_outputs_is_the_mean_over_both_softmax_outputs():
    outputs, labels = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    p = outputs.double().softmax(1)
    hot = torch.nn.functional.one_hot(labels, 2).double()
    keras_like = torch.nn.functional.binary_cross_entropy(p, hot)
    assert float(losses.binary(outputs, labels)) == pytest.approx(float(keras_like), rel=1e-6)


def test_binary_of_one_logit_agrees_with_its_log_probabilities():
    logits, labels = torch.randn(20, 1, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2
    logp = losses.log_probabilities(logits)
    assert torch.allclose(logp.exp().sum(1), torch.ones(20))
    assert float(losses.binary(logits, labels)) == pytest.approx(metrics.cross_entropy(logp, labels), rel=1e-6)


def test_squared_answers_by_rounding_its_one_output():
    outputs = torch.tensor([[-3.0], [0.2], [0.5], [0.6], [7.0]])
    labels = torch.tensor([0, 0, 0, 1, 1])
    answers = losses.find("squared").answer(outputs)
    assert answers.exp().sum(1).tolist() == pytest.approx([1.0] * 5)
    assert metrics.accuracy(answers, labels) == 1.0
    assert float(losses.squared(outputs, labels)) == pytest.approx((9 + 0.04 + 0.25 + 0.16 + 36) / 5)
