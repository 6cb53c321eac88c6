"""The C library: found, loaded and called here and nowhere else.

Arguments are taken as checked: plain CPU tensors of one of DTYPES; alpha and c as `bind` prepared them. Their
gradients come as `channels` values in the dtype of the arithmetic, where `wanted` asks for them.
"""

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}

Value = float | Tensor
_Table = dict[torch.dtype, Callable[..., Any]]

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_FUNCTIONS: dict[str, tuple[list[Any], Any]] = {
    "ada_forward": ([_POINTER, _POINTER, _SIZE, _POINTER, _INT], None),
    "ada_backward": ([_POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _POINTER, _POINTER, _INT], _INT),
    "pyramidal_forward": ([_POINTER, _POINTER, _SIZE, _SIZE, _SIZE, _POINTER, _INT], None),
    "pyramidal_backward": (
        [_POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _SIZE, _SIZE, _POINTER, _POINTER, _POINTER, _INT],
        _INT,
    ),
}
_IMAGE_FUNCTIONS: dict[str, tuple[list[Any], Any]] = {
    "conv_forward": ([*[_POINTER] * 5, _INT, _INT], _INT),
    "conv_input": ([*[_POINTER] * 4, _INT], _INT),
    "conv_weight": ([*[_POINTER] * 5, _INT, _INT], _INT),
    "pool_forward": ([*[_POINTER] * 5, _INT], _INT),
    "pool_backward": ([*[_POINTER] * 4, _INT], _INT),
}
"""Those of conv.c, for float32 and float64."""
_NORM_FUNCTIONS: dict[str, tuple[list[Any], Any]] = {
    "norm_forward": ([*[_POINTER] * 4, _INT], _INT),
    "norm_backward": ([*[_POINTER] * 8, _INT], _INT),
}
"""Those of norm.h, for float32."""
_NEURON_FUNCTIONS: dict[str, tuple[list[Any], Any]] = {
    "neurons_forward": ([*[_POINTER] * 3, _INT], None),
    "neurons_backward": ([*[_POINTER] * 5, _INT], None),
    "neurons_pool_forward": ([*[_POINTER] * 5, _INT], _INT),
    "neurons_pool_backward": ([*[_POINTER] * 6, _INT], None),
}
"""Those of neurons.h, for float32."""
_WINOGRAD_FUNCTIONS: dict[str, tuple[list[Any], Any]] = {
    "winograd_spread": ([*[_POINTER] * 3, _INT, _INT], None),
    "winograd_collect": ([*[_POINTER] * 4, _INT, _INT], None),
}
"""Those of winograd.c, for float32 and float64."""
PARALLEL_FROM = 32768  # elements; up to there one thread is faster, as in torch
_NO_MEMORY = "no memory for the partial sums of the gradients of alpha and c"


