"""The fused operations in eager mode: one call, one saved tensor, whichever path computes it.

An `Operation` holds the settings of a call and knows its formula in plain torch and by kernels, those of the C library
or of Triton; `run` picks the way. The arguments are taken as checked.
"""

from types import ModuleType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from apical.kernels import choice, composite, native

Value = float | Tensor
Room = Tensor | None
"""Memory for a result of a kernel; it takes some where there is none."""
Wanted = tuple[bool, bool]
"""Whether the gradients of alpha and of c are."""


class Bound(Protocol):
    """alpha and c as `bind` of a module of kernels, `native` or `triton`, prepared them."""

    @property
    def kernels(self) -> ModuleType: ...


class Operation(Protocol):
    """What is computed from x, alpha and c: in plain torch, or by kernels with alpha and c bound to them."""

    def composite(self, x: Tensor, alpha: Value, c: Value) -> Tensor: ...
    def undefined(self, x: Tensor) -> Tensor: ...
    def bind(self, x: Tensor, alpha: Value, c: Value, kernels: ModuleType = native) -> Bound: ...
    def forward(self, x: Tensor, bound: Bound, out: Room = None) -> Tensor: ...
    def backward(self, x: Tensor, g: Tensor, bound: Bound, wanted: Wanted, out: Room = None) -> native.Gradients: ...


class Ada(NamedTuple):
    """leak*min(0,x) + max(0,x)*exp(c - alpha*max(0,x)), alpha held at `floor` from below."""

    leak: float = 0.0
    floor: float = 0.0
    dim: int = 1

    def composite(self, x: Tensor, alpha: Value, c: Value) -> Tensor:
        return composite.ada(x, *_broadcast(x, alpha, c, self.floor, self.dim), self.leak)

    def undefined(self, x: Tensor) -> Tensor:
        """Where the gradient is NaN: a clamp, which the composite is made of, has 0 there."""
        return x.isnan()

    def bind(self, x: Tensor, alpha: Value, c: Value, kernels: ModuleType = native) -> Bound:
        return kernels.bind(x, alpha, c, self.dim, self.leak, self.floor)  # type: ignore[no-any-return]

    def forward(self, x: Tensor, bound: Bound, out: Room = None) -> Tensor:
        return bound.kernels.ada_forward(x, bound, out)  # type: ignore[no-any-return]

    def backward(self, x: Tensor, g: Tensor, bound: Bound, wanted: Wanted, out: Room = None) -> native.Gradients:
        return bound.kernels.ada_backward(x, g, bound, wanted, out)  # type: ignore[no-any-return]


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

    def undefined(self, x: Tensor) -> Tensor:
        """Where the gradient is NaN; that of the basal half is ReLU's."""
        mask = x.isnan()
        dim = self.dim % x.dim()
        mask.unflatten(dim, (self.groups, 2, -1)).select(dim + 1, 0).fill_(False)  # type: ignore[no-untyped-call]
        return mask

    def bind(self, x: Tensor, alpha: Value, c: Value, kernels: ModuleType = native) -> Bound:
        return kernels.bind(x, alpha, c, self.dim, self.leak, self.floor, self.basal_leak)  # type: ignore[no-any-return]

    def forward(self, x: Tensor, bound: Bound, out: Room = None) -> Tensor:
        return bound.kernels.pyramidal_forward(x, bound, self.dim, self.groups, out)  # type: ignore[no-any-return]

    def backward(self, x: Tensor, g: Tensor, bound: Bound, wanted: Wanted, out: Room = None) -> native.Gradients:
        return bound.kernels.pyramidal_backward(x, g, bound, wanted, self.dim, self.groups, out)  # type: ignore[no-any-return]


def run(operation: Operation, x: Tensor, alpha: Value, c: Value) -> Tensor:
    """Compute `operation` by the path that fits the call. Numbers must be floats."""
    path = choice.path(x)
    tensors = () if type(alpha) is type(c) is float else tuple(v for v in (alpha, c) if isinstance(v, Tensor))
    if path == "native":
        bound: Bound | None = operation.bind(x, alpha, c)
    else:
        choice.check_input(x)  # what is native is a floating-point tensor
        if path == "composite":
            return operation.composite(x, alpha, c)
        bound = None
        if path == "triton" and all(v.device == x.device for v in tensors):
            bound = operation.bind(x, alpha, c, choice.triton_kernels())
    if torch.is_grad_enabled() and (x.requires_grad or any(v.requires_grad for v in tensors)):
        return _apply(x, (operation, bound, alpha, c), *tensors)  # type: ignore[no-any-return, no-untyped-call]
    return _evaluated(operation, bound, x, alpha, c)


