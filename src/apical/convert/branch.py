"""The apical branch of a neuron whose basal branch stays as the network has it."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from apical.nn.layers import Neuron
from apical.nn.pyramidal import BranchNorm, branch_views, xavier_


class ApicalBranch(Neuron):
    """apical(norm''(w''x + b'')), to be added to the basal activation of the same neuron."""

    @classmethod
    def beside(cls, affine: nn.Module, norm: nn.Module | None, activation: nn.Module) -> "ApicalBranch":
        """A branch on the input of `affine`: layers of the same type and settings with first values of their own."""
        second = _fresh(affine)
        xavier_(second)
        return cls(second, _fresh(norm) if norm is not None else None, activation)


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
    found = (getattr(module, "weight", None), getattr(module, "bias", None))
    return [tensor for tensor in found if isinstance(tensor, Tensor)]
