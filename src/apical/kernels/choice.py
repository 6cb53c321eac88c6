"""Which path computes a call, and why.

- native: the C library, for plain CPU tensors in eager mode;
- lean: the composite inside an autograd.Function that saves its input alone, for every other eager call;
- composite: plain torch, whenever something looks at the operations themselves (compile, export, transforms, traces).
"""

import os
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from apical import torch_private
from apical.errors import BackendError, DtypeError
from apical.kernels import native

Path = Literal["native", "lean", "composite"]

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


@dataclass(frozen=True)
class Backend:
    """The path that eager CPU calls take, and the reason."""

    name: Literal["native", "composite"]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def forced() -> str | None:
    """The path that APICAL_BACKEND asks for, if any; asked at every call, so it looks before it leaps."""
    if _VARIABLE not in _ENVIRONMENT:
        return None
    value = os.environ.get("APICAL_BACKEND") or None
    if value not in (None, "native", "composite"):
        raise BackendError(
            f"APICAL_BACKEND is {value!r}, which is no backend: set it to 'native' or 'composite', or unset it"
        )
    return value


def backend() -> Backend:
    """Which path eager CPU calls take on this machine, and why."""
    if forced() == "composite":
        return Backend("composite", "APICAL_BACKEND asks for it")
    library = native.library()
    if library.loaded:
        return Backend("native", library.description)
    return Backend("composite", library.description)


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
    if reason is None and wish == "native" and native.library().loaded:
        return "native"
    if wish == "native" and getattr(x, "is_cpu", False):
        raise BackendError(
            f"APICAL_BACKEND=native cannot serve this call: {reason or native.library().description}; "
            "unset APICAL_BACKEND to let apical choose"
        )
    return "lean" if type(x) in _PLAIN_TYPES else "composite"
