"""The IDX format of MNIST and its kin: a magic number, the sizes, then bytes."""

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apical.data.checks import read_file, reading, refuse_impostor
from apical.errors import DataError

UNSIGNED_BYTE = 0x08
LIMIT = 1 << 28
"""No IDX file read here is larger: Fashion-MNIST's largest has 47,040,016 bytes."""


def read_idx_bytes(path: Path) -> bytes:
    """The bytes of an IDX file, gzipped or not, unpacked to at most LIMIT bytes."""
    data = read_file(path, limit=LIMIT)
    refuse_impostor(data, path)
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        with reading(path), gzip.open(path, "rb") as file:
            data = file.read(LIMIT + 1)
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged gzip ({error}): fetch it again") from error
    except DataError as error:
        raise DataError(f"{path} is damaged gzip: fetch it again") from error
    if len(data) > LIMIT:
        raise DataError(f"{path} unpacks to more than {LIMIT:,} bytes: it is not an IDX file of this data set")
    return data


def parse_idx(data: bytes, *, origin: object = "IDX data") -> NDArray[np.uint8]:
    """The array in IDX bytes; the header must promise exactly what follows it."""
    if len(data) < 4 or data[0] or data[1] or data[2] != UNSIGNED_BYTE or not 1 <= data[3] <= 4:
        raise DataError(f"{origin} does not start as IDX of unsigned bytes does (got {data[:4].hex() or 'nothing'})")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise DataError(f"{origin} ends within its IDX header: it is truncated")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", count=data[3], offset=4))
    if prod(shape) != len(data) - start:
        raise DataError(f"{origin} promises {prod(shape):,} values and holds {len(data) - start:,}: fetch it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
