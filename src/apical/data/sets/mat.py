"""Just enough of MATLAB's level 5 format to read a struct of numbers and texts, from bytes that may be hostile.

(scipy's reader can crash the process on damaged files.)
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from apical.errors import DataError

HEADER = 128
LIMIT = 1 << 27
COMPRESSED, MATRIX = 15, 14
STRUCT, CHAR = 2, 4
NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16-le", 16: "utf-8", 17: "utf-16-le", 18: "utf-32-le"}

Value = str | float | None
"""A text, the first of the numbers, or None for everything else."""


class Element(NamedTuple):
    """One tagged piece of a file."""

    kind: int
    data: bytes


def read_struct(data: bytes, name: str, *, origin: object) -> list[dict[str, Value]]:
    """The rows of the struct array `name`, one dictionary of its fields each."""
    try:
        for element in elements(data[HEADER:]):
            kind, inside = element
            if kind == COMPRESSED:
                kind, inside = next(elements(_inflate(inside)))
            parts = list(elements(inside)) if kind == MATRIX else []
            if len(parts) > 5 and parts[0].data[:1] == bytes([STRUCT]) and parts[2].data == name.encode():
                return _rows(parts)
    except (struct.error, zlib.error, UnicodeDecodeError, StopIteration, IndexError, OverflowError) as error:
        raise DataError(f"{origin} is a damaged MATLAB file ({type(error).__name__})") from error
    raise DataError(f"{origin} is not a MATLAB file that holds a struct called {name!r}")


def elements(data: bytes) -> Iterator[Element]:
    """The elements that follow one another: a tag of 8 bytes and data padded to 8, or both in 8 bytes."""
    place = 0
    while place + 8 <= len(data):
        kind, length = struct.unpack_from("<II", data, place)
        if kind >> 16:  # a small element: length and kind share the first 4 bytes
            kind, length, place = kind & 0xFFFF, kind >> 16, place - 4
        place += 8
        if length > len(data) - place:
            raise IndexError("an element goes beyond its end")
        yield Element(kind, data[place : place + length])
        place += length if kind == COMPRESSED else length + (-(place + length)) % 8


def _inflate(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    out = unpacker.decompress(data, LIMIT)
    if not unpacker.eof:
        raise IndexError("the packed part is cut or too long")
    return out


def _rows(parts: list[Element]) -> list[dict[str, Value]]:
    """Flags, dimensions, name, length of a field's name, the names, then one matrix for each field of each row."""
    (length,) = struct.unpack("<i", parts[3].data[:4])
    raw = parts[4].data
    if not 1 <= length <= 64 or len(raw) % length:
        raise IndexError("the names of the fields do not fit")
    names = [raw[i : i + length].split(b"\0")[0].decode("ascii") for i in range(0, len(raw), length)]
    values = [_value(part.data) for part in parts[5:]]
    if not names or len(values) % len(names):
        raise IndexError("fields are missing")
    return [dict(zip(names, values[i : i + len(names)], strict=True)) for i in range(0, len(values), len(names))]


def _value(matrix: bytes) -> Value:
    parts = list(elements(matrix))
    if len(parts) < 4:
        return None
    kind, data = parts[3]
    if parts[0].data[:1] == bytes([CHAR]) and kind in TEXTS:
        return data.decode(TEXTS[kind])
    if kind in NUMBERS and data:
        return float(struct.unpack_from("<" + NUMBERS[kind], data)[0])
    return None
