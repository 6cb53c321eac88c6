"""Sheets of samples: what is gathered, and that it can be drawn."""

import numpy as np
import pytest

from apical import data
from apical.errors import InvalidArgumentError
from apical.report import samples


def test_panels_show_pixels_and_labels():
    digits = data.load("digits")
    panels = samples.gather(digits, count=5)
    assert [p.kind for p in panels] == ["image"] * 5
    for panel in panels:
        label, sample = panel.title.split("\n")
        position = list(digits.train.ids).index(sample)
        assert digits.class_names[digits.train.labels[position]] == label
        assert np.allclose(panel.content, digits.train.raw([position])[0, 0] / 16, atol=1e-6)


def test_corrupted_sheets_show_the_same_samples():
    digits = data.load("digits")
    noisy = data.corrupt(digits, "input-noise(sigma=0.3)")
    clean, dirty = samples.gather(digits, seed=2), samples.gather(noisy, seed=2)
    assert [p.title for p in clean] == [p.title for p in dirty]
    assert not np.array_equal(clean[0].content, dirty[0].content)
    assert dirty[0].content.min() >= 0


def test_silence_is_drawn_at_the_floor():
    assert np.array_equal(samples.decibels(np.zeros((2, 3, 4))), np.full((3, 4), -80.0))
    tone = np.zeros((2, 3, 4))
    tone[0, 1, 2], tone[1, 0, 0] = 10.0, 1.0
    assert samples.decibels(tone)[1, 2] == 0
    assert samples.decibels(tone)[0, 0] == pytest.approx(-20)


def test_numbers_are_shown_as_text():
    assert samples.gather(data.load("xor"))[0].kind == "text"
    assert samples.gather(data.load("sinc"), count=1)[0].content


def test_a_wrong_split_shows_the_right_ones():
    with pytest.raises(InvalidArgumentError, match="train, validation, test"):
        samples.gather(data.load("xor"), split="all")


@pytest.mark.parametrize("kind", ["text", "image", "spectrogram"])
def test_every_kind_is_drawn_with_names_as_text(kind, tmp_path):
    content = "a $1 text" if kind == "text" else np.random.RandomState(0).rand(8, 8)
    panel = samples.Panel(kind, "class $x^2 <b>\nid_1", content)
    samples.draw([panel] * 4, tmp_path / "page.png", title="50 $ and more $")
    assert (tmp_path / "page.png").stat().st_size > 1000
