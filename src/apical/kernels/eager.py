"""ADA in eager mode: one call, one saved tensor, whichever path computes it."""

from typing import Any

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


class _Ada(torch.autograd.Function):
    """Saves its input; recomputes the rest. Higher derivatives go through the composite."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, alpha: float | Tensor, c: float | Tensor, leak: float, floor: float, dim: int, path: str
    ) -> Tensor:
        ctx.save_for_backward(x, *(v for v in (alpha, c) if isinstance(v, Tensor)))
        ctx.numbers = (None if isinstance(alpha, Tensor) else alpha, None if isinstance(c, Tensor) else c)
        ctx.constants = (leak, floor, dim)
        run = native.ada_forward if path == "native" else _composite_ada
        return run(x, alpha, c, leak, floor, dim)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, *tensors = ctx.saved_tensors
        alpha, c = (tensors.pop(0) if v is None else v for v in ctx.numbers)
        wanted = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled() or choice.path(g) != "native" or choice.path(x) != "native":
            grads = _recompute((x, alpha, c), g, ctx.constants, wanted)
        else:
            leak, floor, dim = ctx.constants
            gx, totals = native.ada_backward(x, g, alpha, c, leak, floor, dim, sums=wanted[1] or wanted[2])
            grads = [gx if wanted[0] else None, None, None]
            for i, value in ((1, alpha), (2, c)):
                if wanted[i] and totals is not None:
                    total = totals[i - 1] if value.numel() > 1 else totals[i - 1].sum()
                    grads[i] = total.to(value.dtype).reshape(value.shape)
        return (*grads, None, None, None, None)


def _recompute(
    inputs: tuple[Tensor, float | Tensor, float | Tensor],
    g: Tensor,
    constants: tuple[float, float, int],
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
        y = _composite_ada(*inputs, *constants)
        targets = [v for v, need in zip(inputs, wanted, strict=True) if need]
        found = list(torch.autograd.grad(y, targets, g, create_graph=create_graph))  # type: ignore[arg-type]
    return [found.pop(0) if need else None for need in wanted]


def ada(
    x: Tensor, alpha: float | Tensor, c: float | Tensor, leak: float, *, floor: float = 0.0, dim: int = 1
) -> Tensor:
    """ADA by the path that fits the call; the arguments are taken as checked. `floor` holds alpha from below."""
    path = choice.path(x)
    if path == "composite":
        return _composite_ada(x, alpha, c, leak, floor, dim)
    if torch.is_grad_enabled() and (
        x.requires_grad or any(isinstance(v, Tensor) and v.requires_grad for v in (alpha, c))
    ):
        return _Ada.apply(x, alpha, c, leak, floor, dim, path)  # type: ignore[no-any-return, no-untyped-call]
    if path == "native":
        return native.ada_forward(x, alpha, c, leak, floor, dim)
    return _composite_ada(x, alpha, c, leak, floor, dim)
