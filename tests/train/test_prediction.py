from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from apical import data
from apical.errors import CheckpointError, DataError
from apical.train import Execution, TrialSpec, evaluate, predict, run
from apical.train.checkpoint import load, save

ONE_THREAD = Execution(threads=1)


@pytest.fixture
def digits_as_npz(tmp_path):
    """A user's own data: uint8 images in an .npz."""
    digits = data.load("digits")
    pixels = np.concatenate([s.raw(np.arange(len(s)))[:, 0] for s in digits.splits.values()]) * 15
    labels = np.concatenate([s.labels for s in digits.splits.values()])
    np.savez(tmp_path / "mine.npz", x=pixels.astype(np.uint8), y=labels)
    return tmp_path / "mine.npz"


@pytest.fixture
def trained(digits_as_npz, tmp_path):
    spec = TrialSpec(data=str(digits_as_npz), model="mlp-1", unit="pynada", epochs=2, learning_rate=0.01)
    return run(spec, ONE_THREAD, tmp_path / "run")


def test_image_files_and_arrays_are_treated_as_the_test_split_was(trained, digits_as_npz, tmp_path):
    test = evaluate(trained)
    split = data.load(digits_as_npz).test
    raw = split.raw(np.arange(5))
    paths = []
    for i, image in enumerate(raw):
        Image.fromarray(image[0]).save(tmp_path / f"{i}.png")
        paths.append(tmp_path / f"{i}.png")
    np.savez(tmp_path / "x.npz", x=raw)
    for found in (predict(trained, paths), predict(trained.directory, [tmp_path / "x.npz"])):
        assert [p.best for p in found] == [str(k) for k in test.outputs[:5].argmax(1)]
        for p, row in zip(found, test.outputs, strict=False):
            assert [p.probabilities[str(k)] for k in range(10)] == pytest.approx(np.exp(row).tolist(), abs=1e-6)
    assert found[3].source.endswith("x.npz[3]")


def test_an_image_of_another_size_is_resized(trained, tmp_path):
    Image.new("RGB", (50, 40), "white").save(tmp_path / "large.jpg")
    (found,) = predict(trained, [tmp_path / "large.jpg"])
    assert sum(found.probabilities.values()) == pytest.approx(1, abs=1e-5)
    assert list(found.probabilities.values()) == sorted(found.probabilities.values(), reverse=True)


def test_values_are_predicted_where_there_are_no_classes(tmp_path):
    spec = TrialSpec.paper("sin", "mlp-approx", epochs=1, passes=5)
    result = run(spec, ONE_THREAD, tmp_path / "run")
    np.savez(tmp_path / "x.npz", x=np.array([[0.5], [1.5]]))
    found = predict(result, [tmp_path / "x.npz"])
    with torch.no_grad():
        wanted = result.network()(torch.tensor([[0.5], [1.5]])).flatten().tolist()
    assert [p.values[0] for p in found] == pytest.approx(wanted)
    assert float(found[0].best) == pytest.approx(wanted[0], rel=1e-4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p.with_suffix(".png"), "cannot read"),
        (lambda p: (p.with_suffix(".png").write_bytes(b"no image"), p.with_suffix(".png"))[1], "damaged image"),
        (lambda p: (np.savez(p.with_suffix(".npz"), y=np.zeros(3)), p.with_suffix(".npz"))[1], "needs an array x"),
        (lambda p: (np.savez(p.with_suffix(".npz"), x=np.zeros((2, 3))), p.with_suffix(".npz"))[1], "samples of shape"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(trained, tmp_path, make, words):
    with pytest.raises(DataError, match=words):
        predict(trained, [make(tmp_path / "input")])


def test_weights_of_another_trial_are_refused(trained):
    stored = load(trained.weights)
    save(trained.weights, stored.tensors, stored.facts | {"spec": replace(trained.spec, seed=9).digest})
    with pytest.raises(CheckpointError, match="belongs to another trial"):
        predict(trained, [])
