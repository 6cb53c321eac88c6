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
    losses = _population_loss(model, parameters, inputs, targets, loss)
    while not search.stop():
        samples = search.ask()
        search.tell(samples, losses(torch.as_tensor(numpy.stack(samples)).to(like)).tolist())
    best = _split(torch.as_tensor(search.best.x).to(like), parameters)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(best[name])
    return float(search.best.f)


def _population_loss(model: nn.Module, parameters: dict[str, Any], inputs: Tensor, targets: Tensor, loss: Any) -> Any:
    """A function from samples, one in each row, to their losses; a loss that is not finite counts as very large."""

    def one(sample: Tensor) -> Tensor:
        return loss(functional_call(model, _split(sample, parameters), (inputs,)), targets)  # type: ignore[no-any-return]

    def all_of(samples: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.nan_to_num(vmap(one)(samples), nan=1e30, posinf=1e30)

    return all_of


def _split(row: Tensor, parameters: dict[str, Any]) -> dict[str, Tensor]:
    """One row of values as the parameters they stand for."""
    pieces = torch.split(row, [p.numel() for p in parameters.values()])
    return {name: piece.view(p.shape) for (name, p), piece in zip(parameters.items(), pieces, strict=True)}
