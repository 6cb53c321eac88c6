"""Corruptions of images as MNIST-C and ImageNet-C have them, made here: 15 kinds, five severities each.

`corrupt(images, "fog", 3, ids=ids)` changes images (n, channels, height, width) with values in [0, 1]. What is random
depends on (seed, kind, id of the sample) alone: a sample is corrupted alike in every batch and order, and by the same
draw at each severity. Results are rounded to 255 levels, as image files are. Strengths are those of ImageNet-C where
they do not depend on the size, else they are in shares of the side, or in pixels of images of 28 x 28.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, interpolate, pad

from apical.data.randomness import Keys, bits, keys_of, normal
from apical.errors import InvalidArgumentError, unknown

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Draws:
    """Random numbers of each sample, by (parts, key)."""

    keys: Keys
    parts: tuple[object, ...]

    def normal(self, *shape: int) -> Tensor:
        return torch.from_numpy(normal(self.keys, shape, *self.parts))

    def uniform(self, *shape: int, of: str = "") -> Tensor:
        """In [0, 1), float64; `of` tells several draws of one corruption apart."""
        count = int(np.prod(shape))
        values = (bits(self.keys, count, *self.parts, of) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return torch.from_numpy(values.reshape(len(self.keys), *shape))

    def signs(self) -> Tensor:
        """-1 or 1 for each sample."""
        return torch.where(self.uniform(of="sign") < 0.5, -1.0, 1.0).float()


# --- noise ------------------------------------------------------------------------------------------------------------


def gaussian_noise(x: Tensor, sigma: float, draws: Draws) -> Tensor:
    """N(0, sigma) on each value."""
    return x + sigma * draws.normal(*x.shape[1:])


def speckle_noise(x: Tensor, sigma: float, draws: Draws) -> Tensor:
    """Noise in proportion to the value."""
    return x + x * sigma * draws.normal(*x.shape[1:])


def shot_noise(x: Tensor, photons: float, draws: Draws) -> Tensor:
    """Poisson noise: the value 1 stands for `photons` that are counted."""
    mean, u = x.double() * photons, draws.uniform(*x.shape[1:])
    chance = torch.exp(-mean)
    below, count = chance.clone(), torch.zeros_like(mean)
    for k in range(1, int(photons + 12 * photons**0.5) + 12):  # beyond it lies less than 1e-12
        count += u > below
        chance *= mean / k
        below += chance
    return (count / photons).float()


def impulse_noise(x: Tensor, share: float, draws: Draws) -> Tensor:
    """A share of the values becomes black or white."""
    u = draws.uniform(*x.shape[1:])
    return torch.where(u < share / 2, 0.0, torch.where(u < share, 1.0, x))


# --- blur -------------------------------------------------------------------------------------------------------------


def gaussian_blur(x: Tensor, sigma: float, draws: Draws) -> Tensor:
    """The weighted mean of the surroundings, `sigma` in pixels; the edge is repeated."""
    radius = max(1, ceil(3 * sigma))
    line = torch.exp(-torch.arange(-radius, radius + 1).float().square() / (2 * sigma**2))
    line = (line / line.sum()).expand(x.shape[1], 1, 1, -1)
    x = conv2d(_edges(x, radius, 0), line, groups=x.shape[1])
    return conv2d(_edges(x, 0, radius), line.mT, groups=x.shape[1])


def _edges(x: Tensor, across: int, down: int) -> Tensor:
    return pad(x, (across, across, down, down), mode="replicate")


def motion_blur(x: Tensor, length: float, draws: Draws) -> Tensor:
    """The mean along a line of `length` (a share of the side) in a direction of the sample's own."""
    angle = draws.uniform() * torch.pi
    steps = torch.linspace(-length, length, 9)
    return torch.stack([_moved(x, t * angle.cos().float(), t * angle.sin().float()) for t in steps]).mean(0)


def zoom_blur(x: Tensor, zoom: float, draws: Draws) -> Tensor:
    """The mean of the image at sizes from 1 to `zoom` times its own."""
    return torch.stack([_warped(x, _same(x) / z) for z in torch.linspace(1.0, zoom, 7)]).mean(0)


def glass_blur(x: Tensor, strength: tuple[int, float], draws: Draws) -> Tensor:
    """Frosted glass: a share of the pixels show one within a radius of them."""
    radius, share = strength
    n, channels, height, width = x.shape
    offsets = (draws.uniform(2, height, width) * (2 * radius + 1)).long() - radius
    offsets *= draws.uniform(1, height, width, of="where") < share
    rows = (torch.arange(height)[:, None] + offsets[:, 0]).clamp(0, height - 1)
    columns = (torch.arange(width) + offsets[:, 1]).clamp(0, width - 1)
    places = (rows * width + columns).view(n, 1, -1).expand(-1, channels, -1)
    return x.flatten(2).gather(2, places).view_as(x)


# --- light ------------------------------------------------------------------------------------------------------------


def fog(x: Tensor, density: float, draws: Draws) -> Tensor:
    """A cloud over the image: random values on grids from coarse to fine, each half as strong as the one before."""
    cloud = torch.zeros(len(x), 1, *x.shape[2:])
    for octave in range(4):
        side = 2 ** (octave + 1) + 1
        grid = draws.uniform(1, side, side, of=f"octave {octave}").float()
        cloud += interpolate(grid, x.shape[2:], mode="bilinear", align_corners=True) / 2**octave
    low, high = cloud.amin((1, 2, 3), keepdim=True), cloud.amax((1, 2, 3), keepdim=True)
    return (x + density * (cloud - low) / (high - low)) / (1 + density)


