"""Short trainings on the real samples, named by APICAL_REAL_DATA: the loss falls."""

import os
from pathlib import Path

import numpy as np
import pytest

from apical import data
from apical.data.sets import fashion_mnist
from apical.train import Execution, TrialSpec, run_many, trial
from apical.train.trial import run

REAL = os.environ.get("APICAL_REAL_DATA")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not REAL, reason="APICAL_REAL_DATA is not set")]

# archive, network, unit, dims, samples of each split, batch, epochs; the rest is the paper's protocol
CASES = {
    "crema-d": ("CREMA-D-subset.zip", "resnet-18", "ada(alpha=0.3)", {}, 16, 16, 5),
    "utkface-gender": ("UTKFace-subset.tar.gz", "resnet-50", "pynada", {}, 10, 5, 2),
    "utkface-age": ("UTKFace-subset.tar.gz", "resnet-50", "relu", {}, 10, 5, 2),
    "tiny-imagenet": ("tiny-imagenet-subset.zip", "resnet-18", "pynada", {"skip": "apical"}, 48, 16, 2),
    "moroco": ("MOROCO-derived.zip", "char-cnn", "ada(alpha=0.5,c=1)", {}, 48, 16, 2),
}


@pytest.fixture(scope="module", autouse=True)
def shared_home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APICAL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.mark.parametrize("name", CASES)
def test_a_short_real_training_falls_in_loss(name, tmp_path):
    archive, model, unit, dims, samples, batch, epochs = CASES[name]
    root = str(Path(REAL) / archive)
    mark = data.load(name, root, partial=True).partial
    changes = {"epochs": epochs, "batch": batch, "partial": mark, "dims": dims, "unit": unit}
    spec = TrialSpec.paper(name, model, **changes, corruptions=(f"subset(samples={samples})",))
    result = run(spec, Execution(root=root), tmp_path / "run")
    assert result.state == "done"
    losses = [h["loss"] for h in result.history]
    assert losses[-1] < losses[0]
    assert result.data["partial"] == mark


@pytest.mark.skipif(not fashion_mnist.find(fashion_mnist.DEBIAN), reason="dataset-fashion-mnist is not installed")
def test_stacks_have_no_bias_on_fashion_mnist(tmp_path, monkeypatch, paired):
    """Test accuracy of 20 trials, stacked and alone: the mean difference is within two standard errors of 0."""
    real = data.load

    def few(*arguments, **how):
        return real(*arguments, **how).map(lambda split: split.only(np.arange(min(5_000, len(split)))))

    monkeypatch.setattr(trial, "load", few)
    specs = [
        TrialSpec.paper("fashion-mnist", "mlp-1", unit=f"ada(alpha={alpha})", seed=seed, epochs=6)
        for seed in range(4)
        for alpha in (0.1, 0.3, 0.5, 0.7, 1.0)
    ]
    how = Execution(threads=1)
    stacked = run_many(specs, how, [tmp_path / f"stacked{i}" for i in range(20)])
    alone = [run(spec, how, tmp_path / f"alone{i}") for i, spec in enumerate(specs)]
    assert all(r.execution.stacking.startswith("stacked(5, ") for r in stacked)
    assert paired(stacked, alone).mean() > 0.8
