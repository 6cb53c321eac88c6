"""Training dynamics on one batch: shares of inactive and saturated units, and gradient norms.

A unit is inactive where its input x is below 0, and saturated where alpha*x > 5, beyond the peak of ADA; saturation is
recorded for units that have an alpha. Recording does not change the training.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from apical.kernels import composite
from apical.nn import kinds
from apical.nn.activations import ADA, Activation, Shared
from apical.nn.layers import Neuron
from apical.nn.pyramidal import _Pyramidal

Shares = dict[str, dict[str, float | None]]

SATURATED = 5.0
_NAMES = [str(kinds.find(name).build).partition(":") for name in kinds.names()]
_TORCH: tuple[type[nn.Module], ...] = (nn.PReLU, *(getattr(nn, name) for home, _, name in _NAMES if home == "torch.nn"))


class _Counts:
    """Units seen below zero, behind the peak, and altogether, by the name of their activation."""

    def __init__(self) -> None:
        self.inactive: Counter[str] = Counter()
        self.saturated: Counter[str] = Counter()
        self.total: Counter[str] = Counter()

    @torch.no_grad()
    def add(self, name: str, activation: nn.Module, x: Tensor) -> None:
        self.inactive[name] += int((x < 0).sum())
        self.total[name] += x.numel()
        owner = activation.owner if isinstance(activation, Shared) else activation
        if isinstance(owner, ADA):
            alpha = owner.effective_alpha.to(x.device)
            if alpha.numel() > 1:
                alpha = alpha.view([-1 if d == owner.dim % x.dim() else 1 for d in range(x.dim())])
            self.saturated[name] += int((alpha * x > SATURATED).sum())

    def shares(self, counts: Counter[str]) -> dict[str, float | None]:
        return {name: count / max(1, self.total[name]) for name, count in counts.items()}


@contextmanager
def watching(network: nn.Module, *, units: bool = True) -> Iterator[Shares]:
    """Fills the yielded record when the block ends: run one forward and one backward pass in it.

    Without `units`, gradients alone: wrappers would make a compiled network compile again.
    """
    record: Shares = {}
    counts = _Counts()
    with _watchers(network, counts) if units else nullcontext():
        yield record
    record["inactive"] = counts.shares(counts.inactive)
    record["saturated"] = counts.shares(counts.saturated)
    record["gradient"] = gradient_norms(network)


def watched_if(condition: bool, network: nn.Module, *, units: bool = True) -> AbstractContextManager[Shares]:
    """`watching` where the condition holds, else nothing."""
    return watching(network, units=units) if condition else nullcontext({})


def gradient_norms(network: nn.Module) -> dict[str, float | None]:
    """The Euclidean norm of the gradient of each module's own parameters; None where it is not finite."""
    norms: dict[str, float | None] = {}
    for name, module in network.named_modules():
        grads = [p.grad for p in module.parameters(recurse=False) if p.grad is not None]
        if grads:
            norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g.float()) for g in grads])))
            norms[name] = norm if isfinite(norm) else None
    return norms


@contextmanager
def _watchers(network: nn.Module, counts: _Counts) -> Iterator[None]:
    """Count the inputs of every activation while the block runs.

    Methods are wrapped on the instances; hooks would keep pyramidal layers from their fused kernel, which rounds
    differently.
    """
    wrapped: list[tuple[Any, str]] = []
    inner: list[nn.Module] = []  # an owner about to be called by the Shared that was just counted
    neurons = [m for m in network.modules() if isinstance(m, Neuron | _Pyramidal)]
    theirs = {id(getattr(m, name, None)) for m in neurons for name in ("activation", "basal", "apical")}
    for name, module in network.named_modules():
        if isinstance(module, (Activation, Shared, *_TORCH)) or id(module) in theirs:
            module.forward = _counting(name, module, counts, inner)
            wrapped.append((module, "forward"))
        elif isinstance(module, Neuron | _Pyramidal):
            module._fused_with_norm = _spying_behind_norm(name, module, counts)  # type: ignore[method-assign, assignment]
            wrapped.append((module, "_fused_with_norm"))
        if isinstance(module, _Pyramidal):
            module._fused = _spying(name, module, counts)  # type: ignore[method-assign, assignment]
            wrapped.append((module, "_fused"))
    try:
        yield
    finally:
        for module, method in wrapped:
            delattr(module, method)


def _counting(name: str, module: nn.Module, counts: _Counts, inner: list[nn.Module]) -> Callable[[Tensor], Tensor]:
    original = module.forward

    def forward(x: Tensor) -> Tensor:
        if inner and inner[-1] is module:
            inner.pop()
        else:
            counts.add(name, module, x.detach())
            if isinstance(module, Shared):
                inner.append(module.owner)
        return original(x)  # type: ignore[no-any-return]

    forward.watches = True  # type: ignore[attr-defined]  # a fused kernel may leave it out: its own input is counted
    return forward


def _spying(name: str, layer: _Pyramidal, counts: _Counts) -> Callable[[Tensor, Tensor | None], Tensor | None]:
    """The layer's fused sum, its input counted: the activations inside it are never called."""
    original = layer._fused

    def fused(z: Tensor, residual: Tensor | None) -> Tensor | None:
        out = original(z, residual)
        if out is not None:  # a residual was added to z in place
            _add_branches(name, layer, z.detach(), counts)
        return out

    return fused


def _spying_behind_norm(
    name: str, layer: Neuron | _Pyramidal, counts: _Counts
) -> Callable[[nn.Module, Tensor, Tensor | None], Tensor | None]:
    """The layer's kernel for a norm and what is behind it, its activations' inputs computed once more and counted."""
    original = layer._fused_with_norm

    def fused(norm: nn.Module, z: Tensor, residual: Tensor | None) -> Tensor | None:
        out = original(norm, z, residual)
        if out is not None:
            _add_branches(name, layer, _normalised(norm, z.detach()), counts, residual)
        return out

    return fused


@torch.no_grad()
def _normalised(norm: Any, z: Tensor) -> Tensor:
    """What batch norm makes of `z`; its running statistics have moved already."""
    batch = norm.training or norm.running_mean is None
    mean, variance = (None, None) if batch else (norm.running_mean, norm.running_var)
    return nn.functional.batch_norm(z, mean, variance, norm.weight, norm.bias, training=batch, eps=norm.eps)


@torch.no_grad()
def _add_branches(
    name: str, layer: Neuron | _Pyramidal, z: Tensor, counts: _Counts, residual: Tensor | None = None
) -> None:
    """Count the inputs of a layer's activations; a residual goes to the basal one."""
    prefix = f"{name}." if name else ""
    if isinstance(layer, _Pyramidal):
        basal, apical = composite.branches(z, layer.groups, layer.channel_dim)
        counts.add(f"{prefix}apical", layer.apical, apical)
    else:
        basal = z
    own = "basal" if isinstance(layer, _Pyramidal) else "activation"
    counts.add(f"{prefix}{own}", getattr(layer, own), basal if residual is None else basal + residual)


def learned_values(network: nn.Module) -> dict[str, float]:
    """Each learned value of an activation as the network uses it, by name; the mean where each channel has one."""
    values = {}
    for name, module in network.named_modules():
        own = module._parameters if isinstance(module, Activation) else {}
        for learned in own:
            value = module.effective_alpha if isinstance(module, ADA) else getattr(module, learned)
            values[f"{name}.{learned}" if name else learned] = float(value.detach().mean())
    return values
