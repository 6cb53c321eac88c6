"""The C library: found, loaded and called here and nowhere else."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}

_POINTER, _SIZE, _REAL, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int
_ADA_FORWARD = [_POINTER, _POINTER, _SIZE, _POINTER, _POINTER, _SIZE, _SIZE, _REAL, _REAL, _INT]
_ADA_BACKWARD = [
    _POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _POINTER, _SIZE, _SIZE, _REAL, _REAL, _POINTER, _INT,
]  # fmt: skip
_PARALLEL_FROM = 32768  # elements; below it one thread is faster, as in torch


@dataclass(frozen=True)
class Library:
    """The loaded library, or the reason why there is none."""

    loaded: bool
    description: str
    openmp: bool = False
    ada_forward: dict[torch.dtype, Callable[..., None]] = field(default_factory=dict)
    ada_backward: dict[torch.dtype, Callable[..., int]] = field(default_factory=dict)


@lru_cache(maxsize=1)
def library() -> Library:
    """Load the library once: the OpenMP build where torch brought a runtime to share, else the serial one."""
    here = Path(__file__).parent
    failures = []
    for name, openmp in (("ada_openmp.so", True), ("ada_serial.so", False)):
        try:
            handle = ctypes.CDLL(str(here / name))
        except OSError as error:
            failures.append(str(error))
            continue
        return _bind(handle, openmp)
    if not any(here.glob("ada_*.so")):
        return Library(False, "no C compiler was found when apical was installed, so plain torch serves")
    return Library(False, f"the C library does not load, so plain torch serves ({'; '.join(failures)})")


def _bind(handle: ctypes.CDLL, openmp: bool) -> Library:
    def functions(name: str, arguments: list[Any], result: Any) -> dict[torch.dtype, Callable[..., Any]]:
        table = {}
        for dtype, suffix in DTYPES.items():
            function = getattr(handle, f"{name}_{suffix}")
            function.argtypes, function.restype = arguments, result
            table[dtype] = function
        return table

    threads = "shares torch's OpenMP threads" if openmp else "single-threaded: torch brought no OpenMP to share"
    level = {4: "x86-64-v4 (AVX-512)", 3: "x86-64-v3 (AVX2)"}.get(handle.apical_cpu_level(), "the compiler's baseline")
    return Library(
        loaded=True,
        description=f"C library, {threads}, CPU level {level}",
        openmp=openmp,
        ada_forward=functions("apical_ada_forward", _ADA_FORWARD, None),
        ada_backward=functions("apical_ada_backward", _ADA_BACKWARD, _INT),
    )


def is_dense(x: Tensor) -> bool:
    """True where the elements of `x` fill one stretch of memory, in whatever order of dimensions."""
    if x.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def dense(x: Tensor) -> Tensor:
    """`x`, or a contiguous copy where its memory has gaps or repeats."""
    return x if is_dense(x) else x.contiguous()


@lru_cache(maxsize=1024)
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False), torch.device("cpu"):
        return torch.tensor([value], dtype=dtype)


def _vector(value: float | Tensor, dtype: torch.dtype, channels: int) -> Tensor:
    """A parameter as the C library reads it: `channels` values in a row, in the dtype of the arithmetic."""
    if not isinstance(value, Tensor):
        value = _constant(value, dtype)
    elif value.dtype != dtype:
        value = value.to(dtype)
    return value.reshape(-1).expand(channels).contiguous() if value.numel() != channels else value.contiguous()


@dataclass(frozen=True, slots=True)
class _Layout:
    channels: int
    inner: int
    alpha: Tensor
    c: Tensor


def _layout(x: Tensor, alpha: float | Tensor, c: float | Tensor, dim: int) -> _Layout:
    """How the elements of a dense `x` meet the values of alpha and c: element i has channel (i // inner) % channels."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    channels = max((v.numel() for v in (alpha, c) if isinstance(v, Tensor)), default=1)
    inner = x.stride(dim) if channels > 1 else 1
    if channels > 1 and x.is_contiguous():  # a dimension of size 1 may have any stride
        inner = prod(x.shape[dim % x.dim() + 1 :])
    return _Layout(channels, inner, _vector(alpha, dtype, channels), _vector(c, dtype, channels))


def _threads(elements: int) -> int:
    return torch.get_num_threads() if elements > _PARALLEL_FROM else 1


def ada_forward(x: Tensor, alpha: float | Tensor, c: float | Tensor, leak: float, floor: float, dim: int) -> Tensor:
    """ADA of a plain CPU tensor."""
    x = dense(x)
    y = torch.empty_like(x)
    n = x.numel()
    p = _layout(x, alpha, c, dim)
    library().ada_forward[x.dtype](
        x.data_ptr(), y.data_ptr(), n, p.alpha.data_ptr(), p.c.data_ptr(), p.channels, p.inner, leak, floor, _threads(n)
    )
    return y


def ada_backward(
    x: Tensor,
    g: Tensor,
    alpha: float | Tensor,
    c: float | Tensor,
    leak: float,
    floor: float,
    dim: int,
    sums: bool,
) -> tuple[Tensor, Tensor | None]:
    """The gradient of x and, with `sums`, those of alpha and c per channel: float64 of shape (2, channels)."""
    x = dense(x)
    n = x.numel()
    step = 1
    if n > 1 and not any(g.stride()):
        step = 0
    elif g.stride() != x.stride():
        g = torch.empty_like(x).copy_(g)
    p = _layout(x, alpha, c, dim)
    gx = torch.empty_like(x)
    totals = torch.empty(2, p.channels, dtype=torch.float64) if sums else None
    failed = library().ada_backward[x.dtype](
        x.data_ptr(), g.data_ptr(), step, gx.data_ptr(), n, p.alpha.data_ptr(), p.c.data_ptr(), p.channels, p.inner,
        leak, floor, totals.data_ptr() if totals is not None else None, _threads(n),
    )  # fmt: skip
    if failed:
        raise MemoryError(f"no memory for the gradients of {p.channels} values of alpha; use fewer channels")
    return gx, totals
