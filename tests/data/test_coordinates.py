"""Photographs, signals and sound as functions of the place."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apical import data
from apical.data.sets import coordinates
from apical.errors import DataError


@pytest.mark.parametrize("name", [recipe.name for recipe in coordinates.RECIPES if recipe.make is not None])
def test_every_place_is_in_one_split_and_has_its_own_coordinate(name: str) -> None:
    loaded = data.load(name)
    ids = [i for split in loaded.splits.values() for i in split.ids]
    assert len(ids) == len(set(ids)) == sum(len(split) for split in loaded.splits.values())
    places = np.concatenate([split.inputs(range(len(split))).numpy() for split in loaded.splits.values()])
    assert len(np.unique(places, axis=0)) == len(ids)
    assert np.abs(places).max() <= 1
    for split in loaded.splits.values():
        assert 0 <= split.labels.min() < split.labels.max() <= 1


@pytest.mark.parametrize("name", coordinates.PHOTOGRAPHS)
def test_pixels_stand_at_their_places(name: str) -> None:
    loaded, picture = data.load(f"{name}-64"), coordinates.photograph(name, 64)
    for split in loaded.splits.values():
        row, column = (((split.inputs(range(len(split))).numpy() + 1) * 32).astype(int)).T
        np.testing.assert_array_equal(split.labels, picture[row, column])
        assert split.ids[5] == f"pixel-{row[5]:03d}-{column[5]:03d}"


def test_a_photograph_is_a_photograph() -> None:
    """Neighbouring pixels are alike, and the picture of 128 pixels is that of 64, finer."""
    for name in coordinates.PHOTOGRAPHS:
        small, large = coordinates.photograph(name, 64), coordinates.photograph(name, 128)
        assert np.abs(np.diff(small, axis=0)).mean() < 0.5 * small.std()
        halved = large.reshape(64, 2, 64, 2, 3).mean((1, 3))
        assert np.abs(halved - small).mean() < 0.03


@pytest.mark.parametrize("name", coordinates.TONES)
def test_the_spectrum_of_a_signal_is_the_one_it_was_made_of(name: str) -> None:
    spectrum = np.abs(np.fft.rfft(coordinates.tones(name)))[1:]
    turns = [k - 1 for k in coordinates.TONES[name]]
    assert set(np.flatnonzero(spectrum > 0.01 * spectrum.max())) == set(turns)
    np.testing.assert_allclose(spectrum[turns], spectrum[turns].mean(), rtol=1e-4)


# --- sound ------------------------------------------------------------------------------------------------------------


def values_in_order(loaded: Any) -> np.ndarray:
    rows = np.concatenate([split.rows for split in loaded.splits.values()])
    return np.concatenate([split.labels for split in loaded.splits.values()])[np.argsort(rows), 0]


def test_a_recording_of_ones_own_is_a_function_of_time(fabricate: Any, tmp_path: Path) -> None:
    """440 Hz in the left channel of 48 kHz alone: at 8 kHz it is 440 Hz still, with silence at 1/2."""
    n, rate = 24_000, 48_000
    left = 20_000 * np.sin(2 * np.pi * 440 * np.arange(n) / rate)
    both = np.stack([left, np.zeros(n)], axis=1).reshape(-1)
    path = tmp_path / "mine.wav"
    path.write_bytes(fabricate.wav(both, rate=rate, channels=2))
    loaded = data.load(path)
    assert [len(split) for split in loaded.splits.values()] == [2_000, 1_000, 1_000]
    assert (loaded.task, loaded.shape, data.load(str(path)).fingerprint) == ("regression", (1,), loaded.fingerprint)
    values = values_in_order(loaded)
    wave = 0.5 + np.sin(2 * np.pi * 440 * np.arange(4_000) / 8_000) / 2
    assert np.abs(values - wave)[100:-100].max() < 0.02
    places = np.concatenate([split.inputs(range(len(split))).numpy() for split in loaded.splits.values()])
    assert (places.min(), places.max()) == pytest.approx((-1.0, 1 - 2 / 4_000))


def test_a_slow_recording_keeps_its_rate_and_a_long_one_is_cut(fabricate: Any, tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    path.write_bytes(fabricate.wav(np.tile([0, 9_000, -9_000], 20_000), rate=4_000))
    loaded = data.load(path)
    assert sum(len(split) for split in loaded.splits.values()) == 4_000 * coordinates.SECONDS
    assert values_in_order(loaded)[:3].tolist() == [0.5, 1.0, 0.0]


@pytest.mark.parametrize(("samples", "words"), [
    (np.zeros(100), "is silent"), (np.ones(3), "has 3 samples"), (None, "has no WAV header"),
])  # fmt: skip
def test_what_is_no_recording_is_refused(samples: Any, words: str, fabricate: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.wav"
    path.write_bytes(b"no sound at all" if samples is None else fabricate.wav(samples, rate=8_000))
    with pytest.raises(DataError, match=words):
        data.load(path)


def test_a_damaged_recording_is_refused(fabricate: Any, tmp_path: Path) -> None:
    path = tmp_path / "cut.wav"
    path.write_bytes(fabricate.wav(np.arange(1_000), rate=8_000)[:-100])
    with pytest.raises(DataError, match="declares 2,000 bytes of sound but ends after 1,900"):
        data.load(path)


def test_a_clip_is_known_by_its_hash(home: Path, fabricate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fabricate.voice()
    with pytest.raises(DataError, match=r"Front_Right.wav is not alsa-utils' file: its sha256 is .*partial=True"):
        data.load("voice", folder)
    found = hashlib.sha256((folder / "Front_Right.wav").read_bytes()).hexdigest()
    monkeypatch.setitem(coordinates.CLIPS, "voice", ("Front_Right.wav", found))
    values = values_in_order(data.load("voice", folder))
    assert len(values) == 9_000 * coordinates.RATE // 48_000  # shorter than the part that is taken of the real one
    assert np.abs(values - 0.5).max() == 0.5


def test_the_loudest_part_is_taken() -> None:
    values = np.concatenate([np.full(50, 0.1), np.full(20, -0.9), np.full(30, 0.2)]).astype(np.float32)
    assert np.array_equal(coordinates.loudest(values, 20), np.full(20, np.float32(-0.9)))
    assert np.array_equal(coordinates.loudest(values, 500), values)