class _Parameters(ctypes.Structure):
    """The struct `parameters` of ada.c."""

    _fields_ = (
        ("alpha", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        ("channels", ctypes.c_int64),
        ("inner", ctypes.c_int64),
        ("leak", ctypes.c_double),
        ("floor", ctypes.c_double),
        ("basal_leak", ctypes.c_double),
    )


@dataclass(frozen=True)
class Library:
    """The loaded library, or the reason why there is none."""

    loaded: bool
    description: str
    ada_forward: _Table = field(default_factory=dict)
    ada_backward: _Table = field(default_factory=dict)
    pyramidal_forward: _Table = field(default_factory=dict)
    pyramidal_backward: _Table = field(default_factory=dict)
    images: dict[str, _Table] = field(default_factory=dict)
    norms: dict[str, _Table] = field(default_factory=dict)
    neurons: dict[str, _Table] = field(default_factory=dict)
    winograd: dict[str, _Table] = field(default_factory=dict)


@lru_cache(maxsize=1)
def library() -> Library:
    """Load the library once: the OpenMP build where torch brought a runtime to share, else the serial one."""
    here = Path(__file__).parent
    failures = []
    for name, threads in (
        ("ada_openmp.so", "shares torch's OpenMP threads"),
        ("ada_serial.so", "single-threaded: torch brought no OpenMP to share"),
    ):
        try:
            handle = ctypes.CDLL(str(here / name))
        except OSError as error:
            failures.append(str(error))
            continue
        description = f"C library, {threads}, CPU level {_cpu_level(handle)}"
        operations = _functions(handle, _FUNCTIONS, DTYPES)
        return Library(
            True,
            description,
            **operations,
            images=_images(handle),
            norms=_floats(handle, _NORM_FUNCTIONS),
            neurons=_floats(handle, _NEURON_FUNCTIONS),
            winograd=_winograd(handle),
        )
    if not any(here.glob("ada_*.so")):
        return Library(False, "no C compiler was found when apical was installed, so plain torch computes it")
    return Library(False, f"the C library does not load, so plain torch computes it ({'; '.join(failures)})")


def _cpu_level(handle: ctypes.CDLL) -> str:
    names = {4: "x86-64-v4 (AVX-512)", 3: "x86-64-v3 (AVX2)"}
    return names.get(handle.apical_cpu_level(), "of the compiler's default")


def _images(handle: ctypes.CDLL) -> dict[str, _Table]:
    """The functions of conv.c for this processor; none of a library that an earlier version built."""
    if not hasattr(handle, "apical_conv_forward_narrow_f32"):
        return {}
    width = "wide" if handle.apical_cpu_level() == 4 else "narrow"
    return _functions(handle, _IMAGE_FUNCTIONS, {torch.float32: f"{width}_f32", torch.float64: f"{width}_f64"})


def _floats(handle: ctypes.CDLL, functions: dict[str, tuple[list[Any], Any]]) -> dict[str, _Table]:
    """Functions that are for float32 alone; none of a library that an earlier version built."""
    if not all(hasattr(handle, f"apical_{name}_f32") for name in functions):
        return {}
    return _functions(handle, functions, {torch.float32: "f32"})


def _winograd(handle: ctypes.CDLL) -> dict[str, _Table]:
    """The functions of winograd.c, which on x86 need AVX2; none of a library that an earlier version built."""
    if not hasattr(handle, "apical_winograd_spread_f32") or handle.apical_winograd_level() > handle.apical_cpu_level():
        return {}
    return _functions(handle, _WINOGRAD_FUNCTIONS, {torch.float32: "f32", torch.float64: "f64"})


def _functions(
    handle: ctypes.CDLL, functions: dict[str, tuple[list[Any], Any]], dtypes: dict[torch.dtype, str]
) -> dict[str, _Table]:
    table: dict[str, _Table] = {}
    for name, (arguments, result) in functions.items():
        table[name] = {}
        for dtype, suffix in dtypes.items():
            function = getattr(handle, f"apical_{name}_{suffix}")
            function.argtypes, function.restype = arguments, result
            table[name][dtype] = function
    return table


class Bound(NamedTuple):
    """Parameters ready for C; `alive` holds the memory that `address` and the pointers behind it refer to."""

    forward: Callable[..., None]
    backward: Callable[..., int]
    address: int
    channels: int
    dtype: torch.dtype
    alive: tuple[Any, ...]
    kernels: ModuleType = sys.modules[__name__]


def ada_forward(x: Tensor, bound: Bound, out: Tensor | None = None) -> Tensor:
    """ADA of a plain CPU tensor; into `out`, which has its shape and strides, where it is given."""
    if not x.is_contiguous():
        x = dense(x)
    y = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n:
        threads = 1 if n <= PARALLEL_FROM else torch.get_num_threads()
        bound.forward(x.data_ptr(), y.data_ptr(), n, bound.address, threads)
    return y


Gradients = tuple[Tensor, Tensor | None, Tensor | None]


def ada_backward(x: Tensor, g: Tensor, bound: Bound, wanted: tuple[bool, bool], out: Tensor | None = None) -> Gradients:
    """The gradients of x, alpha and c; that of x into `out`, which is like x and may be g, where it is given."""
    if not x.is_contiguous():
        x = dense(x)
    gx = torch.empty_like(x) if out is None else out
    galpha, gc = _room(bound, wanted)
    n = x.numel()
    if n:
        step = 1
        if g.stride() != x.stride():
            g, step = upstream(g, x.stride())
        threads = 1 if n <= PARALLEL_FROM else torch.get_num_threads()
        if bound.backward(
            x.data_ptr(), g.data_ptr(), step, gx.data_ptr(), n, bound.address, _at(galpha), _at(gc), threads
        ):
            raise MemoryError(_NO_MEMORY)
    return gx, galpha, gc


def pyramidal_forward(z: Tensor, bound: Bound, dim: int, groups: int, out: Tensor | None = None) -> Tensor:
    """basal(z') + ADA(z'') of a plain CPU tensor whose 2 * outputs channels stand along `dim`, group by group."""
    if not z.is_contiguous():
        z = dense(z)
    y = torch.empty_strided(*halved(z, dim), dtype=z.dtype) if out is None else out
    n = y.numel()
    if n:
        threads = 1 if n <= PARALLEL_FROM else torch.get_num_threads()
        bound.forward(z.data_ptr(), y.data_ptr(), n, groups, y.size(dim) // groups, bound.address, threads)
    return y


def pyramidal_backward(
    z: Tensor, g: Tensor, bound: Bound, wanted: tuple[bool, bool], dim: int, groups: int, out: Tensor | None = None
) -> Gradients:
    """The gradients of z, alpha and c."""
    if not z.is_contiguous():
        z = dense(z)
    gz = torch.empty_like(z) if out is None else out
    galpha, gc = _room(bound, wanted)
    n = g.numel()
    if n:
        step = 1
        if not (g.is_contiguous() and z.is_contiguous()):
            g, step = upstream(g, halved(z, dim)[1])
        outputs = g.size(dim) // groups
        threads = 1 if n <= PARALLEL_FROM else torch.get_num_threads()
        if bound.backward(
            z.data_ptr(), g.data_ptr(), step, gz.data_ptr(), n, groups, outputs, bound.address, _at(galpha), _at(gc),
            threads,
        ):  # fmt: skip
            raise MemoryError(_NO_MEMORY)
    return gz, galpha, gc


def _room(bound: Bound, wanted: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    """Room for the gradients of alpha and c; zeros, because an empty input leaves it untouched."""
    alpha = torch.zeros(bound.channels, dtype=bound.dtype) if wanted[0] else None
    return alpha, torch.zeros(bound.channels, dtype=bound.dtype) if wanted[1] else None


def _at(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def is_dense(x: Tensor) -> bool:
    """True where the elements of `x` fill one stretch of memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def dense(x: Tensor) -> Tensor:
    """`x` itself, or a contiguous copy where it has gaps."""
    return x if is_dense(x) else x.contiguous()


def halved(z: Tensor, dim: int) -> tuple[list[int], tuple[int, ...]]:
    """Shape and strides of a dense tensor like `z` with half of its channels along `dim`."""
    shape = list(z.shape)
    shape[dim] //= 2
    step = z.stride(dim)
    return shape, tuple(s if s <= step else s // 2 for s in z.stride())


def upstream(g: Tensor, strides: tuple[int, ...]) -> tuple[Tensor, int]:
    """The upstream gradient in the layout `strides`, and how far to step in it: 0 where one value stands for all."""
    if g.stride() == strides:
        return g, 1
    if not any(g.stride()):
        return g, 0
    return torch.empty_strided(g.shape, strides, dtype=g.dtype, device=g.device).copy_(g), 1


def bind(
    x: Tensor, alpha: Value, c: Value, dim: int, leak: float, floor: float, basal_leak: float | None = None
) -> Bound:
    """Prepare alpha and c (numbers, or tensors of one value or one per channel along `dim`) for calls on `x`.

    With `basal_leak` for the pyramidal sum, without it for ADA. Numbers are prepared once and remembered.
    """
    if type(alpha) is float and type(c) is float:
        inner = 1 if basal_leak is None else inner_of(x, dim)
        return _bind_numbers(alpha, c, x.dtype, inner, leak, floor, basal_leak)
    channels = max(v.numel() for v in (alpha, c) if isinstance(v, Tensor))
    inner = 1 if basal_leak is None and channels == 1 else inner_of(x, dim)
    return _bind(alpha, c, channels, x.dtype, inner, leak, floor, basal_leak)


@lru_cache(maxsize=4096)
def _bind_numbers(
    alpha: float, c: float, dtype: torch.dtype, inner: int, leak: float, floor: float, basal_leak: float | None
) -> Bound:
    return _bind(alpha, c, 1, dtype, inner, leak, floor, basal_leak)


def _bind(
    alpha: Value,
    c: Value,
    channels: int,
    dtype: torch.dtype,
    inner: int,
    leak: float,
    floor: float,
    basal_leak: float | None,
) -> Bound:
    real = torch.float64 if dtype == torch.float64 else torch.float32
    a, b = _vector(alpha, real, channels), _vector(c, real, channels)
    values = _Parameters(a.data_ptr(), b.data_ptr(), channels, inner, leak, floor, basal_leak or 0.0)
    code = library()
    forward, backward = (
        (code.ada_forward, code.ada_backward)
        if basal_leak is None
        else (code.pyramidal_forward, code.pyramidal_backward)
    )
    return Bound(forward[dtype], backward[dtype], ctypes.addressof(values), channels, real, (values, a, b))


@lru_cache(maxsize=4096)
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor([value], dtype=dtype, device="cpu")


def inner_of(x: Tensor, dim: int) -> int:
    """How many neighbours in memory share a channel; a dimension of size 1 may have any stride, so count them."""
    if x.is_contiguous():
        return 1 if dim == -1 else prod(x.shape[dim % x.dim() + 1 :])
    return x.stride(dim) if is_dense(x) else inner_of(x.contiguous(), dim)


def _vector(value: Value, dtype: torch.dtype, channels: int) -> Tensor:
    """A parameter as C reads it: `channels` values in a row, in the dtype of the arithmetic."""
    if not isinstance(value, Tensor):
        value = _constant(value, dtype)
    elif value.dtype != dtype:
        value = value.to(dtype)
    return value if value.numel() == channels and value.is_contiguous() else value.expand(channels).contiguous()
