import math
from dataclasses import replace

import pytest
import torch

from apical import trust
from apical.train import Execution, TrialResult, TrialSpec, evaluate, run
from apical.train.checkpoint import load

ONE_THREAD = Execution(threads=1)
NETWORK = """
import torch
from torch import nn
from apical.nn import initialise_

class Exploding(nn.Module):
    def __init__(self, inputs, outputs, last, weights):
        super().__init__()
        self.affine = nn.Linear(inputs, outputs)
        self.last, self.weights = last, weights
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.steps += 1
        out = self.affine(x.flatten(1))
        if self.training and self.steps > self.last:
            return out + (out.sum() * float("inf")) if not self.weights else Poison.apply(out)
        return out

class Poison(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * float("nan")

def network(unit, inputs, outputs, last, weights):
    made = Exploding(inputs, outputs, last, weights)
    initialise_(made, seed=0)
    return made
"""


@pytest.fixture
def exploding(tmp_path, monkeypatch):
    (tmp_path / "exploding.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    trust.allow("exploding")

    def spec(last, *, weights=False):
        return TrialSpec(
            data="digits", model="exploding:network", dims={"last": last, "weights": weights}, epochs=3, batch=256,
            learning_rate=0.01,
        )  # fmt: skip

    return spec


@pytest.mark.parametrize("last", [0, 2, 7], ids=["at once", "in the first epoch", "in the second epoch"])
@pytest.mark.parametrize("weights", [False, True], ids=["loss", "weights"])
def test_a_trial_that_diverges_keeps_and_evaluates_its_last_finite_model(exploding, tmp_path, last, weights):
    result = run(exploding(last, weights=weights), ONE_THREAD, tmp_path / "t")
    assert result.state == "diverged"
    assert f"epoch {1 + last // 5}" in result.reason
    assert len(result.history) == last // 5
    assert TrialResult.load(tmp_path / "t") == result
    kept = load(result.weights).part("model")
    assert all(bool(torch.isfinite(t).all()) for t in kept.values())
    assert math.isfinite(result.metric)
    assert 0 <= evaluate(result).scores["accuracy"] <= 1


def test_the_model_kept_is_the_one_before_the_fatal_step(exploding, tmp_path):
    late = run(exploding(4), ONE_THREAD, tmp_path / "late")  # 4 good steps, the fifth batch is fatal
    calm = run(replace(exploding(10**6), epochs=1), ONE_THREAD, tmp_path / "calm")
    assert int(load(late.weights).part("model")["steps"]) == 5
    assert int(load(calm.weights).part("model")["steps"]) == 5
    assert not torch.equal(*(load(r.weights).part("model")["affine.weight"] for r in (late, calm)))


def test_a_diverged_trial_is_finished(exploding, tmp_path):
    spec = exploding(2)
    first = run(spec, ONE_THREAD, tmp_path / "t")
    assert run(spec, ONE_THREAD, tmp_path / "t") == first
