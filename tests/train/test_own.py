"""A metric and a loss of one's own, from outside the package, in one file."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from apical import models
from apical.errors import InvalidArgumentError, TrainingError
from apical.nn import kinds, register_unit
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
    for module in (metrics, losses, kinds, models.registry):
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
    with pytest.warns(UserWarning, match="loss 'smooth' has no gradient_of_each"):
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
    assert set(result.validation) == {"mae", "mse", "psnr", "loss"}
    with pytest.raises(TrainingError, match="digits is a classification task: use cross-entropy or binary"):
        run(replace(MLP, loss="log-cosh"), ONE_THREAD, tmp_path / "digits")


class Bump(torch.nn.Module):
    """A module of one's own that says nothing about its width."""

    def __init__(self, width=1.0):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.exp(-((x / self.width) ** 2))


class OwnConv(torch.nn.Module):
    """Convolutions without pooling; `times` makes it another network than its children one after the other."""

    def __init__(self, unit, *, times=1.0, dropout=False, outputs=10):
        super().__init__()
        layers = unit.layers()
        self.first, self.second = layers.conv(2, 1, 3, 3), layers.conv(2, 3, 4, 3, stride=2)
        if dropout:
            self.dropout = torch.nn.Dropout()
        self.head, self.times = torch.nn.Linear(16, outputs), times

    def forward(self, x):
        return self.times * self.head(self.second(self.first(x)).flatten(1))


def stacked_and_alone(tmp_path, specs):
    stacked = run_many(specs, ONE_THREAD, [tmp_path / f"stacked{i}" for i in range(len(specs))])
    assert all(r.execution.stacking.startswith(f"stacked({len(specs)}, ") for r in stacked)
    for i, result in enumerate(stacked):
        alone = run(specs[i], ONE_THREAD, tmp_path / f"alone{i}")
        one, other = result.history[0], alone.history[0]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
        assert one["learned"] == pytest.approx(other["learned"], rel=1e-2)
        for what, values in one["dynamics"].items():
            assert values == pytest.approx(other["dynamics"][what], rel=1e-2, abs=1e-3)


def test_kinds_of_ones_own_are_stacked_where_they_say_so(tmp_path):
    def wave(x, width, height):
        return height * torch.sin(x / width)

    register_unit("wave", function=wave, parameters={"width": 1.0, "height": 1.0}, stack=True)
    register_unit("bump", activation=Bump, parameters={"width": 1.0}, stack=True)
    units = ("wave(height=learn)", "wave(width=2)", "wave(width=learn,height=learn,scope=channel)", "bump",
             "bump(width=2)")  # fmt: skip
    stacked_and_alone(tmp_path, [replace(MLP, unit=u) for u in units])


def test_branches_of_ones_own_are_stacked(tmp_path):
    register_unit("bump", activation=Bump, parameters={"width": 1.0}, stack=True)
    register_unit("pynbump", basal="relu", apical="bump")
    stacked_and_alone(tmp_path, [replace(MLP, unit=u) for u in ("pynbump(width=2)", "pynada", "pynbump")])


def test_a_module_that_learns_by_itself_cannot_be_stacked(tmp_path):
    register_unit("own_prelu", activation=torch.nn.PReLU, stack=True)
    specs = [replace(MLP, unit=u) for u in ("own_prelu", "relu")]
    with pytest.raises(TrainingError, match="PReLU learns parameters that a stack cannot tell apart"):
        run_many(specs, ONE_THREAD, [tmp_path / "a", tmp_path / "b"])


def test_a_network_of_ones_own_is_stacked_where_it_says_so(tmp_path):
    models.register("own-conv", OwnConv, stacks=True)
    stacked_and_alone(tmp_path, [replace(MLP, model="own-conv", dims={}, unit=u) for u in ("ada", "relu")])


@pytest.mark.parametrize(
    ("dims", "sentence"),
    [({"times": 2.0}, "gives other values than the trial alone"), ({"dropout": True}, "layer 'dropout' cannot be")],
)
def test_a_network_that_stacks_otherwise_than_it_says_is_refused(dims, sentence, tmp_path):
    models.register("own-conv", OwnConv, stacks=True)
    specs = [replace(MLP, model="own-conv", dims=dims, unit=u) for u in ("ada", "relu")]
    with pytest.raises(TrainingError, match=sentence):
        run_many(specs, ONE_THREAD, [tmp_path / "a", tmp_path / "b"])


def test_a_gradient_by_hand_that_is_not_that_of_the_loss_is_refused(tmp_path):
    def wrong(outputs, labels):
        own, gradient = smooth_gradients(outputs, labels)
        return own, 1.01 * gradient

    register_loss("smooth", compute=smooth, gradient_of_each=wrong)
    specs = [replace(MLP, loss="smooth", unit=u) for u in ("ada", "relu")]
    with pytest.raises(TrainingError, match="gradient of the loss"):
        run_many(specs, ONE_THREAD, [tmp_path / "a", tmp_path / "b"])


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


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"format": "%.3f"}, "format of metric 'own' is '%.3f', but must be what Python's format.* such as '.3f'"),
        ({"format": 3}, "format of metric 'own' is 3"),
        ({"per_sample": lambda o, y: o.argmax(1) == y}, r"'own' must return a float .* returns a bool array \(4,\)"),
        ({"per_sample": lambda o, y: 1 - o}, r"returns a float32 array \(4, 3\)"),
        ({"per_sample": lambda o, y: 0.5}, "for 4 samples it returns a float"),
        ({"per_sample": lambda o: o[:, 0]}, "for 4 samples it raises TypeError: .* takes 1 positional argument"),
        ({"per_sample": lambda o, y: o - y[:, None, None], "task": "regression"}, "metric 'own' must return"),
    ],
)
def test_a_metric_is_checked_when_it_is_registered(facts, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        register_metric("own", compute=doubt, larger_is_better=True, **facts)
    assert "own" not in metrics.names()


@pytest.mark.parametrize("per_sample", [lambda o, y: abs(o - y)[:, 0], lambda o, y: abs(o[:, 0] - y)])
def test_errors_of_a_regression_may_expect_targets_with_or_without_a_dimension(per_sample):
    register_metric("own", compute=doubt, larger_is_better=False, task="regression", per_sample=per_sample)
    assert metrics.find("own").per_sample is per_sample


def test_a_metric_that_fails_in_a_trial_is_named(tmp_path):
    register_metric("own", compute=lambda o, y: o.no_such_thing(), larger_is_better=True)
    sentence = (
        r"compute of metric 'own' does not return a number \(AttributeError: "
        "'Tensor' object has no attribute 'no_such_"
    )
    with pytest.raises(TrainingError, match=sentence):
        run(MLP, ONE_THREAD, tmp_path / "alone")
    with pytest.raises(TrainingError, match=sentence):
        run_many([replace(MLP, unit=u) for u in ("ada", "relu")], ONE_THREAD, [tmp_path / u for u in ("ada", "relu")])


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
