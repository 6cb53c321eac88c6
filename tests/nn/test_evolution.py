"""CMA-ES for small models, and the XOR experiment that needs it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from apical.errors import InvalidArgumentError, MissingExtraError
from apical.nn import evolve_, initialise_

X = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


@pytest.fixture(scope="module")
def xor() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "xor.py"
    spec = importlib.util.spec_from_file_location("xor_experiment", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["xor_experiment"] = module
    spec.loader.exec_module(module)
    return module


def test_xor_is_learned_from_every_start_with_ada_and_never_with_relu(xor: ModuleType) -> None:
    assert xor.by_evolution([xor.neuron("ada(c=1)", seed) for seed in range(20)]) >= 19
    (relu,) = xor.experiment(4, ("relu",))
    assert (relu.adam, relu.evolved) == (0, 0)


def test_plain_adam_learns_xor_from_about_one_start_in_four(xor: ModuleType) -> None:
    assert 10 <= xor.by_adam([xor.neuron("ada(c=1)", seed) for seed in range(100)]) <= 40


def test_swish_needs_a_negative_beta(xor: ModuleType) -> None:
    solved = []
    for seed in range(6):
        one = xor.neuron("swish", seed)
        evolve_(one, xor.INPUTS, xor.TARGETS, seed=seed)
        if xor.solved(one(xor.INPUTS)[None]).item():
            solved.append(one.activation.beta.item())
    assert solved
    assert max(solved) < 0


def test_the_page_is_updated_between_its_marks(xor: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- benchmarks/xor.py -->\nold\n<!-- end -->\nafter\n", encoding="utf-8")
    table = xor.as_markdown([xor.Result("ada", 8, 2, 8)])
    xor.update(page, table)
    text = page.read_text(encoding="utf-8")
    assert "| `ada` | 2 (25.0%) | 8 (100.0%) |" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


def fitted(seed: int) -> tuple[float, list[float]]:
    model = nn.Linear(2, 1)
    initialise_(model, seed=0)
    loss = evolve_(model, X, X.sum(1, keepdim=True) + 0.5, seed=seed)
    return loss, [value for p in model.parameters() for value in p.flatten().tolist()]


def test_finds_the_minimum_the_same_way_for_the_same_seed() -> None:
    loss, values = fitted(1)
    assert loss < 1e-4
    assert values == pytest.approx([1.0, 1.0, 0.5], abs=0.05)
    assert fitted(1) == (loss, values)
    assert fitted(2) != (loss, values)


def test_frozen_parameters_and_global_generators_are_left_alone() -> None:
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    before, state, legacy = model.bias.clone(), torch.get_rng_state(), np.random.get_state()[1].copy()
    loss = evolve_(model, X, X.sum(1, keepdim=True), seed=0, generations=3)
    assert torch.equal(model.bias, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == legacy).all()
    assert nn.functional.mse_loss(model(X), X.sum(1, keepdim=True)).item() == pytest.approx(loss, rel=1e-4)


def test_bad_input_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="no parameter to evolve"):
        evolve_(nn.ReLU(), X, X, seed=0)
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'apical\[lab\]'"):
        evolve_(nn.Linear(2, 1), X, X, seed=0)
