"""Which path computes a call, and why.

- native: the C library, for plain CPU tensors in eager mode;
- triton: the Triton kernels, for plain CUDA and ROCm tensors in eager mode, where Triton imports;
- lean: the composite inside an autograd.Function that saves its input alone, for every other eager call;
- composite: plain torch, whenever something looks at the operations themselves (compile, export, transforms, traces).
"""

import os
import warnings
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from apical import torch_private
from apical.errors import BackendError, DtypeError
from apical.kernels import native

Path = Literal["native", "triton", "lean", "composite"]

# A look-up in os.environ costs a microsecond, in the dictionary behind it a tenth of that.
_ENVIRONMENT = getattr(os.environ, "_data", os.environ)
_VARIABLE = os.environ.encodekey("APICAL_BACKEND") if hasattr(os.environ, "encodekey") else "APICAL_BACKEND"
# Bound once: every eager call asks all of them.
_is_compiling = torch.compiler.is_compiling
_dispatch_modes = torch_private.dispatch_modes
_function_modes = torch_private.function_modes
_functorch_level = torch_private.functorch_level
_tracing_state = torch_private.tracing_state

_PLAIN_TYPES = {Tensor, torch.nn.Parameter}


_BACKENDS = ("native", "triton", "composite")


class LaunchError(BackendError):
    """A Triton kernel could not be compiled or launched."""


@dataclass(frozen=True)
class Backend:
    """The path that eager calls on a device take, and the reason."""

    name: Literal["native", "triton", "composite"]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def forced() -> str | None:
    """The path that APICAL_BACKEND asks for, if any; asked at every call, so it looks before it leaps."""
    if _VARIABLE not in _ENVIRONMENT:
        return None
    value = os.environ.get("APICAL_BACKEND") or None
    if value is not None and value not in _BACKENDS:
        raise BackendError(
            f"APICAL_BACKEND is {value!r}, which is not a backend: "
            "set it to 'native', 'triton' or 'composite', or unset it"
        )
    return value


def backend(device: str | torch.device = "cpu") -> Backend:
    """Which path eager calls on `device` take on this machine, and why."""
    kind = torch.device(device).type
    if forced() == "composite":
        return Backend("composite", "APICAL_BACKEND asks for it")
    if kind == "cuda":
        gpu = triton()
        return Backend("composite" if gpu.module is None else "triton", gpu.description)
    if kind != "cpu":
        return Backend("composite", f"there is no kernel for {kind}, so plain torch computes it")
    library = native.library()
    if library.loaded:
        return Backend("native", library.description)
    return Backend("composite", library.description)


@dataclass(frozen=True)
class Triton:
    """The module of the Triton kernels, or the reason why there is none."""

    module: ModuleType | None
    description: str


@lru_cache(maxsize=1)
def _imported() -> Triton:
    try:
        from apical.kernels import triton as module  # noqa: PLC0415
    except ImportError as error:
        if error.name == "triton":
            return Triton(None, "Triton is not installed, so plain torch computes it")
        return Triton(None, f"Triton does not import, so plain torch computes it ({error})")
    except Exception as error:  # a Triton that does not fit this torch, Python or driver fails in ways of its own
        return Triton(None, f"Triton does not import, so plain torch computes it ({type(error).__name__}: {error})")
    return Triton(module, f"Triton {module.VERSION}; compiled and emulated, not yet run on a GPU by apical's tests")


_failure: str | None = None


def triton() -> Triton:
    """The Triton kernels, unless they do not import or a launch has failed."""
    return _imported() if _failure is None else Triton(None, _failure)


def triton_kernels() -> ModuleType:
    """The module of the Triton kernels, for a call whose path is triton."""
    module = triton().module
    assert module is not None
    return module


def launch_failed(error: LaunchError) -> None:
    """Say once that plain torch serves from here on; where Triton was asked for, fail."""
    global _failure  # noqa: PLW0603
    if forced() == "triton":
        raise _refusal("triton", str(error)) from error
    if _failure is None:
        _failure = f"a Triton kernel could not be launched, so plain torch computes it ({error})"
        warnings.warn(f"apical: {_failure}", RuntimeWarning, stacklevel=2)


