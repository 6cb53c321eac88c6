"""ADA and the pyramidal sum in eager mode: one call, one saved tensor, whichever path computes it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apical.kernels import choice, composite, native


def broadcast(value: float | Tensor, x: Tensor, dim: int) -> float | Tensor:
    """A parameter in the dtype of the arithmetic, shaped so that its values meet the channels of `x` along `dim`."""
    if not isinstance(value, Tensor):
        return value
    value = value.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    if value.numel() == 1:
        return value.reshape(())
    shape = [1] * x.dim()
    shape[dim] = -1
    return value.reshape(shape)


def above(value: float | Tensor, floor: float) -> float | Tensor:
    """`value`, held at `floor` from below; its gradient passes straight through, so that it can come back."""
    if not isinstance(value, Tensor) or not floor:
        return value
    held = value.detach()
    return torch.where(held < floor, torch.full_like(held, floor), held) + (value - held)


def _composite_ada(x: Tensor, alpha: float | Tensor, c: float | Tensor, leak: float, floor: float, dim: int) -> Tensor:
    return composite.ada(x, broadcast(above(alpha, floor), x, dim), broadcast(c, x, dim), leak)


def _composite_pyramidal(
    z: Tensor,
    alpha: float | Tensor,
    c: float | Tensor,
    leak: float,
    basal_leak: float,
    floor: float,
    groups: int,
    dim: int,
) -> Tensor:
    alpha, c = broadcast(above(alpha, floor), z, dim), broadcast(c, z, dim)
    return composite.pyramidal(z, alpha, c, leak, basal_leak=basal_leak, groups=groups, dim=dim)


class _Operation(NamedTuple):
    """One function f(x, alpha, c, *constants) in its forms: in plain torch and, where there is one, in C."""

    composite: Callable[..., Tensor]
    native_forward: Callable[..., Tensor] | None
    native_backward: Callable[..., tuple[Tensor, Tensor | None]] | None


_ADA = _Operation(_composite_ada, native.ada_forward, native.ada_backward)
_PYRAMIDAL = _Operation(_composite_pyramidal, None, None)


class _Lean(torch.autograd.Function):
    """Saves its input; recomputes the rest. Higher derivatives go through the composite."""

    @staticmethod
    def forward(
        ctx: Any, operation: _Operation, path: str, x: Tensor, alpha: float | Tensor, c: float | Tensor, *constants: Any
    ) -> Tensor:
        ctx.save_for_backward(x, *(v for v in (alpha, c) if isinstance(v, Tensor)))
        ctx.numbers = (None if isinstance(alpha, Tensor) else alpha, None if isinstance(c, Tensor) else c)
        ctx.operation, ctx.constants = operation, constants
        return _plain(operation, path)(x, alpha, c, *constants)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, *tensors = ctx.saved_tensors
        alpha, c = (tensors.pop(0) if v is None else v for v in ctx.numbers)
        wanted = ctx.needs_input_grad[2:5]
        native_backward = ctx.operation.native_backward
        if (
            native_backward is None
            or torch.is_grad_enabled()
            or choice.path(g) != "native"
            or choice.path(x) != "native"
        ):
            grads = _recompute(ctx.operation.composite, (x, alpha, c), g, ctx.constants, wanted)
        else:
            gx, totals = native_backward(x, g, alpha, c, *ctx.constants, sums=wanted[1] or wanted[2])
            grads = [gx if wanted[0] else None, None, None]
            for i, value in ((1, alpha), (2, c)):
                if wanted[i] and totals is not None:
                    total = totals[i - 1] if value.numel() > 1 else totals[i - 1].sum()
                    grads[i] = total.to(value.dtype).reshape(value.shape)
        return (None, None, *grads, *(None for _ in ctx.constants))


def _plain(operation: _Operation, path: str) -> Callable[..., Tensor]:
    """The form of an operation that serves a path."""
    return operation.native_forward if path == "native" and operation.native_forward else operation.composite


def _recompute(
    function: Callable[..., Tensor],
    inputs: tuple[Tensor, float | Tensor, float | Tensor],
    g: Tensor,
    constants: tuple[Any, ...],
    wanted: tuple[bool, ...],
) -> list[Tensor | None]:
    """The gradients by differentiating the composite, differentiable themselves where the caller asks for a graph."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        if not create_graph:
            inputs = tuple(  # type: ignore[assignment]
                v.detach().requires_grad_(need) if isinstance(v, Tensor) else v
                for v, need in zip(inputs, wanted, strict=True)
            )
        y = function(*inputs, *constants)
        targets = [v for v, need in zip(inputs, wanted, strict=True) if need]
        found = list(torch.autograd.grad(y, targets, g, create_graph=create_graph))  # type: ignore[arg-type]
    return [found.pop(0) if need else None for need in wanted]


def _run(operation: _Operation, x: Tensor, alpha: float | Tensor, c: float | Tensor, *constants: Any) -> Tensor:
    """An operation by the path that fits the call."""
    path = choice.path(x)
    if path == "composite":
        return operation.composite(x, alpha, c, *constants)
    if torch.is_grad_enabled() and (
        x.requires_grad or any(isinstance(v, Tensor) and v.requires_grad for v in (alpha, c))
    ):
        return _Lean.apply(operation, path, x, alpha, c, *constants)  # type: ignore[no-any-return, no-untyped-call]
    return _plain(operation, path)(x, alpha, c, *constants)


def ada(
    x: Tensor, alpha: float | Tensor, c: float | Tensor, leak: float, *, floor: float = 0.0, dim: int = 1
) -> Tensor:
    """ADA by the path that fits the call; the arguments are taken as checked. `floor` holds alpha from below."""
    return _run(_ADA, x, alpha, c, leak, floor, dim)


def pyramidal(
    z: Tensor,
    alpha: float | Tensor,
    c: float | Tensor,
    leak: float,
    *,
    basal_leak: float = 0.0,
    floor: float = 0.0,
    groups: int = 1,
    dim: int = 1,
) -> Tensor:
    """The pyramidal sum by the path that fits the call; the arguments are taken as checked."""
    return _run(_PYRAMIDAL, z, alpha, c, leak, basal_leak, floor, groups, dim)
