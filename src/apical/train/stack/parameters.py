"""The parameters of several networks as one tensor each, and the optimiser that steps them together."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from apical import torch_private
from apical.train.spec import TrialSpec

_KERNELS: dict[str, Any] = {"adam": torch_private.fused_adam, "adamw": torch_private.fused_adamw}
BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's defaults, which a trial alone has too
PARTS = ("model", "best", "first", "second")


class Stacked(NamedTuple):
    """One parameter of k trials: values, gradient, both moments of Adam, and the values of each trial's best epoch."""

    model: Tensor
    gradient: Tensor
    first: Tensor
    second: Tensor
    best: Tensor


class Parameters:
    """Stacks what the networks have in the same place: (k, *shape); each network's own becomes a view of its row."""

    def __init__(self) -> None:
        self.all: list[Stacked] = []
        self._known: dict[tuple[int, ...], Stacked] = {}
        self._places: dict[int, tuple[Stacked, int]] = {}

    def stack(self, own: Sequence[nn.Parameter]) -> Stacked:
        """The stacked parameter of these; the same one for the same parameters, which a shared alpha is."""
        key = tuple(map(id, own))
        if key not in self._known:
            assert not any(i in self._places for i in key), "a parameter belongs to one stacked tensor"
            values = torch.stack([p.detach() for p in own])
            gradient, first, second = (torch.zeros_like(values) for _ in range(3))
            made = Stacked(values, gradient, first, second, best=values.clone())
            for row, p in enumerate(own):
                p.requires_grad_(False)
                p.data, p.grad = made.model[row], made.gradient[row]
                self._places[id(p)] = made, row
            self._known[key] = made
            self.all.append(made)
        return self._known[key]

    def place(self, parameter: nn.Parameter) -> tuple[Stacked, int]:
        """The stacked parameter and the row in which a network's own lies."""
        return self._places[id(parameter)]

    def best_of(self, network: nn.Module) -> dict[str, Tensor]:
        """The weights of one network's best epoch, by name."""
        found = {name: self._places[id(p)] for name, p in network.named_parameters()}
        return {name: stacked.best[row].clone() for name, (stacked, row) in found.items()}

    def rows_of(self, network: nn.Module) -> list[tuple[Stacked, int]]:
        """Where the parameters of one network lie."""
        return [self._places[id(p)] for p in network.parameters()]

    def remember(self, network: nn.Module) -> None:
        """The present weights of this network are its best."""
        for stacked, row in self.rows_of(network):
            stacked.best[row] = stacked.model[row]

    def park(self, network: nn.Module) -> None:
        """Make everything of one network zero: without a gradient it stays so, finite and out of the others' way."""
        for stacked, row in self.rows_of(network):
            for tensor in (stacked.model, stacked.gradient, stacked.first, stacked.second):
                tensor.detach()[row] = 0.0

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint holds, by part and number."""
        return {f"{part}:{i}": getattr(s, part).detach() for i, s in enumerate(self.all) for part in PARTS}


class StackedAdam:
    """One fused step for all trials of a stack; where learning rates differ, one for each rate."""

    def __init__(self, specs: Sequence[TrialSpec], networks: Sequence[nn.Module], parameters: Parameters) -> None:
        self.kernel = _KERNELS[specs[0].optimiser]
        self.steps = torch.zeros(())
        together = len({spec.learning_rate for spec in specs}) == 1
        rows: list[_Row] = [(specs[0], s, None) for s in parameters.all]
        if not together:
            rows = [(spec, *place) for spec, n in zip(specs, networks, strict=True) for place in parameters.rows_of(n)]
        rows.sort(key=_alike)
        groups = (list(found) for _, found in groupby(rows, _alike))
        self._groups = [_Group(group[0][0], _lists(group), _alike(group[0])[1]) for group in groups]

    def step(self, epoch: int) -> None:
        """One step of every trial, with the learning rate of the epoch."""
        self.steps.add_(_ONE)
        for spec, (model, gradient, first, second), decay in self._groups:
            self.kernel(
                model, gradient, first, second, [], [self.steps] * len(model), lr=spec.rate(epoch), beta1=BETAS[0],
                beta2=BETAS[1], weight_decay=decay, eps=EPSILON, amsgrad=False, maximize=False,
            )  # fmt: skip


_ONE = torch.ones(())  # a number would be made a tensor first
_Row = tuple[TrialSpec, Stacked, int | None]


def _alike(row: _Row) -> tuple[float, float]:
    """The learning rate and the L2 penalty, which is for weights alone: rows that agree in both share a call."""
    spec, stacked, _ = row
    return spec.learning_rate, spec.l2 if stacked.model.dim() > 2 else 0.0


class _Group(NamedTuple):
    spec: TrialSpec
    lists: tuple[list[Tensor], ...]
    decay: float


def _lists(rows: Sequence[_Row]) -> tuple[list[Tensor], ...]:
    """Values, gradients and both moments of whole parameters, or of one trial's rows of them."""
    names = ("model", "gradient", "first", "second")
    own = [[getattr(s, name).detach() for name in names] for _, s, _ in rows]
    picked = [[t if row is None else t[row] for t in four] for four, (_, _, row) in zip(own, rows, strict=True)]
    return tuple(list(column) for column in zip(*picked, strict=True))
