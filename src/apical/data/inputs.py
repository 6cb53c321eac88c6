"""From stored bytes to what a network sees: one callable for each kind of data, pure in (bytes, keys, draw)."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apical.data import audio
from apical.data.keys import Keys, normal, uniform


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
