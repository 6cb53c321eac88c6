"""The Triton kernels: compiled and launched here and nowhere else. Importing this module needs Triton.

Arguments are taken as checked, as in `native`: plain tensors of one of DTYPES on one device; alpha and c as `bind`
prepared them. Gradients of alpha and c come as `channels` float32 values, where `wanted` asks for them.
"""

# The eager path on NVIDIA and AMD GPUs: one kernel forward, one backward, each element read and written once.
#
# Whatever its shape, a dense tensor is one stretch of n elements; element i belongs to channel (i // inner) % channels.
# `_forward` and `_backward` walk the stretch block by block, so that every access is a full vector of 16 bytes. The
# pyramidal sum walks its output in the same way: its input has runs of `half` elements, basal and apical in turn, and
# output i reads i + b * half and i + (b + 1) * half, where b = i // half.
# The gradients of alpha and c are sums over a channel. Each program adds up its share and writes one partial sum, and
# torch adds the partial sums. Shares follow from the shape alone, nothing is added atomically: results repeat bit for
# bit. Channels side by side in memory (Linear, channels-last) are summed down columns by `_backward_columns`, channels
# that fill runs (NCHW) along them by `_backward_runs`, one channel over everything by `_backward` itself.
# What may exceed 2^31 is one 64-bit number a program; what varies inside a program has 32 bits.
# Compiled and emulated (tests/gpu), not yet run on a GPU.

import sys
from contextlib import nullcontext
from types import ModuleType
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from apical.kernels.choice import LaunchError
from apical.kernels.native import Gradients, dense, halved, inner_of, upstream

VERSION = triton.__version__
DTYPES = (torch.float16, torch.bfloat16, torch.float32)

Value = float | Tensor

BLOCK = 1024  # elements that a program holds at once: 8 a thread, two vectors of 16 bytes in float32, one in half types
PROGRAMS = 2048  # that a sum is cut into at the most: one wave on the largest GPUs
NARROW = 32  # runs shorter than this are summed down columns: by rows they would use a part of each 32-byte sector
WARPS = 2 if torch.version.hip else 4  # 128 threads: AMD's warps have 64

_NUMBER, _ONE, _EACH = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
_FLAT = tl.constexpr(1e16)  # where e^(c - alpha*x) has long been zero, as in the composite


# ---- what the kernels share ----------------------------------------------------------------------------------------


# A branch on a constexpr is taken while compiling, but what follows a `return` inside it is compiled all the same:
# hence one `return` at the end of each function.


@triton.jit
def _parameter(given, channel, MODE: tl.constexpr):
    """alpha or c in float32: a number, one value in memory, or one for each channel."""
    if MODE == _NUMBER:
        value = tl.cast(given, tl.float32)
    elif MODE == _ONE:
        value = tl.load(given).to(tl.float32)
    else:
        value = tl.load(given + channel).to(tl.float32)
    return value


@triton.jit
def _parameters(alpha, c, channel, floor, ALPHA: tl.constexpr, C: tl.constexpr):
    """Both, alpha held at `floor` from below; NaN stays NaN."""
    a = _parameter(alpha, channel, ALPHA)
    if ALPHA != _NUMBER:
        a = tl.where(a < floor, tl.cast(floor, tl.float32), a)
    return a, _parameter(c, channel, C)


