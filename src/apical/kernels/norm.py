"""Batch norm, the activation behind it and the pyramidal sum in one, by the C library (norm.h).

For plain float32 tensors on the CPU in eager mode; `run` returns None for every other call, which torch's own layers
then compute one by one. Saves the norm's input alone, where torch also saves its output.
"""

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from apical.kernels import choice, composite, native

_DIMENSIONS: dict[type, tuple[int, ...]] = {nn.BatchNorm1d: (2, 3), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (5,)}


def is_attended(module: nn.Module) -> bool:
    """Whether somebody relies on the call of a module: by a hook, or by a forward of its own, as `patch.object` sets.

    A forward with the attribute `watches` only looks on, and there is another who sees what the kernel computes.
    """
    own = module.__dict__  # asked directly: every microsecond counts for small layers
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return True
    return "forward" in own and not hasattr(own["forward"], "watches")


class Formula(NamedTuple):
    """ADA with these numbers, or without them (leaky) ReLU."""

    leak: float = 0.0
    alpha: float | None = None
    c: float = 0.0

    def composite(self, u: Tensor) -> Tensor:
        """In plain torch."""
        if self.alpha is not None:
            return composite.ada(u, self.alpha, self.c, self.leak)
        return torch.nn.functional.leaky_relu(u, self.leak) if self.leak else torch.relu(u)


