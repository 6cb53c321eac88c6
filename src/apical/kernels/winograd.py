"""3x3 convolutions by Winograd's algorithm: a quarter of the multiplications, equal up to rounding.

F(4x4, 3x3): a tile of 4x4 pixels of the result needs 36 products of numbers instead of 144, so over all channels and
tiles 36 products of matrices, which torch computes. The C library (winograd.c) transforms images, weights and results.
Images of two pixels a side or less have a form of their own, which knows that their padding is zero: 9 products instead
of 36. F(2x2, 3x3) would need fewer products than these for images of two rows alone, so there is none.

For plain float32 and float64 tensors on the CPU in eager mode; torch's own convolution serves every other call. Saves
what torch's convolution saves, its input and weight, and transforms them again backward.
"""

import ctypes
from math import prod
from threading import local
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from apical.kernels import choice, native

FEWEST = 32
"""Channels of input and output: fewer gain nothing, and fewer than 16 winograd.c does not take."""
TILES = 32
"""In a batch: fewer do not pay for the transforms of the weight, but where its points are no more than its taps."""
VALUES = 1 << 23
"""Of transformed images at once: of a large batch more would leave the cache between a transform and its product."""


INPUT, OUTPUT, WEIGHT = range(3)


class Form(NamedTuple):
    """The forms of winograd.c for input, output and weight are `first` + INPUT, OUTPUT and WEIGHT.

    There are `side`^2 products, one for each point, for each tile of m x m pixels.
    """

    first: int
    side: int
    m: int

    def tiles(self, height: int, width: int) -> int:
        """Tiles that cover an image."""
        return -(-height // self.m) * -(-width // self.m)


_TILED = Form(0, 6, 4)
_WHOLE = Form(3, 3, 2)


def form_of(height: int, width: int) -> Form:
    """The form for an image of that size."""
    return _WHOLE if height <= 2 and width <= 2 else _TILED


def suits(layer: nn.Module) -> bool:
    """True where `layer` is such a convolution, pyramidal or not, of enough channels."""
    return (
        isinstance(layer, nn.Conv2d)
        and layer.kernel_size == (3, 3)
        and layer.stride == layer.dilation == (1, 1)
        and layer.padding in ("same", (1, 1))
        and layer.padding_mode == "zeros"
        and layer.groups == 1
        and min(layer.in_channels, layer.weight.size(0)) >= FEWEST
    )


def available() -> bool:
    """True where the library has the transforms and nothing forbids it."""
    return bool(native.library().winograd) and choice.forced() != "composite"


def use_(network: nn.Module) -> list[str]:
    """Let every convolution of `network` that suits compute by this module, where it serves; returns their names."""
    layers = [(name, module) for name, module in network.named_modules() if suits(module)]
    for _, layer in layers:
        layer._conv_forward = MethodType(_conv_forward, layer)
    return [name for name, _ in layers]


def _conv_forward(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """In place of the method of nn.Conv2d, which pyramidal convolutions call too."""
    if serves(x, weight, bias):
        return conv2d(x, weight, bias)
    return nn.Conv2d._conv_forward(layer, x, weight, bias)  # type: ignore[no-any-return]


def serves(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """True where `conv2d` takes these tensors; their channels are taken as checked."""
    return (
        choice.path(x) == "native"
        and x.dtype in native.library().winograd.get("winograd_spread", ())
        and x.dim() == 4
        and x.numel() > 0
        and _pays(*x.shape)
        and not torch.is_autocast_enabled("cpu")
        and all(t is None or (t.dtype == x.dtype and choice.why_not_native(t) is None) for t in (weight, bias))
    )


def _pays(n: int, _: int, height: int, width: int) -> bool:
    form = form_of(height, width)
    return form is _WHOLE or n * form.tiles(height, width) >= TILES


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """torch's conv2d of x (N, in, H, W) and weight (out, in, 3, 3) with padding=1, where `serves`; layout as of x."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        return _Convolution.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]
    return _forward(x, weight, bias)


class _Scratch(local):
    """Memory for one call at a time of each thread, kept: the system clears large memory before it gives it again."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, dtype: torch.dtype, *shape: int) -> Tensor:
        """Room of that shape, with whatever the last call left in it."""
        part = self._parts.get((name, dtype))
        if part is None or part.numel() < prod(shape):
            with torch.inference_mode(False):
                part = self._parts[name, dtype] = torch.empty(prod(shape), dtype=dtype, device="cpu")
        return part[: prod(shape)].view(shape)


_scratch = _Scratch()


class _Call(NamedTuple):
    """A call on an input (N, in, H, W) and a weight (out, in, 3, 3), both with their channels last in memory."""

    form: Form
    x: Tensor
    weight: Tensor

    @classmethod
    def of(cls, x: Tensor, weight: Tensor) -> "_Call":
        return cls(form_of(*x.shape[2:]), _last(x), _last(weight))

    def parts(self) -> list[slice]:
        """Images that are transformed at once, a function of shapes alone."""
        n, inputs, height, width = self.x.shape
        values = self.form.tiles(height, width) * self.form.side**2 * (inputs + self.weight.size(0))
        step = max(1, VALUES // values)
        return [slice(i, min(i + step, n)) for i in range(0, n, step)]

    def spread(self, images: Tensor, which: int, room: str) -> Tensor:
        """The points of the input (`which` is INPUT), the output's gradient (OUTPUT) or the weight (WEIGHT)."""
        to = self.room(images, which, room)
        function = native.library().winograd["winograd_spread"][to.dtype]
        fields = _tiling(images, to)
        form = self.form.first + which
        function(images.data_ptr(), to.data_ptr(), ctypes.addressof(fields), form, torch.get_num_threads())
        return to

    def collect(self, points: Tensor, bias: Tensor | None, to: Tensor, which: int) -> Tensor:
        """The adjoint of `spread`, into `to`; with a bias added."""
        function = native.library().winograd["winograd_collect"][to.dtype]
        fields = _tiling(to, points)
        pointers = points.data_ptr(), native._at(bias), to.data_ptr()
        function(*pointers, ctypes.addressof(fields), self.form.first + which, torch.get_num_threads())
        return to

    def room(self, images: Tensor, which: int, name: str) -> Tensor:
        """Scratch for the points of these images: (side^2, images and tiles, channels)."""
        n, channels, height, width = images.shape
        tiles = 1 if which == WEIGHT else self.form.tiles(height, width)
        return _scratch.take(name, images.dtype, self.form.side**2, n * tiles, channels)


def _tiling(images: Tensor, points: Tensor) -> ctypes.Array[ctypes.c_int64]:
    """The struct `tiling` of winograd.c."""
    n, channels, height, width = images.shape
    return (ctypes.c_int64 * 5)(n, height, width, channels, points.stride(0))


def _last(x: Tensor) -> Tensor:
    """`x` with its channels last in memory."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    call = _Call.of(x, weight)
    kernel = call.spread(call.weight, WEIGHT, "weight").transpose(1, 2)
    bias = None if bias is None else bias.contiguous()
    n, _, height, width = x.shape
    y = x.new_empty(n, height, width, weight.size(0)).movedim(-1, 1)
    for part in call.parts():
        points = call.spread(call.x[part], INPUT, "input")
        product = torch.bmm(points, kernel, out=call.room(y[part], OUTPUT, "output"))
        call.collect(product, bias, y[part], OUTPUT)
    return y.contiguous() if x.is_contiguous() else y


def _backward(x: Tensor, weight: Tensor, g: Tensor, wanted: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    call, g = _Call.of(x, weight), _last(g)
    gx = torch.empty_like(call.x) if wanted[0] else None
    gweight = torch.empty_like(call.weight) if wanted[1] else None
    gbias = g.sum((0, 2, 3)) if wanted[2] else None
    kernel = call.spread(call.weight, WEIGHT, "weight") if wanted[0] else None
    sums = call.room(call.weight, WEIGHT, "sums")
    for part in call.parts():
        up = call.spread(g[part], OUTPUT, "output")
        if gweight is not None:
            points = call.spread(call.x[part], INPUT, "input")
            torch.baddbmm(sums, up.transpose(1, 2), points, beta=0 if part.start == 0 else 1, out=sums)
        if gx is not None and kernel is not None:
            product = torch.bmm(up, kernel, out=call.room(gx[part], INPUT, "input"))
            call.collect(product, None, gx[part], INPUT)
    if gweight is not None:
        call.collect(sums, None, gweight, WEIGHT)
    return gx, gweight, gbias


class _Convolution(torch.autograd.Function):
    """Saves input and weight. Higher derivatives are those of torch's convolution."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _forward(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled() or choice.observed() or choice.why_not_native(g) is not None:
            one = [1, 1]
            return torch.ops.aten.convolution_backward(  # type: ignore[no-any-return]
                g, x, weight, [weight.size(0)], one, one, one, False, [0, 0], 1, ctx.needs_input_grad
            )
        return _backward(x, weight, g, ctx.needs_input_grad)
