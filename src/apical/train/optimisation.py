"""The optimiser of a trial: fused kernels, and the L2 penalty on weights alone."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from apical.errors import CheckpointError
from apical.train.spec import TrialSpec

_CLASSES: dict[str, type[Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def optimiser_of(spec: TrialSpec, network: nn.Module) -> Optimizer:
    """Adam (or AdamW, SGD) with torch's defaults, in one fused call for all parameters.

    The gradient of l2 * sum(w^2)/2 is l2 * w, which is what `weight_decay` of Adam and SGD adds.
    """
    parameters = [p for p in network.parameters() if p.requires_grad]
    weights = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() <= 1]
    groups: list[dict[str, Any]] = [{"params": parameters, "weight_decay": 0.0}]
    if spec.l2:
        groups = [{"params": weights, "weight_decay": spec.l2}, {"params": others, "weight_decay": 0.0}]
    make: Any = _CLASSES[spec.optimiser]
    return make([g for g in groups if g["params"]], lr=spec.learning_rate, fused=True)  # type: ignore[no-any-return]


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """The learning rate of every group."""
    for group in optimiser.param_groups:
        group["lr"] = rate


def state_of(optimiser: Optimizer) -> dict[str, Tensor]:
    """The tensors of the optimiser by number of parameter and name."""
    state = optimiser.state_dict()["state"]
    return {f"{i}:{name}": t for i, own in state.items() for name, t in own.items() if isinstance(t, Tensor)}


def load_state(optimiser: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `state_of` gave."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(":")
        if not number.isdecimal() or int(number) >= len(parameters) or not name:
            raise CheckpointError(f"the optimiser has no state {key!r}: the checkpoint belongs to another network")
        own = parameters[int(number)]
        if tensor.dim() and tensor.shape != own.shape:
            raise CheckpointError(f"the optimiser's {key} has shape {tuple(tensor.shape)}, not {tuple(own.shape)}")
        state.setdefault(int(number), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
