"""A metric and a loss of one's own, from outside the package, in one file."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from apical.errors import InvalidArgumentError, TrainingError
from apical.train import (
    Execution,
    TestResult,
    TrialSpec,
    evaluate,
    losses,
    metrics,
    register_loss,
    register_metric,
    run,
    run_many,
)

ONE_THREAD = Execution(threads=1)
MLP = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 16}, epochs=2, batch=128, learning_rate=0.01)
CURVE = TrialSpec.paper("sin", "mlp-approx", epochs=2, passes=5)


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    for module in (metrics, losses):
        monkeypatch.setattr(module, "_REGISTERED", {})


def doubt(log_probabilities, labels):
    """The mean entropy of the answers."""
    return float(-(log_probabilities.exp() * log_probabilities).sum(1).mean())


def smooth(outputs, labels):
    return torch.nn.functional.cross_entropy(outputs, labels, label_smoothing=0.1)


def smooth_gradients(outputs, labels):
    classes = outputs.shape[1]
    wanted = torch.nn.functional.one_hot(labels, classes).to(outputs.dtype).t() * 0.9 + 0.1 / classes
    log = outputs.log_softmax(1)
    return -(wanted * log).sum(1).mean(1), (log.exp() - wanted) / len(labels)


def test_a_metric_of_ones_own_is_recorded_chosen_by_and_evaluated(tmp_path):
    register_metric("doubt", compute=doubt, larger_is_better=False, title="mean entropy", unit="nats")
    spec = replace(MLP, metric="doubt", epochs=3)
    result = run(spec, ONE_THREAD, tmp_path / "alone")
    values = [entry["validation"]["doubt"] for entry in result.history]
    assert result.best_epoch == 1 + values.index(min(values))
    test = evaluate(result)
    p = np.exp(test.outputs.astype(np.float64))
    assert test.scores["doubt"] == pytest.approx(-(p * test.outputs).sum(1).mean(), rel=1e-5)
    assert TestResult.load(result.directory).scores == test.scores
    specs = [replace(spec, unit=u) for u in ("ada", "relu")]
    stacked = run_many(specs, ONE_THREAD, [tmp_path / u for u in ("ada", "relu")])
    assert [r.execution.stacking for r in stacked] == ["stacked(2, 1)", "stacked(2, 2)"]
    assert stacked[1].history[0]["validation"]["doubt"] == pytest.approx(values[0], rel=1e-3)


def test_what_tables_ask_of_a_metric_has_sensible_defaults():
    register_metric("doubt", compute=doubt, larger_is_better=False, title="mean entropy", unit="nats")
    metric = metrics.find("doubt")
    assert (metric.heading, metric.format, metric.by_trial) == ("mean entropy (nats)", ".4g", True)
    register_metric("share", compute=doubt, larger_is_better=True, percent=True, per_sample=lambda o, y: o[:, 0])
    metric = metrics.find("share")
    assert (metric.heading, metric.format, metric.by_trial) == ("share (%)", ".2f", False)
    assert metrics.names("classification")[-2:] == ("doubt", "share")
    assert "doubt" not in metrics.scores(torch.zeros(2, 1), torch.zeros(2, 1), task="regression")


def test_a_loss_without_a_gradient_by_hand_is_trained_alone(tmp_path):
    register_loss("smooth", compute=smooth)
    specs = [replace(MLP, unit=u, loss="smooth") for u in ("ada", "relu")]
    with pytest.warns(UserWarning, match="loss 'smooth' has no gradient by hand"):
        results = run_many(specs, ONE_THREAD, [tmp_path / "a", tmp_path / "b"])
    assert [r.execution.stacking for r in results] == ["alone", "alone"]
    assert results[0].history[-1]["loss"] < results[0].history[0]["loss"]
    assert evaluate(results[0]).scores["accuracy"] > 0.3


def test_a_loss_with_a_gradient_by_hand_is_stacked(tmp_path):
    register_loss("smooth", compute=smooth, gradient_of_each=smooth_gradients)
    specs = [replace(MLP, unit=u, loss="smooth") for u in ("ada", "relu")]
    stacked = run_many(specs, ONE_THREAD, [tmp_path / "a", tmp_path / "b"])
    assert [r.execution.stacking for r in stacked] == ["stacked(2, 1)", "stacked(2, 2)"]
    alone = run(specs[0], ONE_THREAD, tmp_path / "alone")
    for one, other in zip(stacked[0].history, alone.history, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
        assert one["validation"]["loss"] == pytest.approx(other["validation"]["loss"], rel=1e-3)


def test_a_loss_of_a_regression_says_what_its_outputs_mean(tmp_path):
    def log_cosh(outputs, targets):
        return (outputs.reshape(targets.shape) - targets).cosh().log().mean()

    register_loss("log-cosh", compute=log_cosh, task="regression")
    result = run(replace(CURVE, loss="log-cosh"), ONE_THREAD, tmp_path / "curve")
    assert set(result.validation) == {"mae", "mse", "loss"}
    with pytest.raises(TrainingError, match="digits is a classification task: use cross-entropy or binary"):
        run(replace(MLP, loss="log-cosh"), ONE_THREAD, tmp_path / "digits")


@pytest.mark.parametrize("register", [register_metric, register_loss])
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "mse"}, "there is a (metric|loss) 'mse' already"),
        ({"name": "my own"}, "'my own' cannot name a (metric|loss)"),
        ({"task": "ranking"}, "task='ranking'"),
        ({"compute": "f"}, "compute='f'"),
        ({"titel": "f"}, "unknown setting of (metric|loss) 'own': 'titel'"),
    ],
)
def test_what_cannot_be_meant_is_refused(register, change, sentence):
    call = {"name": "own", "compute": doubt} | ({"larger_is_better": True} if register is register_metric else {})
    with pytest.raises(InvalidArgumentError, match=sentence):
        register(**call | change)


def test_descriptors_and_specs_are_read_without_torch():
    code = """
        import sys
        from apical.train import TrialSpec, losses, metrics, register_metric
        assert metrics.find("accuracy").percent and losses.find("l1").task == "regression"
        register_metric("own", compute=max, larger_is_better=True)
        TrialSpec(data="digits", model="mlp-1", metric="own").digest
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", "\n".join(line.strip() for line in code.splitlines())], check=True)
