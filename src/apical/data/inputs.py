"""Where the stored values of a row come from: memory, a mapped array, or image files."""

import mmap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apical.data import audio
from apical.data.randomness import Keys, normal, uniform
from apical.data.store import Store
from apical.files import open_image, read_file

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


# From stored bytes to what a network sees: one callable for each kind of data, pure in (bytes, keys, draw).


class Draw(NamedTuple):
    """What random augmentation depends on, besides the sample's key."""

    seed: int
    epoch: int


class Input(Protocol):
    """Turns (n, ...) stored values into a tensor of n inputs; `draw` is None where nothing is augmented."""

    @property
    def heavy(self) -> bool:
        """Whether the work is worth a background thread."""

    def __call__(self, raw: NDArray[Any], keys: Keys, draw: Draw | None) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class Images:
    """value / divisor (+ noise) in float32, zero-padded by `pad` on each side, minus the one scalar `mean`.

    Noise is N(0, sigma) on the scaled pixels, not clipped, drawn once for an image by (seed, id); the padding
    carries none. The mean counts the padding.
    """

    divisor: float = 255.0
    mean: float = 0.0
    pad: int = 0
    sigma: float = 0.0
    noise_seed: int = 0
    heavy: bool = False

    def __call__(self, raw: NDArray[Any], keys: Keys, draw: Draw | None) -> Tensor:
        # Each step rounds once, whatever the place of a value in the batch: a fused one need not.
        images = np.multiply(raw, np.float32(1 / self.divisor), dtype=np.float32)
        if self.sigma:
            noise = normal(keys, raw.shape[1:], "input noise", self.noise_seed)
            noise *= np.float32(self.sigma)
            images += noise
        if self.pad:
            images = _padded(images, self.pad)
        images -= np.float32(self.mean)
        return torch.from_numpy(images)


def _padded(images: NDArray[np.float32], pad: int) -> NDArray[np.float32]:
    *rest, height, width = images.shape
    out = np.zeros((*rest, height + 2 * pad, width + 2 * pad), np.float32)
    out[..., pad:-pad, pad:-pad] = images
    return out


@dataclass(frozen=True, kw_only=True)
class Spectrograms:
    """int16 clips to (2, 257, 376) spectrograms; with a draw, each is first moved in time by up to `shift_seconds`."""

    shift_seconds: float = audio.SHIFT_SECONDS
    heavy: bool = True

    def __call__(self, raw: NDArray[Any], keys: Keys, draw: Draw | None) -> Tensor:
        clips = raw.astype(np.float32) / np.float32(32768)
        if draw is not None and self.shift_seconds:
            reach = self.shift_seconds * audio.RATE
            where = uniform(keys, "time shift", draw.seed, draw.epoch)
            clips = audio.shift(clips, np.rint((2 * where - 1) * reach).astype(np.int64))
        return audio.spectrogram(torch.from_numpy(clips))


@dataclass(frozen=True, kw_only=True)
class Codes:
    """Character codes as int64, as embeddings want them."""

    heavy: bool = False

    def __call__(self, raw: NDArray[Any], keys: Keys, draw: Draw | None) -> Tensor:
        return torch.from_numpy(raw).to(torch.int64)


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Numbers as float32, with Gaussian noise where it is asked for."""

    sigma: float = 0.0
    noise_seed: int = 0
    heavy: bool = False

    def __call__(self, raw: NDArray[Any], keys: Keys, draw: Draw | None) -> Tensor:
        values = torch.from_numpy(np.ascontiguousarray(raw, np.float32))
        if self.sigma:
            values = values + self.sigma * torch.from_numpy(normal(keys, raw.shape[1:], "input noise", self.noise_seed))
        return values