class _Norm(ctypes.Structure):
    """The struct `norm` of norm.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("samples", "groups", "outputs", "inner")),
        *((name, ctypes.c_int64) for name in ("branches", "ada", "last", "training")),
        *((name, ctypes.c_double) for name in ("alpha", "c", "leak", "basal_leak", "eps", "momentum")),
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "running_mean", "running_var")),
        *((name, ctypes.c_void_p) for name in ("mean", "inverse", "scale", "shift")),
    )


class _Call(NamedTuple):
    """All of a call but its tensors. `statistics` are filled by forward: mean, 1/deviation, scale and shift."""

    basal: Formula
    apical: Formula | None
    groups: int
    training: bool
    eps: float
    momentum: float
    running: tuple[Tensor | None, Tensor | None]
    statistics: Tensor

    def struct(self, z: Tensor, weight: Tensor | None, bias: Tensor | None) -> _Norm:
        """As C reads it; the tensors must outlive it."""
        branches = 1 if self.apical is None else 2
        outer = self.basal if self.apical is None else self.apical
        rows = z.numel() // z.size(1)
        last = z.dim() == 2 or not z.is_contiguous()
        inner = 1 if z.dim() == 2 else rows // z.size(0)
        alpha, pointers = outer.alpha, [native._at(t) for t in (weight, bias, *self.running)]
        return _Norm(
            z.size(0), self.groups, z.size(1) // branches, inner, branches, alpha is not None, last, self.training,
            alpha or 0.0, outer.c, outer.leak, self.basal.leak, self.eps, self.momentum,
            *pointers, *(row.data_ptr() for row in self.statistics),
        )  # fmt: skip

    def composite(self, z: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None) -> Tensor:
        """The same in plain torch, from the same statistics; nothing else is changed."""
        if self.training:
            u = batch_norm(z, None, None, weight, bias, training=True, eps=self.eps)
        else:
            shape = [1, -1, *[1] * (z.dim() - 2)]
            mean, inverse = (row.reshape(shape) for row in self.statistics[:2])
            u = (z - mean) * inverse
            u = u if weight is None else u * weight.reshape(shape)
            u = u if bias is None else u + bias.reshape(shape)
        basal, apical = (u, None) if self.apical is None else composite.branches(u, self.groups, 1)
        y = self.basal.composite(basal if residual is None else basal + residual)
        return y if self.apical is None or apical is None else y + self.apical.composite(apical)


def run(
    norm: nn.Module, z: Tensor, basal: Formula, apical: Formula | None, groups: int, residual: Tensor | None
) -> Tensor | None:
    """basal(norm(z)' + residual) + apical(norm(z)''), or without `apical` basal(norm(z) + residual); None: not here.

    The running statistics move as the norm moves them.
    """
    if not (_serves(norm, z) and (residual is None or _fits(z, residual, branches=1 if apical is None else 2))):
        return None
    bn: Any = norm
    batch = bn.training or (bn.running_mean is None and bn.running_var is None)
    running = (bn.running_mean, bn.running_var) if not bn.training or bn.track_running_stats else (None, None)
    factor = bn.momentum or 0.0
    if bn.training and bn.track_running_stats and bn.num_batches_tracked is not None:
        bn.num_batches_tracked.add_(1)
        factor = 1.0 / float(bn.num_batches_tracked) if bn.momentum is None else bn.momentum
    call = _Call(basal, apical, groups, batch, bn.eps, factor, running, torch.empty(4, z.size(1)))
    tensors = (z, bn.weight, bn.bias, residual)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return _Fused.apply(call, *tensors)  # type: ignore[no-any-return, no-untyped-call]
    return _forward(call, *tensors)


def _serves(norm: nn.Module, z: Tensor) -> bool:
    if choice.path(z) != "native" or z.dtype != torch.float32 or not native.library().norms:
        return False
    if z.dim() not in _DIMENSIONS.get(type(norm), ()) or is_attended(norm):
        return False
    bn: Any = norm
    if z.size(1) != bn.num_features or z.numel() <= z.size(1) or not _has_layout(z):
        return False
    values = (bn.weight, bn.bias, bn.running_mean, bn.running_var)
    return all(v is None or (v.dtype == z.dtype and v.is_contiguous() and _plain(v)) for v in values)


def _plain(x: Tensor) -> bool:
    return choice.why_not_native(x) is None


def _has_layout(z: Tensor) -> bool:
    """Contiguous, or channels last."""
    return z.is_contiguous() or z.movedim(1, -1).is_contiguous()


def _fits(z: Tensor, residual: Tensor, *, branches: int) -> bool:
    shape = (z.size(0), z.size(1) // branches, *z.shape[2:])
    return residual.shape == shape and residual.dtype == z.dtype and _plain(residual)


def _arranged(x: Tensor, strides: tuple[int, ...]) -> Tensor:
    """`x` in the layout that C expects."""
    return x if x.stride() == strides else torch.empty_strided(x.shape, strides, dtype=x.dtype).copy_(x)


def _threads(z: Tensor) -> int:
    return 1 if z.numel() <= native.PARALLEL_FROM else torch.get_num_threads()


def _like_output(z: Tensor, branches: int) -> tuple[list[int], tuple[int, ...]]:
    return native.halved(z, 1) if branches == 2 else (list(z.shape), z.stride())


def _forward(call: _Call, z: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    with_ = call.struct(z, weight, bias)
    shape, strides = _like_output(z, with_.branches)
    y = torch.empty_strided(shape, strides, dtype=z.dtype)
    if residual is not None:
        residual = _arranged(residual, strides)
    function = native.library().norms["norm_forward"][z.dtype]
    if function(z.data_ptr(), native._at(residual), y.data_ptr(), ctypes.addressof(with_), _threads(z)):
        raise MemoryError("no memory for the sums of a batch norm")
    return y


class _Fused(torch.autograd.Function):
    """Saves its inputs and recomputes the rest. Higher derivatives go through the composite."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor | None) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        return _forward(call, *tensors)  # type: ignore[arg-type]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        tensors, call = ctx.saved_tensors, ctx.call
        if torch.is_grad_enabled() or choice.observed() or not _plain(g):
            return None, *_recomputed(call, tensors, ctx.needs_input_grad[1:], g)
        z, weight, bias, residual = tensors
        with_ = call.struct(z, weight, bias)
        _, strides = _like_output(z, with_.branches)
        gz, gvalues, gresidual = torch.empty_like(z), torch.empty(2, z.size(1)), None
        if residual is not None:
            residual = _arranged(residual, strides)
            gresidual = torch.empty_like(residual)
        arguments = (z, residual, _arranged(g, strides), gz, gresidual, *gvalues)
        pointers = [native._at(t) for t in arguments]
        if native.library().norms["norm_backward"][z.dtype](*pointers, ctypes.addressof(with_), _threads(z)):
            raise MemoryError("no memory for the sums of a batch norm's gradients")
        gradients = gz, None if weight is None else gvalues[0], None if bias is None else gvalues[1], gresidual
        return None, *gradients


def _recomputed(
    call: _Call, tensors: tuple[Tensor | None, ...], wanted: tuple[bool, ...], g: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients by differentiating the composite, differentiable themselves where the caller asks for a graph."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        if not create_graph:
            tensors = tuple(
                None if t is None else t.detach().requires_grad_(need) for t, need in zip(tensors, wanted, strict=True)
            )
        y = call.composite(*tensors)  # type: ignore[arg-type]
        targets = [t for t, need in zip(tensors, wanted, strict=True) if need and t is not None]
        gradients = list(torch.autograd.grad(y, targets, g, create_graph=create_graph))
    return tuple(gradients.pop(0) if need else None for need in wanted)
