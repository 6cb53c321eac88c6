"""The fused operations in eager mode: one call, one saved tensor, whichever path computes it.

An `Operation` holds the settings of a call and knows its formula three ways; `run` picks the way. The arguments are
taken as checked.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from apical.kernels import choice, composite, native

Value = float | Tensor


class Operation(Protocol):
    """What is computed from x, alpha and c; `native_backward` gives the gradient of x and the sums for alpha and c."""

    def composite(self, x: Tensor, alpha: Value, c: Value) -> Tensor: ...
    def native_forward(self, x: Tensor, alpha: Value, c: Value) -> Tensor: ...
    def native_backward(
        self, x: Tensor, g: Tensor, alpha: Value, c: Value, *, sums: bool
    ) -> tuple[Tensor, Tensor | None]: ...


class Ada(NamedTuple):
    """leak*min(0,x) + max(0,x)*exp(c - alpha*max(0,x)), alpha held at `floor` from below."""

    leak: float = 0.0
    floor: float = 0.0
    dim: int = 1

    def composite(self, x: Tensor, alpha: Value, c: Value) -> Tensor:
        return composite.ada(x, *_broadcast(x, alpha, c, self.floor, self.dim), self.leak)

    def native_forward(self, x: Tensor, alpha: Value, c: Value) -> Tensor:
        return native.ada_forward(x, alpha, c, *self)

    def native_backward(
        self, x: Tensor, g: Tensor, alpha: Value, c: Value, *, sums: bool
    ) -> tuple[Tensor, Tensor | None]:
        return native.ada_backward(x, g, alpha, c, *self, sums=sums)


class Pyramidal(NamedTuple):
    """basal(x') + ADA(x''), Eq. 12 of the paper; x' and x'' are the halves of x along `dim`, group by group."""

    leak: float = 0.0
    floor: float = 0.0
    dim: int = 1
    basal_leak: float = 0.0
    groups: int = 1

    def composite(self, x: Tensor, alpha: Value, c: Value) -> Tensor:
        basal, apical = composite.branches(x, self.groups, self.dim)
        values = _broadcast(apical, alpha, c, self.floor, self.dim)
        return composite.pyramidal(basal, apical, *values, self.leak, self.basal_leak)

    def native_forward(self, x: Tensor, alpha: Value, c: Value) -> Tensor:
        return native.pyramidal_forward(x, alpha, c, *self)

    def native_backward(
        self, x: Tensor, g: Tensor, alpha: Value, c: Value, *, sums: bool
    ) -> tuple[Tensor, Tensor | None]:
        return native.pyramidal_backward(x, g, alpha, c, *self, sums=sums)


def run(operation: Operation, x: Tensor, alpha: Value, c: Value) -> Tensor:
    """Compute `operation` by the path that fits the call."""
    path = choice.path(x)
    if path == "composite":
        return operation.composite(x, alpha, c)
    if torch.is_grad_enabled() and (x.requires_grad or _requires_grad(alpha) or _requires_grad(c)):
        return _Fused.apply(x, alpha, c, operation, path)  # type: ignore[no-any-return, no-untyped-call]
    return operation.native_forward(x, alpha, c) if path == "native" else operation.composite(x, alpha, c)


class _Fused(torch.autograd.Function):
    """Saves its input and recomputes the rest. Higher derivatives go through the composite."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Value, c: Value, operation: Operation, path: str) -> Tensor:
        ctx.save_for_backward(x, *(v for v in (alpha, c) if isinstance(v, Tensor)))
        ctx.numbers = (None if isinstance(alpha, Tensor) else alpha, None if isinstance(c, Tensor) else c)
        ctx.operation, ctx.native = operation, path == "native"
        return operation.native_forward(x, alpha, c) if path == "native" else operation.composite(x, alpha, c)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, *tensors = ctx.saved_tensors
        alpha, c = (tensors.pop(0) if v is None else v for v in ctx.numbers)
        wanted = ctx.needs_input_grad[:3]
        if not ctx.native or torch.is_grad_enabled() or choice.observed() or choice.why_not_native(g):
            return (*_recomputed(ctx.operation, (x, alpha, c), g, wanted), None, None)
        gx, sums = ctx.operation.native_backward(x, g, alpha, c, sums=wanted[1] or wanted[2])
        if sums is None:
            return gx, None, None, None, None
        return (
            gx if wanted[0] else None,
            _fit(sums[0], alpha) if wanted[1] else None,
            _fit(sums[1], c) if wanted[2] else None,
            None,
            None,
        )


def _fit(total: Tensor, value: Tensor) -> Tensor:
    """The gradient of a parameter from its sums per channel, in the shape and dtype of the parameter."""
    total = total if value.numel() == total.numel() else total.sum()
    return total.to(value.dtype).reshape(value.shape)


def _recomputed(
    operation: Operation, inputs: tuple[Tensor, Value, Value], g: Tensor, wanted: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradients by differentiating the composite, differentiable themselves where the caller asks for a graph."""
    create_graph = torch.is_grad_enabled()
    values: list[Any] = list(inputs)
    with torch.enable_grad():
        if not create_graph:
            values = [v.detach() if isinstance(v, Tensor) else v for v in values]
            for value, need in zip(values, wanted, strict=True):
                if need:
                    value.requires_grad_()
        y = operation.composite(*values)
        targets = [v for v, need in zip(values, wanted, strict=True) if need]
        found = list(torch.autograd.grad(y, targets, g, create_graph=create_graph))
    return [found.pop(0) if need else None for need in wanted]


def _requires_grad(value: Value) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _broadcast(x: Tensor, alpha: Value, c: Value, floor: float, dim: int) -> tuple[Value, Value]:
    return broadcast(_above(alpha, floor), x, dim), broadcast(c, x, dim)


def broadcast(value: Value, x: Tensor, dim: int) -> Value:
    """A parameter in the dtype of the arithmetic, shaped so that its values meet the channels of `x` along `dim`."""
    if not isinstance(value, Tensor):
        return value
    value = value.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    if value.numel() == 1:
        return value.reshape(())
    shape = [1] * x.dim()
    shape[dim] = -1
    return value.reshape(shape)


def _above(value: Value, floor: float) -> Value:
    """`value`, held at `floor` from below; its gradient passes straight through, so that it can come back."""
    if not isinstance(value, Tensor) or not floor:
        return value
    held = value.detach()
    return torch.where(held < floor, torch.full_like(held, floor), held) + (value - held)
