"""Training without gradients, for models of a few parameters: CMA-ES, through the `cma` package.

A single neuron's loss has wide flat regions and local minima, in which gradient descent stays. An evolution strategy
samples around where it is, so that it steps over them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from apical import imports
from apical.errors import InvalidArgumentError


def evolve_(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    seed: int,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.mse_loss,
    spread: float = 4.0,
    population: int = 32,
    generations: int = 200,
    tolerance: float = 1e-6,
) -> float:
    """Give `model` the parameters of least loss(model(inputs), targets) that CMA-ES finds; returns that loss.

    The search starts from the parameters that the model has, with `population` samples of deviation `spread` around
    them, and ends after `generations` or when the loss no longer changes by `tolerance`. The same seed gives the same
    result. It is meant for up to some hundred parameters; the whole population is computed in one call.
    """
    cma = imports.optional("cma", extra="lab")
    numpy = imports.optional("numpy", extra="lab")
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise InvalidArgumentError("the model has no parameter to evolve: give one whose parameters require gradients")
    like = next(iter(parameters.values()))
    random = numpy.random.default_rng(seed)
    options = {
        "popsize": population,
        "maxiter": generations,
        "tolfun": tolerance,
        "randn": lambda *size: random.standard_normal(size),  # so that numpy's global generator is left alone
        "seed": float("nan"),
        "verbose": -9,
    }
    start = torch.cat([p.detach().flatten() for p in parameters.values()]).double().cpu().numpy()
    search = cma.CMAEvolutionStrategy(start, spread, options)
    while not search.stop():
        samples = search.ask()
        rows = torch.as_tensor(numpy.stack(samples)).to(like)
        search.tell(samples, population_losses(model, rows, inputs, targets, loss).tolist())
    best = split(torch.as_tensor(search.best.x).to(like), parameters)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(best[name])
    return float(search.best.f)


AT_ONCE = 1 << 23
"""Values in the inputs and parameters of the networks that are computed at once."""


@torch.no_grad()
def population_losses(
    model: nn.Module, rows: Tensor, inputs: Tensor, targets: Tensor, loss: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """The loss of the model with the parameters in each row, as one program; what is not finite counts as very large.

    All networks of the population draw the same dropout and noise.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def one(row: Tensor) -> Tensor:
        return loss(functional_call(model, split(row, parameters), (inputs,)), targets)

    together = max(1, AT_ONCE // (inputs.numel() + rows.shape[1]))
    values: Tensor = vmap(one, randomness="same", chunk_size=min(together, len(rows)))(rows)
    return torch.nan_to_num(values, nan=1e30, posinf=1e30)


def split(row: Tensor, parameters: dict[str, Any]) -> dict[str, Tensor]:
    """One row of values as the parameters they stand for."""
    pieces = torch.split(row, [p.numel() for p in parameters.values()])
    return {name: piece.view(p.shape) for (name, p), piece in zip(parameters.items(), pieces, strict=True)}
