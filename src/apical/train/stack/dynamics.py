"""What happens inside each trial of a stack, taken on one batch as `dynamics` takes it of one network."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import hypot, isfinite
from typing import Any

import torch
from torch import Tensor, nn

from apical.kernels import composite
from apical.nn.activations import FLOOR
from apical.train.dynamics import SATURATED
from apical.train.stack.activations import Activation
from apical.train.stack.network import StackedNetwork

Shares = dict[str, list[float | None]]


@contextmanager
def watched(stack: StackedNetwork, networks: Sequence[nn.Module]) -> Iterator[list[dict[str, Any]]]:
    """Fills one record for each trial when the block ends: run one forward and one backward pass in it."""
    records: list[dict[str, Any]] = []
    for _, activation in stack.activations:
        activation.seen = []
    try:
        yield records
        inactive, saturated = _shares(stack)
        norms = _norms(stack)
        for i, network in enumerate(networks):
            own = [{name: v[i] for name, v in shares.items() if v[i] is not None} for shares in (inactive, saturated)]
            records.append({"inactive": own[0], "saturated": own[1], "gradient": _gradient(stack, network, norms)})
    finally:
        for _, activation in stack.activations:
            activation.seen = None


@torch.no_grad()
def _shares(stack: StackedNetwork) -> tuple[Shares, Shares]:
    """For each activation by name the shares of inactive and of saturated units of each trial."""
    inactive: Shares = {}
    saturated: Shares = {}
    for name, activation in stack.activations:
        assert activation.seen
        z = activation.seen[-1]  # a trial that diverged made the step begin anew
        branches = ["activation"]
        halves = [z]
        if activation.pyramidal:
            branches, halves = ["basal", "apical"], list(composite.branches(z, activation.count, activation.dim))
        for i, (branch, half) in enumerate(zip(branches, halves, strict=True)):
            inactive[f"{name}.{branch}"] = _means(half < 0, activation)
            if any(group.alphas[i] for group in activation.groups):
                saturated[f"{name}.{branch}"] = _saturated(half, activation, i)
    return inactive, saturated


def _norms(stack: StackedNetwork) -> dict[int, list[float]]:
    """The norm of the gradient of each stacked parameter, for each trial, by the parameter's identity."""
    return {
        id(s): torch.linalg.vector_norm(s.gradient.flatten(1), dim=1).double().tolist() for s in stack.parameters.all
    }


def _gradient(stack: StackedNetwork, network: nn.Module, norms: dict[int, list[float]]) -> dict[str, float | None]:
    """What `gradient_norms` says of one network."""
    found: dict[str, float | None] = {}
    for name, module in network.named_modules():
        own = [stack.parameters.place(p) for p in module._parameters.values() if p is not None]
        if own:
            norm = hypot(*(norms[id(stacked)][row] for stacked, row in own))
            found[name] = norm if isfinite(norm) else None
    return found


def _means(mask: Tensor, activation: Activation) -> list[float | None]:
    """The share of True for each trial."""
    channels = mask.transpose(0, activation.dim).reshape(activation.count, -1)
    return channels.double().mean(1).tolist()


def _saturated(x: Tensor, activation: Activation, branch: int) -> list[float | None]:
    """The share of alpha*x > 5 for each trial whose activation has an alpha, None for the others."""
    own = [(group, group.alphas[branch]) for group in activation.groups]
    alphas = [
        alpha().clamp_min(FLOOR) if alpha else x.new_full((group.count * group.outputs,), float("nan"))
        for group, alpha in own
    ]
    shape = [-1 if d == activation.dim else 1 for d in range(x.dim())]
    shares = _means(x * torch.cat(alphas).view(shape) > SATURATED, activation)
    has = [alpha is not None for group, alpha in own for _ in range(group.count)]
    return [share if known else None for share, known in zip(shares, has, strict=True)]
