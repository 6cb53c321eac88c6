"""IDX: the header promises exactly what follows."""

import gzip

import numpy as np
import pytest

from apical.data.sets.fashion_mnist import parse_idx, read_idx_bytes
from apical.errors import DataError


def test_an_array_comes_back(fabricate):
    array = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(parse_idx(fabricate.idx(array)), array)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "got nothing"),
        (b"\0\0\x08", "has no IDX header of unsigned bytes"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "has no IDX header of unsigned bytes"),
        (b"\0\0\x08\x03\0\0", "ends within its IDX header"),
        (b"\0\0\x08\x01\0\0\0\x05abcd", "declares 5 values but holds 4"),
        (b"\0\0\x08\x01\0\0\0\x03abcd", "declares 3 values but holds 4"),
        (b"\0\0\x08\x02\x00\x10\x00\x00\x00\x10\x00\x00" + b"x" * 100, "declares 1,099,511,627,776 values"),
    ],
)
def test_headers_that_lie_are_refused(data, match):
    with pytest.raises(DataError, match=match):
        parse_idx(data)


def test_gzip_is_unpacked_and_damage_is_named(tmp_path, fabricate):
    data = gzip.compress(fabricate.idx(np.arange(200)))
    path = tmp_path / "x.gz"
    path.write_bytes(data)
    assert parse_idx(read_idx_bytes(path)).tolist() == list(range(200))
    for broken in (data[:-9], data[:40], data[:-8] + b"\0" * 8, b"\x1f\x8bgarbage"):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="damaged gzip"):
            read_idx_bytes(path)
    path.write_bytes(b"<html>no</html>")
    with pytest.raises(DataError, match="web page"):
        read_idx_bytes(path)
    with pytest.raises(DataError, match="cannot read"):
        read_idx_bytes(tmp_path / "nowhere")


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("apical.data.sets.fashion_mnist.LIMIT", 1000)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(DataError, match="unpacks to more than 1,000 bytes"):
        read_idx_bytes(path)
