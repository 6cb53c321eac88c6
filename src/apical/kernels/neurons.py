"""The activations of k stacked networks by the C library (neurons.h), alone or with the max-pooling behind them.

Channels stand first, network by network: (channels, ...) of contiguous float32. Results are written into tensors that
the caller gives.
"""

import ctypes
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from apical.kernels import native

FUNCTIONS = ("relu", "rbf", "swish", "ada")
"""In the order of neurons.h; "relu" may leak."""
WINDOW = 2
"""Pixels along each side of what is pooled."""


def serves(dtype: torch.dtype) -> bool:
    """True where the library has these functions for this dtype."""
    return dtype in native.library().neurons.get("neurons_forward", {})


class _Fields(ctypes.Structure):
    """The struct `neurons` of neurons.h."""

    _fields_ = (
        ("alpha", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("groups", "branches", "outputs", "inner", "function")),
        *((name, ctypes.c_int64) for name in ("height", "width", "n")),
        *((name, ctypes.c_double) for name in ("leak", "floor", "basal_leak")),
    )


class Bound(NamedTuple):
    """What C reads at `address`, and the memory that it refers to."""

    address: int
    alive: tuple[object, ...]


class Neurons(NamedTuple):
    """y = f(z), or with two branches y = f'(z') + f(z''), of `groups` networks.

    f is one of FUNCTIONS, with one alpha (RBF's s, Swish's beta), held at `floor` from below, and one c for each
    channel of y; f' is ReLU with `basal_leak`.
    """

    function: str
    groups: int
    branches: int
    leak: float = 0.0
    floor: float = -float("inf")
    basal_leak: float = 0.0

    def bind(self, shape: torch.Size, alpha: Tensor, c: Tensor) -> Bound:
        """Prepare alpha and c, contiguous, for z of this shape."""
        height, width, n = shape[1:] if len(shape) == 4 else (0, 0, 0)
        outputs = shape[0] // (self.groups * self.branches)
        sizes = self.groups, self.branches, outputs, prod(shape[1:]), FUNCTIONS.index(self.function)
        leaks = self.leak, self.floor, self.basal_leak
        fields = _Fields(alpha.data_ptr(), c.data_ptr(), *sizes, height, width, n, *leaks)
        return Bound(ctypes.addressof(fields), (fields, alpha, c))


def forward(z: Tensor, bound: Bound, y: Tensor) -> None:
    """z to y."""
    _call("neurons_forward", bound, z, y)


def backward(z: Tensor, g: Tensor, bound: Bound, gz: Tensor, galpha: Tensor | None) -> None:
    """The gradient of y to that of z, and of alpha; `gz` may be z, or g where there is one branch."""
    _call("neurons_backward", bound, z, g, gz, galpha)


def pool_forward(z: Tensor, bound: Bound, y: Tensor, best: Tensor, winner: Tensor) -> None:
    """z to the largest y of each window, the z of that pixel (`best`) and its number (`winner`, uint8)."""
    _call("neurons_pool_forward", bound, z, y, best, winner)


def pool_backward(g: Tensor, bound: Bound, best: Tensor, winner: Tensor, gz: Tensor, galpha: Tensor | None) -> None:
    """The gradient of the pooled y to that of z, and of alpha; `best` is overwritten."""
    _call("neurons_pool_backward", bound, g, best, winner, gz, galpha)


def _call(name: str, bound: Bound, *tensors: Tensor | None) -> None:
    pointers = (None if t is None else t.data_ptr() for t in tensors)
    if native.library().neurons[name][torch.float32](*pointers, bound.address, torch.get_num_threads()):
        raise MemoryError(f"no memory for {name}")
