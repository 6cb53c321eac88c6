"""The apical branch of a neuron whose basal branch stays as the network has it."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from apical.nn.layers import Neuron
from apical.nn.pyramidal import BranchNorm, branch_views, xavier_


class ApicalBranch(Neuron):
    """apical(norm''(w''x + b'')), to be added to the basal activation of the same neuron."""

    @classmethod
    def beside(cls, affine: nn.Module, norm: nn.Module | None, activation: nn.Module) -> "ApicalBranch":
        """A branch on the input of `affine`: layers of the same type and settings with first values of their own."""
        second = _fresh(_without_parametrizations(affine))
        xavier_(second)
        return cls(second, _fresh(norm) if norm is not None else None, activation)


class Wire:
    """Carries the input of an affine layer to the neuron that its output feeds, within one forward."""

    def __init__(self) -> None:
        self.value: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"value": None}  # a value lives as long as a forward: copies and pickles start without


class Tap:
    """The hook that puts what a layer is called with on a wire."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.wire.value = args[0] if args else next(iter(kwargs.values()))


class InputAlone:
    """The hook that gives a module its input alone, by whatever name and with whatever else it is called.

    `others`: it gets the rest as well, for the original that a check puts back.
    """

    others = False

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        name = "" if args else next(name for name, value in kwargs.items() if isinstance(value, Tensor))
        args = args or (kwargs[name],)
        return (args, {n: v for n, v in kwargs.items() if n != name}) if self.others else (args[:1], {})


class WiredNeuron(nn.Module):
    """basal(z) + apical(norm''(w''x + b'')), in the place of an activation; x comes over a wire from the layer before.

    The forward around it stays as it is, whatever it does between the layer and the activation.
    """

    def __init__(self, basal: nn.Module, apical: nn.Module, wire: Wire) -> None:
        super().__init__()
        self.basal, self.apical, self.wire = basal, apical, wire

    def forward(self, input: Tensor) -> Tensor:
        x, self.wire.value = self.wire.value, None
        if x is None:
            raise RuntimeError(
                "a pyramidal neuron was called, but not the layer before it: forward took another path than the one "
                "that was converted"
            )
        return self.basal(input) + self.apical(x)  # type: ignore[no-any-return]


class InPlace(nn.Module):
    """Writes what its activation computes over the input, as the activation did whose place it takes.

    Whoever reads the input later, under whatever name or through a view, reads the new values. The activation gets a
    copy, since it may need its input again for the gradient.
    """

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return input.copy_(self.activation(input.clone(), *args, **kwargs))


def _without_parametrizations(affine: nn.Module) -> nn.Module:
    """A copy with plain weights: what a parametrisation computes is a start, not a rule, for another branch."""
    copy = deepcopy(affine)
    if hasattr(copy, "parametrizations"):  # removing one changes its class, which the original has too
        own = {name: value for name, value in vars(type(copy)).items() if name not in ("__dict__", "__weakref__")}
        copy.__class__ = type(type(copy).__name__, type(copy).__bases__, own)
    for name in list(getattr(copy, "parametrizations", {})):
        parametrize.remove_parametrizations(copy, name)
    for hooks in (copy._forward_hooks, copy._forward_pre_hooks, copy._forward_pre_hooks_with_kwargs):
        hooks.clear()
    return copy


def _fresh(module: nn.Module) -> nn.Module:
    copy = deepcopy(module)
    for part in copy.modules():
        reset: Any = getattr(part, "reset_parameters", lambda: None)
        reset()
    return copy.requires_grad_()


def plain_norm(module: nn.Module) -> nn.Module:
    """A norm alone, from one whose class also applies an activation: torch's class, without children."""
    norm = deepcopy(module)
    norm.__class__ = next(kind for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn.modules."))
    norm._modules.clear()
    return norm


def zero_apical_(neuron: Any) -> None:
    """Start the apical branch at zero: by the norm's gamma and beta where it has them, else by its weights."""
    with torch.no_grad():
        for tensor in _apical_scale(neuron):
            tensor.zero_()


def _apical_scale(neuron: Any) -> list[Tensor]:
    if isinstance(neuron, ApicalBranch):
        scaled = _scale(neuron.norm)
        return scaled or _scale(neuron.affine)
    if isinstance(neuron.norm, BranchNorm) and (scaled := _scale(neuron.norm.apical)):
        return scaled
    if neuron.norm is not None and not isinstance(neuron.norm, BranchNorm) and (scaled := _scale(neuron.norm)):
        return [branch_views(tensor, neuron.groups)[1] for tensor in scaled]
    return [tensor for tensor in (neuron.apical_weight, neuron.apical_bias) if tensor is not None]


def _scale(module: nn.Module | None) -> list[Tensor]:
    scales = (getattr(module, "weight", None), getattr(module, "bias", None))
    return [tensor for tensor in scales if isinstance(tensor, Tensor)]