@triton.jit
def _divided(start, offsets, size, WIDE: tl.constexpr):
    """(start + offsets) // size: 64 bits for the whole block, 32 for each element unless `size` itself needs more."""
    first = start // size
    rest = start - first * size
    if WIDE:
        more = (rest + offsets) // size
    else:
        more = ((rest.to(tl.uint32) + offsets.to(tl.uint32)) // tl.cast(size, tl.uint32)).to(tl.int32)
    return first, more


@triton.jit
def _channel(start, offsets, inner, channels, ALPHA: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr):
    channel = 0
    if ALPHA == _EACH or C == _EACH:  # noqa: PLR1714
        first, more = _divided(start, offsets, inner, WIDE)
        channel = ((first % channels).to(tl.uint32) + more.to(tl.uint32)) % tl.cast(channels, tl.uint32)
    return channel


@triton.jit
def _place(start, offsets, half, PYRAMIDAL: tl.constexpr, WIDE: tl.constexpr):
    """Where the output `start + offsets` has its input, or its basal input, relative to `start`."""
    place = offsets
    if PYRAMIDAL:
        first, more = _divided(start, offsets, half, WIDE)
        place = first * half + offsets + more.to(tl.int64) * half
    return place


@triton.jit
def _exponential(x, alpha, c):
    """max(0, x) and e^(c - alpha*max(0, x)). NaN passes the comparisons and comes out as NaN."""
    p = tl.where(x < 0, 0.0, tl.where(x > _FLAT, _FLAT, x))
    return p, tl.exp(c - alpha * p)


@triton.jit
def _value(x, place, half, mask, alpha, c, leak, basal_leak, LEAKY: tl.constexpr, BASAL: tl.constexpr):
    """The outputs of a block; BASAL: 0 is ADA alone, 1 has a basal ReLU beside it, 2 a basal leaky ReLU."""
    if BASAL == 0:
        v = tl.load(x + place, mask=mask).to(tl.float32)
    else:
        v = tl.load(x + place + half, mask=mask).to(tl.float32)
    p, e = _exponential(v, alpha, c)
    y = p * e
    # A leak of zero must give 0, not NaN, at -inf: hence the flags.
    y = tl.where(v < 0, tl.cast(leak, tl.float32) * v if LEAKY else 0.0, y)
    if BASAL != 0:
        basal = tl.load(x + place, mask=mask).to(tl.float32)
        y += tl.where(basal < 0, tl.cast(basal_leak, tl.float32) * basal if BASAL == 2 else 0.0, basal)
    return y


@triton.jit
def _gradient(
    x, gx, place, half, mask, upstream, alpha, c, leak, basal_leak,
    LEAKY: tl.constexpr, BASAL: tl.constexpr, FOR_ALPHA: tl.constexpr, FOR_C: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of x and returns what the block adds to the gradients of alpha and c."""
    if BASAL != 0:
        basal = tl.load(x + place, mask=mask).to(tl.float32)
        if BASAL == 2:
            slope = tl.where(basal > 0, upstream, tl.cast(basal_leak, tl.float32) * upstream)
        else:
            slope = tl.where(basal <= 0, 0.0, upstream)
        tl.store(gx + place, slope.to(gx.dtype.element_ty), mask=mask)
        place += half
    v = tl.load(x + place, mask=mask).to(tl.float32)
    p, e = _exponential(v, alpha, c)
    slope = tl.where(v < 0, tl.cast(leak, tl.float32) if LEAKY else 0.0, e * (1 - alpha * p))
    tl.store(gx + place, (upstream * slope).to(gx.dtype.element_ty), mask=mask)
    value = tl.where(mask, p * e * upstream, 0.0)
    for_alpha, for_c = 0.0, 0.0
    if FOR_ALPHA:
        for_alpha = -(value * tl.where(mask, p, 0.0))
    if FOR_C:
        for_c = value
    return for_alpha, for_c


# ---- the four kernels ----------------------------------------------------------------------------------------------


@triton.jit
def _forward(
    x, y, alpha, c, n, inner, channels, half, leak, basal_leak, floor,
    ALPHA: tl.constexpr, C: tl.constexpr, LEAKY: tl.constexpr, BASAL: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n - start
    a, b = _parameters(alpha, c, _channel(start, offsets, inner, channels, ALPHA, C, WIDE), floor, ALPHA, C)
    place = _place(start, offsets, half, BASAL != 0, WIDE)
    value = _value(x + start, place, half, mask, a, b, leak, basal_leak, LEAKY, BASAL)
    tl.store(y + start + offsets, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _backward(
    x, g, gx, partial, alpha, c, n, inner, channels, half, leak, basal_leak, floor, steps,
    ALPHA: tl.constexpr, C: tl.constexpr, LEAKY: tl.constexpr, BASAL: tl.constexpr, WIDE: tl.constexpr,
    SAME: tl.constexpr, FOR_ALPHA: tl.constexpr, FOR_C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`steps` blocks a program; with sums there is one channel, so that all of the program's elements add to it."""
    program = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    sum_alpha = tl.zeros((BLOCK,), tl.float32)
    sum_c = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        start = (program * steps + step) * BLOCK
        mask = offsets < n - start
        a, b = _parameters(alpha, c, _channel(start, offsets, inner, channels, ALPHA, C, WIDE), floor, ALPHA, C)
        place = _place(start, offsets, half, BASAL != 0, WIDE)
        if SAME:
            upstream = tl.load(g).to(tl.float32) + tl.zeros((BLOCK,), tl.float32)
        else:
            upstream = tl.load(g + start + offsets, mask=mask).to(tl.float32)
        for_alpha, for_c = _gradient(
            x + start, gx + start, place, half, mask, upstream, a, b, leak, basal_leak, LEAKY, BASAL, FOR_ALPHA, FOR_C
        )
        sum_alpha += for_alpha
        sum_c += for_c
    if FOR_ALPHA:
        tl.store(partial + program, tl.sum(sum_alpha))
    if FOR_C:
        tl.store(partial + (tl.num_programs(0) if FOR_ALPHA else 0) + program, tl.sum(sum_c))


@triton.jit
def _backward_columns(
    x, g, gx, partial, alpha, c, rows, columns, inner, half, leak, basal_leak, floor, steps, chunks,
    ALPHA: tl.constexpr, C: tl.constexpr, LEAKY: tl.constexpr, BASAL: tl.constexpr,
    SAME: tl.constexpr, FOR_ALPHA: tl.constexpr, FOR_C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A matrix, `inner` neighbouring columns to a channel: `steps` tiles of ROWS x COLUMNS a program."""
    program = tl.program_id(0)
    chunk, block = program % chunks, program // chunks
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    channel = tl.where(inside, column, 0) // inner
    a, b = _parameters(alpha, c, channel, floor, ALPHA, C)
    if ALPHA == _EACH:
        a = a[None, :]
    if C == _EACH:
        b = b[None, :]
    sum_alpha = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_c = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(steps):
        first = (chunk.to(tl.int64) * steps + step) * ROWS
        row = tl.arange(0, ROWS)
        mask = (row[:, None] < rows - first) & inside[None, :]
        start = first * columns
        offsets = row[:, None].to(tl.int64) * columns + column[None, :]
        place = offsets
        if BASAL != 0:  # half divides columns: the runs before this row, and those inside it
            place += start + row[:, None].to(tl.int64) * columns + (column // half * half)[None, :]
        if SAME:
            upstream = tl.load(g).to(tl.float32) + tl.zeros((ROWS, COLUMNS), tl.float32)
        else:
            upstream = tl.load(g + start + offsets, mask=mask).to(tl.float32)
        for_alpha, for_c = _gradient(
            x + start, gx + start, place, half, mask, upstream, a, b, leak, basal_leak, LEAKY, BASAL, FOR_ALPHA, FOR_C
        )
        sum_alpha += for_alpha
        sum_c += for_c
    to = partial + chunk.to(tl.int64) * columns + column
    if FOR_ALPHA:
        tl.store(to, tl.sum(sum_alpha, 0), mask=inside)
    if FOR_C:
        tl.store(to + (tl.cast(chunks, tl.int64) * columns if FOR_ALPHA else 0), tl.sum(sum_c, 0), mask=inside)


@triton.jit
def _backward_runs(
    x, g, gx, partial, alpha, c, rows, channels, inner, half, leak, basal_leak, floor, steps, chunks,
    ALPHA: tl.constexpr, C: tl.constexpr, LEAKY: tl.constexpr, BASAL: tl.constexpr,
    SAME: tl.constexpr, FOR_ALPHA: tl.constexpr, FOR_C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(rows, channels, inner): a program has one channel and `steps` of its tiles of ROWS x COLUMNS."""
    program = tl.program_id(0)
    chunk, channel = program % chunks, (program // chunks).to(tl.int64)
    a, b = _parameters(alpha, c, channel, floor, ALPHA, C)
    across = tl.cdiv(inner, COLUMNS)
    sum_alpha = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_c = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(steps):
        tile = chunk.to(tl.int64) * steps + step
        first = tile // across * ROWS
        left = tile % across * COLUMNS
        row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
        mask = (row[:, None] < rows - first) & (column[None, :] < inner - left)
        start = (first * channels + channel) * inner + left
        apart = row[:, None].to(tl.int64) * channels * inner
        offsets = apart + column[None, :]
        place = offsets
        if BASAL != 0:  # half divides channels * inner: the runs before this row, and those inside it
            place += apart + first * channels * inner + channel * inner // half * half
        if SAME:
            upstream = tl.load(g).to(tl.float32) + tl.zeros((ROWS, COLUMNS), tl.float32)
        else:
            upstream = tl.load(g + start + offsets, mask=mask).to(tl.float32)
        for_alpha, for_c = _gradient(
            x + start, gx + start, place, half, mask, upstream, a, b, leak, basal_leak, LEAKY, BASAL, FOR_ALPHA, FOR_C
        )
        sum_alpha += for_alpha
        sum_c += for_c
    to = partial + chunk.to(tl.int64) * channels + channel
    if FOR_ALPHA:
        tl.store(to, tl.sum(sum_alpha))
    if FOR_C:
        tl.store(to + (tl.cast(chunks, tl.int64) * channels if FOR_ALPHA else 0), tl.sum(sum_c))


# ---- what calls them -----------------------------------------------------------------------------------------------

INTERPRETED = not isinstance(_forward, triton.JITFunction)
"""True where TRITON_INTERPRET=1 was set before the import: then the kernels run on CPU tensors, element by element."""


class Bound(NamedTuple):
    """Parameters ready for a launch."""

    alpha: Value
    c: Value
    channels: int
    inner: int
    leak: float
    floor: float
    basal_leak: float
    kernels: ModuleType = sys.modules[__name__]


def bind(
    x: Tensor, alpha: Value, c: Value, dim: int, leak: float, floor: float, basal_leak: float | None = None
) -> Bound:
    """Prepare alpha and c for calls on `x`; with `basal_leak` for the pyramidal sum, without it for ADA."""
    channels = max((v.numel() for v in (alpha, c) if isinstance(v, Tensor)), default=1)
    inner = 1 if channels == 1 else inner_of(x, dim)
    a, b = (v.contiguous() if isinstance(v, Tensor) else v for v in (alpha, c))
    return Bound(a, b, channels, inner, leak, floor, basal_leak or 0.0)


def ada_forward(x: Tensor, bound: Bound, out: Tensor | None = None) -> Tensor:
    """ADA; into `out`, which has the shape and strides of `x`, where it is given."""
    x = dense(x)
    y = torch.empty_like(x) if out is None else out
    _evaluate(x, y, bound, 0)
    return y


def ada_backward(x: Tensor, g: Tensor, bound: Bound, wanted: tuple[bool, bool], out: Tensor | None = None) -> Gradients:
    """The gradients of x, alpha and c; that of x into `out`, which is like x, where it is given."""
    x = dense(x)
    gx = torch.empty_like(x) if out is None else out
    g, step = upstream(g, x.stride())
    return gx, *_differentiate(x, g, step == 0, gx, bound, wanted, 0)


def pyramidal_forward(z: Tensor, bound: Bound, dim: int, groups: int, out: Tensor | None = None) -> Tensor:
    """basal(z') + ADA(z''), whose 2 * outputs channels stand along `dim`, group by group."""
    z = dense(z)
    y = torch.empty_strided(*halved(z, dim), dtype=z.dtype, device=z.device) if out is None else out
    _evaluate(z, y, bound, _half(z, dim, groups))
    return y


def pyramidal_backward(
    z: Tensor, g: Tensor, bound: Bound, wanted: tuple[bool, bool], dim: int, groups: int, out: Tensor | None = None
) -> Gradients:
    """The gradients of z, alpha and c."""
    z = dense(z)
    gz = torch.empty_like(z) if out is None else out
    g, step = upstream(g, halved(z, dim)[1])
    return gz, *_differentiate(z, g, step == 0, gz, bound, wanted, _half(z, dim, groups))


def _half(z: Tensor, dim: int, groups: int) -> int:
    """How many neighbours in memory belong to the basal branch before the apical branch begins; 0 for none."""
    return z.size(dim) // (2 * groups) * inner_of(z, dim)


def _evaluate(x: Tensor, y: Tensor, bound: Bound, half: int) -> None:
    n = y.numel()
    if n:
        settings = _settings(bound, half)
        arguments = (bound.alpha, bound.c, n, bound.inner, bound.channels, half, bound.leak, bound.basal_leak)
        wide = max(bound.inner, half) >= 2**31
        _launch(_forward, triton.cdiv(n, BLOCK), x, y, *arguments, bound.floor, **settings, WIDE=wide, BLOCK=BLOCK)


def _differentiate(
    x: Tensor, g: Tensor, same: bool, gx: Tensor, bound: Bound, wanted: tuple[bool, bool], half: int
) -> tuple[Tensor | None, Tensor | None]:
    """Fills gx and gives the gradients of alpha and c; `same`: one upstream value stands for all."""
    n, count = g.numel(), sum(wanted)
    if not n:
        return _in_order(wanted, x.new_zeros((count, bound.channels), dtype=torch.float32))
    share = shares(n, bound.channels, bound.inner, sums=count > 0)
    partial = x.new_empty((count, share.chunks, share.columns), dtype=torch.float32) if count else gx
    scalars = (half, bound.leak, bound.basal_leak, bound.floor, share.steps)
    settings = {**_settings(bound, half), "SAME": same, "FOR_ALPHA": wanted[0], "FOR_C": wanted[1]}
    arguments = (x, g, gx, partial, bound.alpha, bound.c)
    if share.kernel is _backward:
        settings |= {"WIDE": max(bound.inner, half) >= 2**31, "BLOCK": BLOCK}
        _launch(_backward, share.chunks, *arguments, n, bound.inner, bound.channels, *scalars, **settings)
    else:
        settings |= {"ROWS": share.tile[0], "COLUMNS": share.tile[1]}
        sizes = (share.rows, share.columns, bound.inner)
        _launch(share.kernel, share.blocks * share.chunks, *arguments, *sizes, *scalars, share.chunks, **settings)
    if not count:
        return None, None
    return _in_order(wanted, partial.view(count, share.chunks, bound.channels, -1).sum((1, 3)))


def _in_order(wanted: tuple[bool, bool], rows: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Row by row to those of alpha and c whose gradient is wanted."""
    return rows[0] if wanted[0] else None, rows[-1] if wanted[1] else None


class Share(NamedTuple):
    """How a backward pass is cut: `blocks` times `chunks` programs, `steps` tiles in each."""

    kernel: Any
    blocks: int
    chunks: int
    steps: int
    tile: tuple[int, int]
    rows: int
    columns: int


def shares(n: int, channels: int, inner: int, *, sums: bool) -> Share:
    """Cut n elements into programs, by their shape alone: the order of every sum follows from it."""
    if not sums or channels == 1:
        tiles = triton.cdiv(n, BLOCK)
        steps = triton.cdiv(tiles, PROGRAMS) if sums else 1
        return Share(_backward, 1, triton.cdiv(tiles, steps), steps, (1, BLOCK), 1, 1)
    rows = n // (channels * inner)
    if inner < NARROW:
        columns = channels * inner
        width = min(triton.next_power_of_2(columns), 128)
        blocks, tiles = triton.cdiv(columns, width), triton.cdiv(rows, BLOCK // width)
        kernel = _backward_columns
    else:
        columns, blocks = channels, channels
        width = min(triton.next_power_of_2(inner), BLOCK)
        tiles = triton.cdiv(rows, BLOCK // width) * triton.cdiv(inner, width)
        kernel = _backward_runs
    steps = triton.cdiv(tiles, max(1, PROGRAMS // blocks))
    return Share(kernel, blocks, triton.cdiv(tiles, steps), steps, (BLOCK // width, width), rows, columns)


def _settings(bound: Bound, half: int) -> dict[str, Any]:
    """What the kernels are specialised for, whichever they are."""
    alpha, c = (0 if isinstance(v, float) else 1 if v.numel() == 1 else 2 for v in (bound.alpha, bound.c))
    basal = 0 if not half else 2 if bound.basal_leak else 1
    return {"ALPHA": alpha, "C": c, "LEAKY": bound.leak > 0, "BASAL": basal}


def _launch(kernel: Any, programs: int, x: Tensor, *arguments: Any, **settings: Any) -> None:
    try:
        with nullcontext() if INTERPRETED else torch.cuda.device(x.device):
            kernel[(programs,)](x, *arguments, **settings, num_warps=WARPS)
    except Exception as error:  # a compiler, linker or driver that is missing or too old: each has its own
        raise LaunchError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
