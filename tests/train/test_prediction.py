from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from apical import data
from apical.errors import CheckpointError, DataError
from apical.train import Execution, TrialSpec, evaluate, predict, run
from apical.train.checkpoint import load, save
from apical.train.evaluation import read_samples

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


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A network of digits, whose pixels are 0 to 16, and a split that it was not trained on."""
    spec = TrialSpec(data="digits", model="mlp-1", unit="ada(alpha=0.3)", epochs=10, learning_rate=0.01)
    return run(spec, ONE_THREAD, tmp_path_factory.mktemp("digits") / "run"), data.load("digits").validation


def test_ordinary_images_are_read_in_the_range_and_size_of_the_training_images(digits, tmp_path):
    result, split = digits
    raw, labels = split.raw(np.arange(100)), split.labels[:100]
    np.savez(tmp_path / "x.npz", x=raw)
    stored = predict(result, [tmp_path / "x.npz"])
    assert np.mean([p.best == str(k) for p, k in zip(stored, labels, strict=True)]) > 0.9
    for mode, size, least in (("L", (8, 8), 1.0), ("RGB", (8, 8), 1.0), ("L", (64, 64), 0.95)):  # resizing smooths
        paths = [tmp_path / f"{mode}-{size[0]}-{i}.png" for i in range(100)]
        for path, image in zip(paths, raw, strict=True):
            white = Image.fromarray(np.rint(image[0] * (255 / 16)).astype(np.uint8))
            white.convert(mode).resize(size, Image.Resampling.NEAREST).save(path)
        agree = [p.best == q.best for p, q in zip(predict(result, paths), stored, strict=True)]
        assert np.mean(agree) >= least, (mode, size)


def test_values_in_another_range_are_refused_with_the_range_that_is_expected(digits, tmp_path):
    result, split = digits
    raw = split.raw(np.arange(5))
    for x, words in (
        (raw / 16, r"values from 0 to 1, but this network was trained on values from 0 to 16: .*, x \* 16 perhaps"),
        (raw * np.uint8(15), r"values from 0 to 240, .* from 0 to 16: .*, x \* 0.06275 perhaps"),
        (raw - 16.0, r"values from -16 to 0, .* from 0 to 16: give it an x in that range$"),
        (np.full(raw.shape, np.nan), "values from nan to nan"),
    ):
        np.savez(tmp_path / "x.npz", x=x)
        with pytest.raises(DataError, match=words):
            predict(result, [tmp_path / "x.npz"])
    np.savez(tmp_path / "floats.npz", x=raw.astype(np.float64))  # as scikit-learn has them
    np.savez(tmp_path / "bytes.npz", x=raw)
    floats, stored = predict(result, [tmp_path / "floats.npz"]), predict(result, [tmp_path / "bytes.npz"])
    assert [p.probabilities for p in floats] == [p.probabilities for p in stored]


def test_an_image_of_16_bits_is_refused(digits, tmp_path):
    Image.fromarray(np.full((8, 8), 60_000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(DataError, match="has 16 bits per channel, but images of 8 bits are needed"):
        predict(digits[0], [tmp_path / "deep.png"])


def test_bytes_that_use_a_part_of_their_range_are_not_guessed_at(tmp_path):
    digits = data.load("digits").train
    np.savez(tmp_path / "mine.npz", x=digits.raw(np.arange(200))[:, 0], y=digits.labels[:200])
    spec = TrialSpec(data=str(tmp_path / "mine.npz"), model="mlp-1", unit="relu", epochs=1)
    result = run(spec, ONE_THREAD, tmp_path / "run")
    assert result.input["range"] == [0, 16]
    Image.new("L", (8, 8), 255).save(tmp_path / "white.png")
    with pytest.raises(DataError, match="pixels up to 255, but this network was trained on pixels from 0 to 16, and"):
        predict(result, [tmp_path / "white.png"])
    Image.new("L", (8, 8), 12).save(tmp_path / "grey.png")
    np.savez(tmp_path / "grey.npz", x=np.full((1, 8, 8), 12))
    image, array = predict(result, [tmp_path / "grey.png", tmp_path / "grey.npz"])
    assert image.probabilities == array.probabilities


def test_a_result_of_an_earlier_version_does_not_know_its_range(digits, tmp_path):
    result, split = digits
    old = replace(result, input={key: value for key, value in result.input.items() if key != "range"})
    white = np.rint(split.raw(np.arange(1))[0, 0] * (255 / 16)).astype(np.uint8)
    Image.fromarray(white).save(tmp_path / "8-bit.png")
    assert predict(old, [tmp_path / "8-bit.png"]) == predict(result, [tmp_path / "8-bit.png"])
    np.savez(tmp_path / "x.npz", x=split.raw(np.arange(5)) / 16)
    with pytest.raises(DataError, match="trained on values from 0 to 16"):
        predict(old, [tmp_path / "x.npz"])


def test_sound_and_codes_outside_their_range_are_refused(tmp_path):
    clips = {"kind": "Spectrograms", "shape": [4], "settings": {}}
    codes = {"kind": "Codes", "shape": [4], "settings": {}}
    np.savez(tmp_path / "shares.npz", x=np.array([[0.5, -0.25, 0.125, 0]]))
    np.savez(tmp_path / "codes.npz", x=np.array([[1, 2, 300, 0]]))
    np.savez(tmp_path / "fine.npz", x=np.array([[1, 1, 0, 0]]))
    with pytest.raises(DataError, match=r"values from -0.25 to 0.5, .* from -32768 to 32767: .*, x \* 3.277e\+04"):
        read_samples(tmp_path / "shares.npz", clips)
    with pytest.raises(DataError, match="values from 0 to 300, but this network was trained on values from 0 to 10"):
        read_samples(tmp_path / "codes.npz", codes)
    assert read_samples(tmp_path / "fine.npz", codes).tolist() == [[1, 1, 0, 0]]
