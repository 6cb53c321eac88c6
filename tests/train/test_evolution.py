"""Training without gradients: estimates against true gradients, CMA-ES against known functions and `cma`, trials."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cma
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from apical.errors import InvalidArgumentError, TrainingError
from apical.nn import Unit
from apical.nn.evolution import population_losses
from apical.train import Event, Execution, TrialSpec, evaluate, loop, run, stack_key, unstackable_reason
from apical.train.checkpoint import load
from apical.train.evolution import CMA, evolution_of, gradient, ranks
from apical.train.result import LAST
from apical.train.session import build

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
    """The same draws and losses in both, over many generations: mean, deviation and matrix agree.

    `cma` adapts the deviation a little faster than Hansen's tutorial says; here both do as `cma`.
    """
    size, population, random = 5, 10, np.random.default_rng(4)
    draws = random.standard_normal((60, population, size))
    options = {"popsize": population, "CMA_active": False, "CMA_diagonal": 0, "verbose": -9, "seed": float("nan")}
    other = cma.CMAEvolutionStrategy(np.full(size, 2.0), 0.7, options)
    search, mean = CMA(size, population, 0.7), torch.full((size,), 2.0, dtype=torch.float64)
    assert (search.c_one, search.c_many, search.c_path) == (other.sp.c1, other.sp.cmu, other.sp.cc)
    search.c_sigma, search.damping = other.adapt_sigma.cs, other.adapt_sigma.damps
    for these in torch.from_numpy(draws):
        steps = search.steps(these)
        values = rosenbrock(mean + steps)
        rows = list((mean + steps).numpy())
        other.ask(population)  # its own samples are not used
        other.tell(rows, values.tolist())
        mean = mean + search.update(these, values)
    assert np.allclose(mean, other.mean, rtol=0, atol=1e-9)
    assert search.sigma == pytest.approx(other.sigma, rel=5e-3)
    assert np.allclose(search.state["covariance"], other.C, rtol=0, atol=2e-2 * float(np.abs(other.C).max()))


# --- trials -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [DIGITS, XOR], ids=["es", "cma-es"])
def test_an_interrupted_trial_continues_bit_equal(spec: TrialSpec, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(loop, "INTERVAL", 0.0)
    whole = run(spec, ONE, tmp_path / "whole")

    def stop(event: Event) -> None:
        if (event.kind, event.epoch, event.batch) == ("batch", 2, 3):
            signal.raise_signal(signal.SIGTERM)

    cut = run(spec, ONE, tmp_path / "cut", [stop])
    assert (cut.state, len(cut.history)) == ("stopped", 1)
    again = run(spec, ONE, tmp_path / "cut")
    assert again.history == whole.history
    for name in (LAST, "best.safetensors"):
        a, b = (load(folder / name).tensors for folder in (tmp_path / "whole", tmp_path / "cut"))
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert np.array_equal(evaluate(whole).outputs, evaluate(again).outputs)


def test_sign_units_learn_without_gradients_and_their_layer_does_not_with_them(tmp_path: Path) -> None:
    evolved = run(replace(DIGITS, unit="sign", epochs=12, population=64), ONE, tmp_path / "es")
    first = evolved.history[0]["validation"]["accuracy"]
    assert evolved.metric > max(0.7, first)
    spec = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 8}, unit="sign", epochs=1, learning_rate=0.03)
    run(spec, ONE, tmp_path / "adam")
    before, after = build(spec, spec.dims | {"inputs": 64}), load(tmp_path / "adam" / LAST).part("model")
    hidden = [name for name in before.state_dict() if name.startswith("hidden")]
    assert hidden
    assert all(torch.equal(before.state_dict()[name], after[name]) for name in hidden)
    assert not torch.equal(before.state_dict()["head.weight"], after["head.weight"])


def test_cma_es_solves_xor_with_sign_units(tmp_path: Path) -> None:
    spec = replace(XOR, unit="sign", dims={"hidden": 4, "outputs": 1}, epochs=10)
    assert run(spec, ONE, tmp_path / "sign").metric == 1.0


@pytest.mark.parametrize("unit", ["relu", "ada(alpha=learn)", "pynada", "sine", "ada(noise=0.1)"])
@pytest.mark.parametrize("optimiser", ["es", "cma-es"])
def test_every_parameter_moves_and_seeds_are_paired(unit: str, optimiser: str) -> None:
    """Also a learned alpha, both branches of a pyramidal neuron, and units that draw noise."""
    spec = replace(DIGITS if optimiser == "es" else replace(XOR, data="digits", loss="cross-entropy"), unit=unit,
                   dims={"hidden": 3})  # fmt: skip
    inputs, labels = torch.rand(16, 1, 8, 8), torch.arange(16) % 10
    moved = []
    for _ in range(2):
        network = build(spec, spec.dims | {"inputs": 64})
        strategy = evolution_of(spec, network)
        assert strategy is not None
        torch.manual_seed(0)  # of the noise inside the units
        strategy.propose(inputs, labels, epoch=1, batch=2)
        moved.append([p.grad for p in network.parameters()])
        assert all(bool((p.grad != 0).any()) for p in network.parameters())
    assert all(torch.equal(a, b) for a, b in zip(*moved, strict=True))


def test_the_penalty_is_part_of_the_loss() -> None:
    spec = replace(DIGITS, l2=2.0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 1))
    strategy = evolution_of(replace(spec, loss="mse", metric="mse"), network)
    assert strategy is not None
    rows = torch.tensor([[1.0, 2.0, 0.0, 0.0, 7.0]])  # four weights and a bias, which has no penalty
    inputs, targets = torch.zeros(3, 4), torch.full((3, 1), 7.0)
    assert strategy._losses(rows, inputs, targets).tolist() == [5.0]


def test_a_population_is_evaluated_as_each_network_alone() -> None:
    network = Unit.parse("ada").layers().linear(3, 2)
    rows = torch.randn(7, 8, generator=torch.Generator().manual_seed(5))
    inputs, targets = torch.randn(4, 3, generator=torch.Generator().manual_seed(6)), torch.zeros(4, 2)
    both = [population_losses(network, rows, inputs, targets, nn.functional.mse_loss)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apical.nn.evolution.AT_ONCE", 60)  # three networks at a time
        both.append(population_losses(network, rows, inputs, targets, nn.functional.mse_loss))
    for row, *values in zip(rows, *both, strict=True):
        nn.utils.vector_to_parameters(row, network.parameters())
        alone = nn.functional.mse_loss(network(inputs), targets).item()
        assert [float(v) for v in values] == pytest.approx([alone, alone])


# --- what a trial may say ---------------------------------------------------------------------------------------------


def test_trials_with_gradients_keep_their_names() -> None:
    """The digest of a trial of the first release, which knew no population."""
    spec = TrialSpec(data="digits", model="mlp-1", unit="ada(alpha=0.3)", epochs=3, seed=7)
    assert not {"population", "sigma"} & spec.as_dict().keys()
    assert replace(spec, population=100, sigma=0.1).digest == spec.digest
    assert (
        len({spec.digest, DIGITS.digest, replace(DIGITS, sigma=0.2).digest, replace(DIGITS, population=8).digest}) == 4
    )
    assert TrialSpec.from_toml(DIGITS.to_toml()) == DIGITS == TrialSpec.from_json(DIGITS.to_json())


@pytest.mark.parametrize(("changes", "words"), [
    ({"optimiser": "adam", "sigma": 0.1}, "population is 32, but the optimiser 'adam' has no population"),
    ({"population": 33}, "population is 33, but es needs an even number"),
    ({"population": 2}, "population is 2, but must be at least 4"),
    ({"optimiser": "cma-es"}, "learning_rate is 0.03, but with cma-es .* use learning_rate=1"),
    ({"clip": 1.0}, "has no gradient to clip"),
    ({"precision": "bf16-mixed"}, "computes in float32"),
    ({"sigma": 0.0}, "sigma is 0.0, but must be at least 1e-12"),
])  # fmt: skip
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        replace(DIGITS, **changes)


def test_networks_that_a_population_cannot_have_are_refused() -> None:
    normed = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(TrainingError, match="batch norm"):
        evolution_of(DIGITS, normed)
    with pytest.raises(TrainingError, match="10,100 parameters, but cma-es trains at most 4,096: use optimiser='es'"):
        evolution_of(XOR, nn.Linear(100, 100))
    assert evolution_of(replace(XOR, optimiser="adam", population=100, sigma=0.1, learning_rate=0.1), normed) is None


def test_such_trials_are_trained_alone() -> None:
    assert stack_key(DIGITS) is None
    assert "optimiser='es'" in str(unstackable_reason(DIGITS))
