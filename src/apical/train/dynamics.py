"""What happens inside: shares of inactive and saturated units and gradient norms, taken on one batch.

A unit is inactive where its input x is below 0, and saturated where alpha*x > 5, far behind the peak of ADA; the second
is recorded of units that have an alpha. Watching changes no number of the training.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from apical.kernels import composite
from apical.nn.activations import ADA, Activation, Shared
from apical.nn.pyramidal import _Pyramidal

Shares = dict[str, dict[str, float | None]]

SATURATED = 5.0
_TORCH = (
    nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.SiLU, nn.GELU, nn.ELU, nn.SELU, nn.CELU, nn.Sigmoid, nn.Hardtanh, nn.ReLU6,
    nn.Hardswish, nn.Mish, nn.Softplus, nn.PReLU, nn.RReLU, nn.LogSigmoid, nn.Hardsigmoid, nn.Threshold,
)  # fmt: skip


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

    Without `units`, gradients alone: hooks would make a compiled network compile again.
    """
    record: Shares = {}
    counts = _Counts()
    with _hooks(network, counts) if units else nullcontext():
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
def _hooks(network: nn.Module, counts: _Counts) -> Iterator[None]:
    handles: list[Any] = []
    wrapped: list[_Pyramidal] = []
    inner: list[nn.Module] = []  # an owner about to be called by the Shared that was just counted
    for name, module in network.named_modules():
        if isinstance(module, Activation | Shared | _TORCH):
            handles.append(module.register_forward_pre_hook(_counting(name, counts, inner)))
        elif isinstance(module, _Pyramidal):
            module._fused = _spying(name, module, counts)  # type: ignore[method-assign]
            wrapped.append(module)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module in wrapped:
            del module._fused


def _counting(name: str, counts: _Counts, inner: list[nn.Module]) -> Callable[[nn.Module, Any], None]:
    def hook(module: nn.Module, inputs: Any) -> None:
        if inner and inner[-1] is module:
            inner.pop()
            return
        if isinstance(module, Shared):
            inner.append(module.owner)
        counts.add(name, module, inputs[0].detach())

    return hook


def _spying(name: str, layer: _Pyramidal, counts: _Counts) -> Callable[[Tensor], Tensor | None]:
    """The layer's fused sum, its input counted on the way: the activations inside it are never called."""
    fused = layer._fused

    def spy(z: Tensor) -> Tensor | None:
        out = fused(z)
        if out is not None:
            basal, apical = composite.branches(z.detach(), layer.groups, layer.channel_dim)
            counts.add(f"{name}.basal" if name else "basal", layer.basal, basal)
            counts.add(f"{name}.apical" if name else "apical", layer.apical, apical)
        return out

    return spy


def learned_values(network: nn.Module) -> dict[str, float]:
    """Each learned alpha or beta as the network uses it, by name; the mean where there is one for each channel."""
    values = {}
    for name, module in network.named_modules():
        if isinstance(module, Activation) and module.learned in module._parameters:
            value = module.effective_alpha if isinstance(module, ADA) else getattr(module, str(module.learned))
            values[f"{name}.{module.learned}" if name else str(module.learned)] = float(value.detach().mean())
    return values