def brightness(x: Tensor, more: float, draws: Draws) -> Tensor:
    """Every value `more` than before."""
    return x + more


def contrast(x: Tensor, share: float, draws: Draws) -> Tensor:
    """That share of each value's distance from the mean of its image."""
    mean = x.mean((1, 2, 3), keepdim=True)
    return mean + share * (x - mean)


# --- geometry ---------------------------------------------------------------------------------------------------------


def rotate(x: Tensor, degrees: float, draws: Draws) -> Tensor:
    """To the left or to the right, by the sample's own choice."""
    angle = torch.deg2rad(draws.signs() * degrees)
    turned = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    return _warped(x, pad(turned, (0, 1)))


def shear(x: Tensor, slope: float, draws: Draws) -> Tensor:
    """Rows slide to the left or to the right of the middle row, by the sample's own choice."""
    matrix = _same(x).clone()
    matrix[:, 0, 1] = draws.signs() * slope
    return _warped(x, matrix)


def translate(x: Tensor, share: float, draws: Draws) -> Tensor:
    """By a share of the side, in a direction of the sample's own."""
    angle = draws.uniform() * 2 * torch.pi
    return _moved(x, 2 * share * angle.cos().float(), 2 * share * angle.sin().float())


def pixelate(x: Tensor, share: float, draws: Draws) -> Tensor:
    """Drawn with a share of the pixels on each side."""
    small = [max(1, round(side * share)) for side in x.shape[2:]]
    return interpolate(interpolate(x, small, mode="area"), x.shape[2:], mode="nearest-exact")


def _same(x: Tensor) -> Tensor:
    """The map that leaves images as they are; coordinates run from -1 to 1."""
    return torch.eye(2, 3).expand(len(x), 2, 3)


def _moved(x: Tensor, across: Tensor, down: Tensor) -> Tensor:
    matrix = _same(x).clone()
    matrix[:, 0, 2], matrix[:, 1, 2] = across, down
    return _warped(x, matrix)


def _warped(x: Tensor, matrix: Tensor) -> Tensor:
    """What lies at the places that the maps give; black beyond the edge."""
    return grid_sample(x, affine_grid(matrix, list(x.shape), align_corners=False), align_corners=False)


# --- by name ----------------------------------------------------------------------------------------------------------

Strengths = tuple[Any, Any, Any, Any, Any]
CORRUPTIONS: dict[str, tuple[Callable[[Tensor, Any, Draws], Tensor], Strengths]] = {
    "gaussian-noise": (gaussian_noise, (0.08, 0.12, 0.18, 0.26, 0.38)),
    "shot-noise": (shot_noise, (60, 25, 12, 5, 3)),
    "impulse-noise": (impulse_noise, (0.03, 0.06, 0.09, 0.17, 0.27)),
    "speckle-noise": (speckle_noise, (0.15, 0.2, 0.35, 0.45, 0.6)),
    "gaussian-blur": (gaussian_blur, (0.5, 0.75, 1.0, 1.5, 2.0)),
    "motion-blur": (motion_blur, (0.1, 0.15, 0.2, 0.3, 0.4)),
    "zoom-blur": (zoom_blur, (1.1, 1.2, 1.3, 1.45, 1.6)),
    "glass-blur": (glass_blur, ((1, 0.5), (1, 1.0), (2, 0.75), (2, 1.0), (3, 1.0))),
    "fog": (fog, (0.5, 0.8, 1.1, 1.5, 2.0)),
    "brightness": (brightness, (0.1, 0.2, 0.3, 0.4, 0.5)),
    "contrast": (contrast, (0.4, 0.3, 0.2, 0.1, 0.05)),
    "rotate": (rotate, (10, 20, 30, 45, 60)),
    "shear": (shear, (0.15, 0.25, 0.35, 0.5, 0.65)),
    "translate": (translate, (0.05, 0.1, 0.15, 0.2, 0.25)),
    "pixelate": (pixelate, (0.5, 0.36, 0.25, 0.18, 0.14)),
}
"""The kinds, each with its function and its strengths from severity 1 to 5."""


def corrupt(
    images: Tensor, kind: str, severity: int, *, ids: Sequence[str | int] | NDArray[Any] | None = None, seed: int = 0
) -> Tensor:
    """Images (n, channels, height, width) in [0, 1], corrupted; on the CPU, in float32, at 255 levels.

    `ids` name the samples, and randomness follows them; without ids, the positions do.

    Examples:
        >>> images = torch.rand(8, 1, 28, 28)
        >>> foggy = corrupt(images, "fog", 3)
        >>> torch.equal(foggy[2:3], corrupt(images[2:3], "fog", 3, ids=[2]))
        True
    """
    if kind not in CORRUPTIONS:
        raise InvalidArgumentError(unknown("corruption", kind, CORRUPTIONS))
    if severity not in SEVERITIES:
        raise InvalidArgumentError(f"severity is {severity!r}, but must be one of 1 to 5")
    if images.ndim != 4 or not images.is_floating_point():
        raise InvalidArgumentError(
            f"images are {tuple(images.shape)} of {images.dtype}, but must be (n, channels, height, width) of floats "
            "in [0, 1]"
        )
    if len(images) == 0:
        return images.float().cpu()
    names = range(len(images)) if ids is None else ids
    if len(names) != len(images):
        raise InvalidArgumentError(f"there are {len(names)} ids, but {len(images)} images: give one id for each")
    function, strengths = CORRUPTIONS[kind]
    x = images.detach().float().cpu()
    with torch.no_grad():
        changed = function(x, strengths[severity - 1], Draws(keys_of(names), ("corruption", kind, seed)))
        return (changed.clamp(0.0, 1.0) * 255).round() / 255
