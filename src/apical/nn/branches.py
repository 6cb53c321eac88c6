"""The two branches of a pyramidal layer: their rows in one tensor, their norms, their initial weights."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from apical.errors import InvalidArgumentError

Norm = Callable[[int], nn.Module]
"""What makes a normalisation for a number of channels, e.g. `nn.BatchNorm2d`."""


class BranchNorm(nn.Module):
    """One normalisation for each branch."""

    def __init__(self, basal: nn.Module, apical: nn.Module) -> None:
        super().__init__()
        self.basal, self.apical = basal, apical

    def forward(self, basal: Tensor, apical: Tensor) -> tuple[Tensor, Tensor]:
        return self.basal(basal), self.apical(apical)


def branch_views(tensor: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """The basal and the apical rows of `tensor` as views; with several groups they have one dimension more."""
    halves = tensor.view(groups, 2, tensor.size(0) // (2 * groups), *tensor.shape[1:])
    basal, apical = halves[:, 0], halves[:, 1]
    return (basal[0], apical[0]) if groups == 1 else (basal, apical)


def xavier_(layer: nn.Module) -> None:
    """Xavier uniform weight, zero bias."""
    nn.init.xavier_uniform_(layer.weight)  # type: ignore[arg-type]
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


def both_norms(norm: Norm | None, outputs: int, *, together: bool) -> nn.Module | None:
    """One batch norm over both branches, where they come together; of any other norm one per branch."""
    if norm is None:
        return None
    if isinstance(norm, nn.Module) or not callable(norm):
        raise InvalidArgumentError(
            f"norm is {norm!r}, but must be what makes a norm for a number of channels, e.g. nn.BatchNorm2d "
            "or lambda channels: nn.GroupNorm(4, channels)"
        )
    basal = norm(outputs)
    if together and isinstance(basal, _BatchNorm):
        return norm(2 * outputs)
    return BranchNorm(basal, norm(outputs))


def widened(norm: nn.Module, groups: int) -> nn.Module:
    """A trained norm in the basal branch, a new one like it in the apical branch."""
    fresh = deepcopy(norm)
    for module in fresh.modules():
        reset: Any = getattr(module, "reset_parameters", lambda: None)
        reset()
    if not isinstance(norm, _BatchNorm):
        return BranchNorm(deepcopy(norm), fresh)
    wide = deepcopy(norm)
    wide.num_features *= 2
    for name, tensor in (*norm.named_parameters(), *norm.named_buffers()):
        if tensor.dim() == 1:
            both = _interleaved(tensor.detach(), getattr(fresh, name).detach(), groups)
            setattr(wide, name, nn.Parameter(both, tensor.requires_grad) if name in wide._parameters else both)
    return wide


def _interleaved(basal: Tensor, apical: Tensor, groups: int) -> Tensor:
    """One row of channels from two, in the order of a pyramidal layer's."""
    return torch.stack((basal.view(groups, -1), apical.view(groups, -1)), dim=1).flatten()
