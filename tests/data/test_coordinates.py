"""Photographs and signals as functions of the place."""

import numpy as np
import pytest

from apical import data
from apical.data.sets import coordinates


@pytest.mark.parametrize("name", [recipe.name for recipe in coordinates.RECIPES])
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
