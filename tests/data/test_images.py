"""Decoding images."""

import io

import numpy as np
import pytest
from PIL import Image

from apical.data.images import decode_image
from apical.errors import DataError


def test_greyscale_becomes_rgb(fabricate):
    grey = fabricate.jpeg(mode="L")
    pixels = decode_image(grey, origin="x")
    assert pixels.shape == (64, 64, 3)
    assert np.array_equal(pixels[..., 0], np.asarray(Image.open(io.BytesIO(grey))))
    assert np.array_equal(pixels[..., 0], pixels[..., 2])
    assert decode_image(grey, origin="x", mode="L").shape == (64, 64, 1)


def test_colour_is_what_pillow_reads(fabricate):
    data = fabricate.jpeg()
    assert np.array_equal(decode_image(data, origin="x"), np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize("mode", ["CMYK", "P", "RGBA", "1", "I;16"])
def test_every_mode_becomes_rgb(mode):
    out = io.BytesIO()
    Image.new(mode, (8, 6)).save(out, "TIFF")
    assert decode_image(out.getvalue(), origin="x").shape == (6, 8, 3)


@pytest.mark.parametrize("keep", [0, 3, 100, 700, -50])
def test_truncated_images_are_one_sentence(keep, fabricate):
    with pytest.raises(DataError, match="is a damaged image"):
        decode_image(fabricate.jpeg()[:keep], origin="a.jpg")


def test_other_sizes_are_refused_or_resized(fabricate):
    data = fabricate.jpeg((40, 30))
    with pytest.raises(DataError, match="40 x 30 pixels where 64 x 64 are expected"):
        decode_image(data, origin="x", size=(64, 64))
    assert decode_image(data, origin="x", size=(64, 50), resize=True).shape == (64, 50, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_huge_image_is_refused_before_it_is_decoded(kind, monkeypatch):
    monkeypatch.setenv("APICAL_LIMITS", "pixels=999")
    out = io.BytesIO()
    Image.new("L", (100, 10)).save(out, kind)
    with pytest.raises(DataError, match=r"100 x 10 pixels, and at most 999 are decoded: .* --limits pixels=9990"):
        decode_image(out.getvalue()[:-20], origin="x")
