"""The optimiser of a trial: fused kernels, and the L2 penalty on weights alone."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from apical import torch_private
from apical.errors import CheckpointError
from apical.train.spec import EVOLUTION, TrialSpec

_ADAM, _ADAMW, _SGD = map(torch_private.without_compiler, (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD))
_CLASSES: dict[str, type[Optimizer]] = {"adam": _ADAM, "adamw": _ADAMW, "sgd": _SGD, "es": _ADAM, "cma-es": _SGD}
_KERNELS: dict[type[Optimizer], Callable[..., Any]] = {
    _ADAM: torch_private.fused_adam,
    _ADAMW: torch_private.fused_adamw,
}


def optimiser_of(spec: TrialSpec, network: nn.Module) -> Optimizer:
    """Adam (or AdamW, SGD) with torch's defaults, in one fused call for all parameters.

    The gradient of l2 * sum(w^2)/2 is l2 * w, which is what `weight_decay` of Adam and SGD adds.
    """
    parameters = [p for p in network.parameters() if p.requires_grad]
    weights = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() <= 1]
    groups: list[dict[str, Any]] = [{"params": parameters, "weight_decay": 0.0}]
    if spec.l2 and spec.optimiser not in EVOLUTION:  # a population has the penalty in its losses
        groups = [{"params": weights, "weight_decay": spec.l2}, {"params": others, "weight_decay": 0.0}]
    make: Any = _CLASSES[spec.optimiser]
    # A fused step takes the scale of float16 gradients off by itself: too late for clipping, which Fabric then refuses.
    fused = spec.clip is None or spec.precision != "16-mixed"
    return make([g for g in groups if g["params"]], lr=spec.learning_rate, fused=fused)  # type: ignore[no-any-return]


class FastStep:
    """`zero_grad` and `step` of a fused Adam, with less overhead than torch's and the same bits.

    torch collects and groups the tensors in every step, which takes as long as the arithmetic of a small network. Other
    optimizers, and steps in which a parameter got no gradient, use torch's `step`.
    """

    def __init__(self, optimiser: Optimizer) -> None:
        self.optimiser = optimiser
        self._parameters = [p for group in optimiser.param_groups for p in group["params"]]
        self._state: Any = None
        self._steps = torch.empty(0)
        self._lists: list[tuple[list[Tensor], ...]] = []

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for p in self._parameters:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step with each group's present learning rate."""
        if any(p.grad is None for p in self._parameters) or not self._bind():
            self.optimiser.step()
            return
        kernel = _KERNELS[type(self.optimiser)]
        self._steps += 1
        for group, (parameters, *state) in zip(self.optimiser.param_groups, self._lists, strict=True):
            beta1, beta2 = group["betas"]
            kernel(
                parameters, [p.grad for p in parameters], *state, lr=group["lr"], beta1=beta1, beta2=beta2,
                weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
            )  # fmt: skip

    def _bind(self) -> bool:
        """Collect the tensors of the state, which a resumed trial replaces; False where there are none yet."""
        state = self.optimiser.state
        if self._state is state:
            return True
        if type(self.optimiser) not in _KERNELS or any(p not in state for p in self._parameters):
            return False
        self._steps = torch.stack([state[p]["step"] for p in self._parameters])
        for p, step in zip(self._parameters, self._steps, strict=True):
            state[p]["step"] = step  # a view: one addition counts for all
        self._lists = [_lists(state, group["params"]) for group in self.optimiser.param_groups]
        self._state = state
        return True


def _lists(state: Any, parameters: list[Tensor]) -> tuple[list[Tensor], ...]:
    """The lists that the kernel wants beside the gradients; without AMSGrad, that of its maxima is empty."""
    first, second, steps = ([state[p][name] for p in parameters] for name in ("exp_avg", "exp_avg_sq", "step"))
    return parameters, first, second, [], steps


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
        # Fused kernels walk through parameter and moments in the order of memory, so moments have the same layout.
        moment = torch.empty_like(own, dtype=tensor.dtype).copy_(tensor) if tensor.dim() else tensor
        state.setdefault(int(number), {})[name] = moment
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