def _evaluated(operation: Operation, bound: Bound | None, x: Tensor, alpha: Value, c: Value) -> Tensor:
    if bound is not None:
        try:
            return operation.forward(x, bound)
        except choice.LaunchError as error:
            choice.launch_failed(error)
    return operation.composite(x, alpha, c)


def dendrite(x: Tensor) -> Tensor:
    """Eq. 2 of the paper; plain torch on every path."""
    return composite.dendrite(x)


def rbf(x: Tensor, s: Value, dim: int) -> Tensor:
    """exp(-x^2 / s); plain torch on every path."""
    return composite.rbf(x, broadcast(s, x, dim))


def swish(x: Tensor, beta: Value, dim: int) -> Tensor:
    """x * sigmoid(beta * x): torch's own fused SiLU for beta = 1, plain torch otherwise."""
    if type(beta) is float and beta == 1.0:
        return torch.nn.functional.silu(x)
    return composite.swish(x, broadcast(beta, x, dim))


for _name in ("run", "dendrite", "rbf", "swish"):
    torch.fx.wrap(_name)  # a symbolic trace keeps these calls whole: proxies have no dtype to branch on


class _Fused(torch.autograd.Function):
    """Saves its input and recomputes the rest. Higher derivatives go through the composite.

    `call` is (operation, bound, alpha, c); those of alpha and c that are tensors come once more as `tensors`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, call: tuple[Any, ...], *tensors: Tensor) -> Tensor:
        operation, bound, alpha, c = call
        if tensors:  # kept by save_for_backward alone, which notices changes in place
            ctx.call = operation, bound, *(v if type(v) is float else None for v in (alpha, c))
        else:
            ctx.call = call
        ctx.save_for_backward(x, *tensors)
        return _evaluated(operation, bound, x, alpha, c)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, *tensors = ctx.saved_tensors
        operation, bound, alpha, c = ctx.call
        if bound is None or torch.is_grad_enabled() or choice.observed() or not choice.serves(bound.kernels, g):
            return _recomputed(ctx, g)
        needed = iter(ctx.needs_input_grad[2:])
        wanted = alpha is None and next(needed), c is None and next(needed)
        try:
            gx, *rest = operation.backward(x, g, bound, wanted)
        except choice.LaunchError as error:
            choice.launch_failed(error)
            return _recomputed(ctx, g)
        if not tensors:
            return gx, None
        ordered = (gradient for gradient, value in zip(rest, (alpha, c), strict=True) if value is None)
        return gx, None, *map(_fit, ordered, tensors)


# The part of `apply` that unwraps functorch tensors is skipped: under a transform `run` never comes here.
_apply = super(torch.autograd.Function, _Fused).apply


def _recomputed(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients by differentiating the composite, differentiable themselves where the caller asks for a graph."""
    operation, _, alpha, c = ctx.call
    saved = list(ctx.saved_tensors)
    wanted = [need for i, need in enumerate(ctx.needs_input_grad) if i != 1]
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        if not create_graph:
            saved = [v.detach().requires_grad_(need) for v, need in zip(saved, wanted, strict=True)]
        values = saved[1:]
        y = operation.composite(saved[0], *(values.pop(0) if v is None else v for v in (alpha, c)))
        targets = [v for v, need in zip(saved, wanted, strict=True) if need]
        found = list(torch.autograd.grad(y, targets, g, create_graph=create_graph))
    gx, *rest = (found.pop(0) if need else None for need in wanted)
    if gx is not None:
        gx = torch.where(operation.undefined(saved[0].detach()), torch.nan, gx)
    return gx, None, *rest


def _fit(gradient: Tensor | None, value: Tensor) -> Tensor | None:
    """The gradient of a parameter from its values per channel, in the shape and dtype of the parameter."""
    if gradient is None or (gradient.shape == value.shape and gradient.dtype == value.dtype):
        return gradient
    return gradient.sum_to_size(value.numel()).to(value.dtype).reshape(value.shape)


def _broadcast(x: Tensor, alpha: Value, c: Value, floor: float, dim: int) -> tuple[Value, Value]:
    return broadcast(above(alpha, floor), x, dim), broadcast(c, x, dim)


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


def above(value: Value, floor: float) -> Value:
    """`value`, held at `floor` from below; its gradient passes straight through, so that it can come back."""
    if not isinstance(value, Tensor) or not floor:
        return value
    held = value.detach()
    return held.clamp(min=floor) + (value - held)
