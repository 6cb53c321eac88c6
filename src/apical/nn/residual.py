"""A residual added to the basal half of a pre-activation in place, so that the fused kernel can follow."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from apical.kernels import choice


class _AddToBasal(torch.autograd.Function):
    """z[basal] += residual. The gradient passes through whole to z and, its basal half, to the residual: no copies,
    of which torch's own in-place addition to a part of a tensor makes several."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, residual: Tensor, dim: int) -> Tensor:
        ctx.dim = dim
        z.chunk(2, dim)[0].add_(residual)
        ctx.mark_dirty(z)
        return z

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        return g, g.chunk(2, ctx.dim)[0], None


def may_add_to_basal(z: Tensor, residual: Tensor, norm: nn.Module | None, dim: int) -> bool:
    """True where nobody else needs `z` as it is (not the layer it comes from, nor a hook), and the shapes agree."""
    if choice.path(z) != "native" or not (norm is None or (isinstance(norm, _BatchNorm) and not norm._forward_hooks)):
        return False
    shape = list(z.shape)
    shape[dim] //= 2
    return list(residual.shape) == shape and residual.dtype == z.dtype


def add_to_basal_(z: Tensor, residual: Tensor, dim: int) -> Tensor:
    """Add `residual` to the first half of `z` along `dim`, in place."""
    return _AddToBasal.apply(z, residual, dim)  # type: ignore[no-any-return, no-untyped-call]
