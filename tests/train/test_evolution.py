"""Training without gradients: estimates against true gradients, CMA-ES against known functions and `cma`, trials."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cma
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from apical.errors import InvalidArgumentError, TrainingError
from apical.nn import Unit
from apical.train import Event, Execution, TrialSpec, evaluate, run, stack_key, unstackable_reason
from apical.train.evolution import CMA, evolution_of, gradient, ranks

ONE = Execution(threads=1)
DIGITS = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 8}, optimiser="es", population=32, sigma=0.05,
                   learning_rate=0.03, epochs=3, batch=256)  # fmt: skip
XOR = TrialSpec(data="xor", model="mlp-1", dims={"hidden": 2, "outputs": 1}, loss="binary", optimiser="cma-es",
                population=24, sigma=1.0, learning_rate=1.0, epochs=4, passes=25, batch=4)  # fmt: skip


# --- the estimate of es -----------------------------------------------------------------------------------------------


def quadratic(size: int) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    """A quadratic loss of rows, a point, and the true gradient there."""
    draw = torch.Generator().manual_seed(1)
    root = torch.randn(size, size, generator=draw, dtype=torch.float64)
    matrix, linear = root @ root.t() / size, torch.randn(size, generator=draw, dtype=torch.float64)
    point = torch.randn(size, generator=draw, dtype=torch.float64)
    return lambda rows: ((rows @ matrix) * rows).sum(1) / 2 + rows @ linear, point, matrix @ point + linear


def estimate(pairs: int, shape: Callable[[Tensor], Tensor], sigma: float = 0.3) -> tuple[Tensor, Tensor]:
    loss, point, true = quadratic(6)
    noise = torch.randn(pairs, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    values = shape(loss(torch.cat([point + sigma * noise, point - sigma * noise])))
    return gradient(*values.chunk(2), noise, sigma), true


def test_the_estimate_converges_to_the_gradient_of_a_quadratic() -> None:
    errors = []
    for pairs in (1_000, 100_000):
        found, true = estimate(pairs, lambda values: values)
        errors.append(float((found - true).norm() / true.norm()))
    assert errors[1] < 0.02
    assert errors[1] < errors[0] / 4  # a tenth, where the error falls with the root of the pairs


def test_with_ranks_its_direction_converges() -> None:
    found, true = estimate(100_000, ranks, sigma=0.01)
    assert torch.cosine_similarity(found, true, dim=0) > 0.999


def test_equal_losses_share_their_rank_and_scale_does_not_matter() -> None:
    values = torch.tensor([3.0, 1.0, 3.0, 1e30, 2.0])
    assert ranks(values).tolist() == [0.125, -0.5, 0.125, 0.5, -0.25]
    assert torch.equal(ranks(7 * values - 2), ranks(values))
    assert ranks(torch.ones(4)).tolist() == [0.0, 0.0, 0.0, 0.0]


# --- cma-es -----------------------------------------------------------------------------------------------------------


def minimise(loss: Callable[[Tensor], Tensor], start: Tensor, *, sigma: float, generations: int) -> tuple[Tensor, CMA]:
    search, mean = CMA(len(start), 12, sigma), start.clone()
    draw = torch.Generator().manual_seed(3)
    for _ in range(generations):
        draws = torch.randn(12, len(start), generator=draw, dtype=torch.float64)
        mean += search.update(draws, loss(mean + search.steps(draws)))
    return mean, search


def rosenbrock(rows: Tensor) -> Tensor:
    return (100 * (rows[:, 1:] - rows[:, :-1] ** 2) ** 2 + (1 - rows[:, :-1]) ** 2).sum(1)


def test_cma_es_finds_the_minimum_of_the_sphere_and_of_rosenbrock() -> None:
    start = torch.full((8,), 3.0, dtype=torch.float64)
    mean, search = minimise(lambda rows: rows.square().sum(1), start, sigma=1.0, generations=250)
    assert mean.norm() < 1e-6
    assert search.sigma < 1e-6
    mean, _ = minimise(rosenbrock, torch.zeros(8, dtype=torch.float64), sigma=0.3, generations=1_000)
    assert (mean - 1).abs().max() < 1e-4


def test_cma_es_learns_the_shape_of_an_ellipsoid() -> None:
    scales = torch.tensor([1.0, 10.0, 100.0, 1000.0], dtype=torch.float64)
    _, search = minimise(lambda rows: (scales * rows.square()).sum(1), torch.ones(4, dtype=torch.float64), sigma=1.0,
                         generations=150)  # fmt: skip
    variances = search.state["covariance"].diagonal()
    product = variances * scales  # equal, where the matrix is the inverse of the Hessian
    assert product.max() / product.min() < 5


def test_cma_es_takes_the_steps_of_the_package_cma() -> None:
    """The same draws and losses in both, over many generations: mean, deviation and matrix agree."""
    size, population, random = 5, 10, np.random.default_rng(4)
    draws = random.standard_normal((60, population, size))
    options = {"popsize": population, "CMA_active": False, "CMA_diagonal": 0, "verbose": -9, "seed": float("nan")}
    other = cma.CMAEvolutionStrategy(np.full(size, 2.0), 0.7, options)
    search, mean = CMA(size, population, 0.7), torch.full((size,), 2.0, dtype=torch.float64)
    for these in torch.from_numpy(draws):
        steps = search.steps(these)
        values = rosenbrock(mean + steps)
        rows = [np.array(row) for row in mean + steps]
        other.ask(population)  # its own samples are not used
        other.tell(rows, values.tolist())
        mean = mean + search.update(these, values)
    assert np.allclose(mean, other.mean, rtol=0, atol=1e-3)
