"""Convolutions and max-pooling of k networks at once by the C library (conv.c), for the stacked trainer.

Images have the shape (channels, height, width, n), network by network, samples last, contiguous, in float32 or float64.
Results are written into tensors that the caller gives.
"""

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from apical.kernels import native


def serves() -> bool:
    """True where the library has these functions."""
    return bool(native.library().images)


def _struct(*values: int) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*values)


def _call(name: str, like: Tensor, *arguments: object) -> None:
    if native.library().images[name][like.dtype](*arguments, torch.get_num_threads()):
        raise MemoryError(f"no memory for the sums of {name}")


class Convolution(NamedTuple):
    """The convolutions of `networks`, without padding, in steps of one pixel; `shared`: all have the same input."""

    networks: int
    inputs: int
    outputs: int
    rows: int
    columns: int
    shared: bool

    def _fields_of(self, height: int, width: int, n: int) -> ctypes.Array[ctypes.c_int64]:
        """The struct `convolution` of conv.c."""
        return _struct(self.networks, self.inputs, self.outputs, height, width, self.rows, self.columns, n)

    def shape(self, x: Tensor) -> tuple[int, int, int, int]:
        """The shape of the result."""
        _, height, width, n = x.shape
        return self.networks * self.outputs, height - self.rows + 1, width - self.columns + 1, n

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        """x, weights (networks, outputs, inputs, rows, columns) and biases (networks, outputs) to `out`."""
        fields = self._fields_of(*x.shape[1:])
        pointers = (t.data_ptr() for t in (x, weight, bias, out))
        _call("conv_forward", x, *pointers, ctypes.addressof(fields), self.shared)
        return out

    def input_gradient(self, g: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        """The gradient of the result to that of x, in `out`."""
        fields = self._fields_of(*out.shape[1:])
        _call("conv_input", g, g.data_ptr(), weight.data_ptr(), out.data_ptr(), ctypes.addressof(fields))
        return out

    def weight_gradients(self, g: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> None:
        """The gradient of the result to those of the weights and the biases, in `weight` and `bias`."""
        fields = self._fields_of(*x.shape[1:])
        pointers = (t.data_ptr() for t in (g, x, weight, bias))
        _call("conv_weight", x, *pointers, ctypes.addressof(fields), self.shared)


class Pooling(NamedTuple):
    """Max-pooling in windows of size x size pixels of what an activation made of z.

    Where z has two branches, group by group, the pixel that wins gives the values of both.
    """

    groups: int
    branches: int
    size: int

    def _fields_of(self, z: Tensor) -> ctypes.Array[ctypes.c_int64]:
        """The struct `pooling` of conv.c."""
        channels, height, width, n = z.shape
        images = channels // (self.groups * self.branches)
        return _struct(self.groups, self.branches, images, height, width, self.size, n)

    def shape(self, x: Tensor) -> tuple[int, int, int, int]:
        """The shape of x, pooled."""
        channels, height, width, n = x.shape
        return channels, height // self.size, width // self.size, n

    def forward(self, a: Tensor, z: Tensor, best: Tensor, winner: Tensor) -> None:
        """Which pixel of each window has the largest `a`, in `winner` (uint8), and the z of those, in `best`."""
        fields = self._fields_of(z)
        pointers = (t.data_ptr() for t in (a, z, best, winner))
        _call("pool_forward", z, *pointers, ctypes.addressof(fields))

    def backward(self, g: Tensor, winner: Tensor, out: Tensor) -> Tensor:
        """The gradient of `best` to that of z, in `out`."""
        fields = self._fields_of(out)
        _call("pool_backward", g, g.data_ptr(), winner.data_ptr(), out.data_ptr(), ctypes.addressof(fields))
        return out
