"""Where the stored values of a row come from: memory, a mapped array, or image files."""

import mmap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apical.data.checks import read_file
from apical.data.images import open_image
from apical.data.keys import Keys, uniform
from apical.data.store import Store

RESIDENT_LIMIT = 128 << 20
"""Bytes of a mapped file that a process may keep resident before it hands the pages back to the system's cache."""
FAULT = 2 << 20
"""Up to this much becomes resident around a touched row: Linux maps what its cache holds in large pieces."""
FILE_LIMIT = 1 << 28


class Source(Protocol):
    """Rows by number; `shape` is that of one row."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def gather(self, rows: NDArray[np.int64], keys: Keys, draw: tuple[int, int] | None) -> NDArray[Any]:
        """A new array of these rows, in this order."""


class Memory:
    """Rows of an array in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.shape = array.shape[1:]

    def gather(self, rows: NDArray[np.int64], keys: Keys, draw: tuple[int, int] | None) -> NDArray[Any]:
        return self.array.take(rows, axis=0)


class Mapped:
    """Rows of a prepared array on disk, mapped anew in every process that unpickles it.

    Resident memory stays below RESIDENT_LIMIT: pages are given back when that much has been touched.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        mapped = Store(folder).map(name)
        self._map: mmap.mmap | None = getattr(mapped, "_mmap", None)
        self.array = mapped.view(np.ndarray)
        self.shape = self.array.shape[1:]
        self._row_cost = int(np.prod(self.shape)) * self.array.itemsize + FAULT
        self._bounded = self.array.nbytes > RESIDENT_LIMIT
        self._touched = 0

    def __reduce__(self) -> tuple[type["Mapped"], tuple[Path, str]]:
        return Mapped, (self.folder, self.name)

    def gather(self, rows: NDArray[np.int64], keys: Keys, draw: tuple[int, int] | None) -> NDArray[Any]:
        if self._bounded:
            self._give_back(len(rows))
        return self.array.take(rows, axis=0)

    def _give_back(self, count: int) -> None:
        self._touched += count * self._row_cost
        if self._touched > RESIDENT_LIMIT and self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._touched = 0


class ImageFiles:
    """JPEG files decoded when asked for: shorter side to `resize`, then a `size` x `size` square.

    The square is the central one; with a draw it is placed at random, and mirrored half of the time, by (draw, id).
    """

    def __init__(self, root: Path, names: NDArray[np.bytes_], *, size: int = 224, resize: int = 256) -> None:
        self.root, self.names, self.size, self.resize = root, names, size, resize
        self.shape = (3, size, size)
        self._pool: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pool": None, "names": np.asarray(self.names)}

    def gather(self, rows: NDArray[np.int64], keys: Keys, draw: tuple[int, int] | None) -> NDArray[Any]:
        out = np.empty((len(rows), *self.shape), np.uint8)
        places = self._places(keys, draw)
        self._pool = self._pool or ThreadPoolExecutor(thread_name_prefix="apical-decode")
        for _ in self._pool.map(self._decode, rows, out, places):
            pass
        return out

    def _places(self, keys: Keys, draw: tuple[int, int] | None) -> NDArray[np.float64]:
        """(n, 3): vertical place, horizontal place, and mirrored if below one half."""
        if draw is None:
            return np.tile([0.5, 0.5, 1.0], (len(keys), 1))
        return np.stack([uniform(keys, what, *draw) for what in ("crop y", "crop x", "mirror")], axis=1)

    def _decode(self, row: int, out: NDArray[np.uint8], place: Sequence[float]) -> None:
        path = self.root / self.names[row].decode()
        image = open_image(read_file(path, limit=FILE_LIMIT), origin=path)
        scale = self.resize / min(image.size)
        width, height = (max(self.resize, round(side * scale)) for side in image.size)
        image = image.resize((width, height), 2)
        x, y = round((width - self.size) * place[1]), round((height - self.size) * place[0])
        pixels = np.asarray(image.crop((x, y, x + self.size, y + self.size)))
        out[...] = (pixels[:, ::-1] if place[2] < 0.5 else pixels).transpose(2, 0, 1)
