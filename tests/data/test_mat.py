"""MATLAB structs, against scipy's writer."""

import io
import struct

import numpy as np
import pytest
from scipy.io import savemat

from apical.data.sets.mat import read_struct
from apical.errors import DataError

KINDS = [("number", "O"), ("name", "O"), ("list", "O"), ("nothing", "O")]
ROWS = [(1, "n01440764", [1, 2, 3], []), (70_000, "tench, Tinca", 2.5, [])]


@pytest.mark.parametrize("packed", [True, False])
def test_numbers_and_texts_come_back(packed):
    out = io.BytesIO()
    savemat(out, {"other": np.ones(3), "synsets": np.array(ROWS, KINDS)}, do_compression=packed)
    rows = read_struct(out.getvalue(), "synsets", origin="x")
    assert [r["number"] for r in rows] == [1, 70_000]
    assert [r["name"] for r in rows] == ["n01440764", "tench, Tinca"]
    assert [r["list"] for r in rows] == [1, 2.5]
    assert [r["nothing"] for r in rows] == [None, None]
    with pytest.raises(DataError, match="a struct called 'classes'"):
        read_struct(out.getvalue(), "classes", origin="x")


@pytest.mark.parametrize(
    "tail", [b"", bytes(4), bytes(64), struct.pack("<II", 14, 1 << 31), struct.pack("<II", 15, 8) + bytes(8)]
)
def test_anything_else_is_refused(tail):
    with pytest.raises(DataError, match=r"damaged MATLAB file|not a MATLAB file"):
        read_struct(bytes(128) + tail, "synsets", origin="x")
