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

from apical.errors import BackendError
from apical.kernels import native

Path = Literal["native", "lean", "composite"]

_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class Backend:
    """The path that eager CPU calls take, and the reason."""

    name: Literal["native", "composite"]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def forced() -> str | None:
    """The path that APICAL_BACKEND asks for, if any."""
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
        torch.compiler.is_compiling()
        or torch._C._functorch.maybe_current_level() is not None
        or forward_ad._current_level >= 0
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._get_tracing_state() is not None
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
    if x.is_neg() or (x.data_ptr() == 0 and x.numel() > 0):
        return "the input has no memory of its own"
    return None


def path(x: Tensor) -> Path:
    """The path for a call on `x`: the one place that decides."""
    if observed() or not isinstance(x, Tensor):
        return "composite"
    wish = forced()
    reason = why_not_native(x)
    if reason is None and wish != "composite" and native.library().loaded:
        return "native"
    if wish == "native" and x.is_cpu:
        raise BackendError(
            f"APICAL_BACKEND=native cannot serve this call: {reason or native.library().description}; "
            "unset APICAL_BACKEND to let apical choose"
        )
    return "lean" if type(x) in _PLAIN_TYPES else "composite"
