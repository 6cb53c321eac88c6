"""Coordinate networks: from a place (pixel, time) to what is there (colour, value)."""

from itertools import pairwise
from math import pi

import torch
from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.models.mlp import check_size
from apical.models.registry import built_in
from apical.nn import Unit


class FourierFeatures(nn.Module):
    """(N, inputs) -> (N, 2 features): sin and cos of 2 pi B x, where B is drawn from N(0, scale^2) and not trained."""

    frequencies: Tensor

    def __init__(self, inputs: int, features: int, scale: float) -> None:
        super().__init__()
        self.register_buffer("frequencies", scale * torch.randn(features, inputs))

    def forward(self, x: Tensor) -> Tensor:
        angle = 2 * pi * nn.functional.linear(x, self.frequencies)
        return torch.cat([angle.sin(), angle.cos()], dim=1)


class Coordinates(nn.Module):
    """Fourier features where there are any, hidden layers of neurons, a linear layer: (N, inputs) -> (N, outputs)."""

    initial_biases = "uniform"  # with zeros all neurons of the first layer would bend at the origin

    def __init__(
        self,
        unit: Unit,
        *,
        inputs: int,
        width: int,
        depth: int,
        outputs: int,
        features: int,
        scale: float,
        initial: str,
    ) -> None:
        super().__init__()
        self.initial_weights = initial
        self.input_size = (inputs,)
        self.encoding = FourierFeatures(inputs, features, scale) if features else None
        layers = unit.layers()
        sizes = [2 * features or inputs, *[width] * depth]
        self.hidden = nn.Sequential(*(layers.linear(a, b) for a, b in pairwise(sizes)))
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.head(self.hidden(x if self.encoding is None else self.encoding(x)))  # type: ignore[no-any-return]


@built_in("coordinates", alpha_start=(1.0, 1.0), stacks=True)
def coordinates(
    unit: Unit,
    *,
    inputs: int = 2,
    width: int = 128,
    depth: int = 3,
    outputs: int = 3,
    features: int = 0,
    scale: float = 1.0,
    initial: str = "xavier",
) -> Coordinates:
    """A network from coordinates to values, `depth` hidden layers of `width` units.

    With `features` above 0, the coordinates become so many random Fourier features of frequencies N(0, scale^2) first
    (Tancik et al., 2020). The `initial` weights are "xavier", "he", "data", or "siren", for `sine` units. Initial
    biases are uniform, as torch's layers have them.
    """
    check_size("coordinates", width=width, depth=depth)
    if isinstance(features, bool) or not isinstance(features, int) or features < 0:
        raise InvalidArgumentError(f"features is {features!r}, but coordinates needs a whole number of at least 0")
    if not scale > 0:
        raise InvalidArgumentError(f"scale is {scale!r}, but coordinates needs a number above 0")
    return Coordinates(
        unit, inputs=inputs, width=width, depth=depth, outputs=outputs, features=features, scale=scale, initial=initial
    )
