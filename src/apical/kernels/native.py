"""The C library: found, loaded and called here and nowhere else.

Arguments are taken as checked: plain CPU tensors of one of DTYPES; alpha and c as `bind` prepared them. Their
gradients come as float64 of shape (2, channels).
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}

Value = float | Tensor
_Table = dict[torch.dtype, Callable[..., Any]]

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_FUNCTIONS: dict[str, tuple[list[Any], Any]] = {
    "ada_forward": ([_POINTER, _POINTER, _SIZE, _POINTER, _INT], None),
    "ada_backward": ([_POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _POINTER, _INT], _INT),
    "pyramidal_forward": ([_POINTER, _POINTER, _SIZE, _SIZE, _SIZE, _POINTER, _INT], None),
    "pyramidal_backward": (
        [_POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _SIZE, _SIZE, _POINTER, _POINTER, _INT],
        _INT,
    ),
}
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
        return Library(True, f"C library, {threads}, CPU level {_cpu_level(handle)}", **_functions(handle))
    if not any(here.glob("ada_*.so")):
        return Library(False, "no C compiler was found when apical was installed, so plain torch serves")
    return Library(False, f"the C library does not load, so plain torch serves ({'; '.join(failures)})")


def _cpu_level(handle: ctypes.CDLL) -> str:
    names = {4: "x86-64-v4 (AVX-512)", 3: "x86-64-v3 (AVX2)"}
    return names.get(handle.apical_cpu_level(), "of the compiler's default")


def _functions(handle: ctypes.CDLL) -> dict[str, _Table]:
    table: dict[str, _Table] = {}
    for name, (arguments, result) in _FUNCTIONS.items():
        table[name] = {}
        for dtype, suffix in DTYPES.items():
            function = getattr(handle, f"apical_{name}_{suffix}")
            function.argtypes, function.restype = arguments, result
            table[name][dtype] = function
    return table


class Bound(NamedTuple):
    """Parameters ready for C; `alive` holds the memory that `address` and the pointers behind it refer to."""

    address: int
    channels: int
    alive: tuple[Any, ...]


def ada_forward(x: Tensor, bound: Bound) -> Tensor:
    """ADA of a plain CPU tensor."""
    if not x.is_contiguous():
        x = _dense(x)
    y = torch.empty_like(x)
    n = x.numel()
    if n:
        threads = 1 if n <= PARALLEL_FROM else torch.get_num_threads()
        library().ada_forward[x.dtype](x.data_ptr(), y.data_ptr(), n, bound.address, threads)
    return y


def ada_backward(x: Tensor, g: Tensor, bound: Bound, *, sums: bool) -> tuple[Tensor, Tensor | None]:
    """The gradient of x and, with `sums`, those of alpha and c."""
    if not x.is_contiguous():
        x = _dense(x)
    gx = torch.empty_like(x)
    n = x.numel()
    totals = torch.zeros(2, bound.channels, dtype=torch.float64) if sums else None
    if n:
        step = 1
        if g.stride() != x.stride():
            g, step = _upstream(g, x.stride())
        out = None if totals is None else totals.data_ptr()
        threads = 1 if n <= PARALLEL_FROM else torch.get_num_threads()
        if library().ada_backward[x.dtype](
            x.data_ptr(), g.data_ptr(), step, gx.data_ptr(), n, bound.address, out, threads
        ):
            raise MemoryError(_NO_MEMORY)
    return gx, totals


def pyramidal_forward(z: Tensor, bound: Bound, dim: int, groups: int) -> Tensor:
    """basal(z') + ADA(z'') of a plain CPU tensor whose 2 * outputs channels stand along `dim`, group by group."""
    z = _dense(z)
    y = torch.empty_strided(*_halved(z, dim), dtype=z.dtype)
    n = y.numel()
    if n:
        threads = 1 if n <= PARALLEL_FROM else torch.get_num_threads()
        library().pyramidal_forward[z.dtype](
            z.data_ptr(), y.data_ptr(), n, groups, y.size(dim) // groups, bound.address, threads
        )
    return y


def pyramidal_backward(
    z: Tensor, g: Tensor, bound: Bound, dim: int, groups: int, *, sums: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradient of z and, with `sums`, those of alpha and c."""
    z = _dense(z)
    gz = torch.empty_like(z)
    n = g.numel()
    totals = torch.zeros(2, bound.channels, dtype=torch.float64) if sums else None
    if n:
        g, step = _upstream(g, _halved(z, dim)[1])
        out = None if totals is None else totals.data_ptr()
        threads = 1 if n <= PARALLEL_FROM else torch.get_num_threads()
        if library().pyramidal_backward[z.dtype](
            z.data_ptr(),
            g.data_ptr(),
            step,
            gz.data_ptr(),
            n,
            groups,
            g.size(dim) // groups,
            bound.address,
            out,
            threads,
        ):
            raise MemoryError(_NO_MEMORY)
    return gz, totals


def is_dense(x: Tensor) -> bool:
    """True where the elements of `x` fill one stretch of memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _dense(x: Tensor) -> Tensor:
    return x if is_dense(x) else x.contiguous()


def _halved(z: Tensor, dim: int) -> tuple[list[int], tuple[int, ...]]:
    """Shape and strides of a dense tensor like `z` with half of its channels along `dim`."""
    shape = list(z.shape)
    shape[dim] //= 2
    step = z.stride(dim)
    return shape, tuple(s if s <= step else s // 2 for s in z.stride())


def _upstream(g: Tensor, strides: tuple[int, ...]) -> tuple[Tensor, int]:
    """The upstream gradient in the layout `strides`, and how far to step in it: 0 where one value stands for all."""
    if g.stride() == strides:
        return g, 1
    if not any(g.stride()):
        return g, 0
    return torch.empty_strided(g.shape, strides, dtype=g.dtype).copy_(g), 1


def bind(
    x: Tensor, alpha: Value, c: Value, dim: int, leak: float, floor: float, basal_leak: float | None = None
) -> Bound:
    """Prepare alpha and c (numbers, or tensors of one value or one per channel along `dim`) for calls on `x`.

    Numbers are prepared once and remembered.
    Without `basal_leak` (ADA) `inner` matters only where a parameter has several values.
    """
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    if type(alpha) is float and type(c) is float:
        inner = 1 if basal_leak is None else _inner(x, dim)
        return _bound_numbers(alpha, c, dtype, inner, leak, floor, basal_leak or 0.0)
    channels = max(v.numel() for v in (alpha, c) if isinstance(v, Tensor))
    inner = 1 if basal_leak is None and channels == 1 else _inner(x, dim)
    return _bind_parameters(
        _vector(alpha, dtype, channels), _vector(c, dtype, channels), inner, leak, floor, basal_leak or 0.0
    )


@lru_cache(maxsize=4096)
def _bound_numbers(
    alpha: float, c: float, dtype: torch.dtype, inner: int, leak: float, floor: float, basal_leak: float
) -> Bound:
    return _bind_parameters(_constant(alpha, dtype), _constant(c, dtype), inner, leak, floor, basal_leak)


@lru_cache(maxsize=4096)
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor([value], dtype=dtype, device="cpu")


def _bind_parameters(alpha: Tensor, c: Tensor, inner: int, leak: float, floor: float, basal_leak: float) -> Bound:
    values = _Parameters(alpha.data_ptr(), c.data_ptr(), alpha.numel(), inner, leak, floor, basal_leak)
    return Bound(ctypes.addressof(values), alpha.numel(), (values, alpha, c))


def _inner(x: Tensor, dim: int) -> int:
    """How many neighbours in memory share a channel; a dimension of size 1 may have any stride, so count them."""
    x = _dense(x)
    return prod(x.shape[dim % x.dim() + 1 :]) if x.is_contiguous() else x.stride(dim)


def _vector(value: Value, dtype: torch.dtype, channels: int) -> Tensor:
    """A parameter as C reads it: `channels` values in a row, in the dtype of the arithmetic."""
    vector = value.to(dtype).reshape(-1) if isinstance(value, Tensor) else _constant(value, dtype)
    return vector if vector.numel() == channels and vector.is_contiguous() else vector.expand(channels).contiguous()