def observed() -> bool:
    """True while something other than plain eager autograd looks at the operations."""
    return bool(
        _is_compiling()
        or _dispatch_modes()
        or _function_modes()
        or _functorch_level() is not None
        or _tracing_state() is not None
        or forward_ad._current_level >= 0
    )


def why_not_native(x: Tensor) -> str | None:
    """What keeps the C library from computing on the memory of `x`, or None."""
    if type(x) not in _PLAIN_TYPES:
        return f"the input is a {type(x).__name__}, not a plain tensor"
    if not x.is_cpu:
        return f"the input is on {x.device}"
    if x.layout is not torch.strided:
        return f"the input's layout is {x.layout}"
    if x.dtype not in native.DTYPES:
        return f"the input's dtype is {x.dtype}"
    if not _has_memory(x):
        return "the input has no memory of its own"
    return None


def why_not_triton(x: Tensor) -> str | None:
    """What keeps the Triton kernels from computing on the memory of `x`, or None."""
    if type(x) not in _PLAIN_TYPES:
        return f"the input is a {type(x).__name__}, not a plain tensor"
    gpu = triton()
    if gpu.module is None:
        return gpu.description
    if not (x.is_cpu if gpu.module.INTERPRETED else x.is_cuda):
        return f"the input is on {x.device}"
    if x.layout is not torch.strided:
        return f"the input's layout is {x.layout}"
    if x.dtype not in gpu.module.DTYPES:
        return f"the input's dtype is {x.dtype}"
    if not _has_memory(x):
        return "the input has no memory of its own"
    return None


def serves(kernels: ModuleType, x: Tensor) -> bool:
    """True where these kernels can compute on the memory of `x`."""
    return (why_not_native(x) if kernels is native else why_not_triton(x)) is None


def _has_memory(x: Tensor) -> bool:
    """False for lazy negation, zeros that were never stored, and wrappers such as batched gradients."""
    if x.is_neg():
        return False
    try:
        return bool(x.data_ptr()) or not x.numel()
    except RuntimeError:
        return False


def check_input(x: object) -> None:
    """Refuse anything but a floating-point tensor, or what stands for one in a trace."""
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, torch.dtype) and not dtype.is_floating_point:
        raise DtypeError(f"a floating-point tensor is needed, got {dtype}: convert it first, e.g. x.float()")
    if not isinstance(x, Tensor) and not hasattr(x, "__torch_function__"):
        raise DtypeError(f"a tensor is needed, got {type(x).__name__}: convert it first, e.g. torch.tensor(x)")


def path(x: Tensor) -> Path:
    """The path for a call on `x`: the one place that decides."""
    if observed():
        return "composite"
    wish = forced()
    reason = why_not_native(x)
    if reason is None and wish is None and native.library().loaded:
        return "native"
    return _second_choice(x, wish, reason)


def _second_choice(x: Tensor, wish: str | None, reason: str | None) -> Path:
    # `is True`: the attributes of a proxy, in a symbolic trace, are proxies that have no truth value.
    on_cpu, on_gpu = getattr(x, "is_cpu", False) is True, getattr(x, "is_cuda", False) is True
    if wish != "composite" and (on_gpu or (wish == "triton" and _interpreted())):
        obstacle = why_not_triton(x)
        if obstacle is None:
            return "triton"
        if wish == "triton" and x.dtype is not torch.float64:
            raise _refusal(wish, obstacle)
    elif wish != "composite" and reason is None and native.library().loaded:
        return "native"
    if wish == "native" and on_cpu:
        raise _refusal(wish, reason or native.library().description)
    return "lean" if type(x) in _PLAIN_TYPES else "composite"


def _interpreted() -> bool:
    module = triton().module
    return module is not None and module.INTERPRETED


def _refusal(wish: str, reason: str) -> BackendError:
    return BackendError(
        f"APICAL_BACKEND={wish} cannot run this call: {reason}; unset APICAL_BACKEND to let apical choose"
    )
