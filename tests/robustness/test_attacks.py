"""Attacks, against closed forms: of a linear classifier the best change of eps in each value is eps * sign(w)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apical import ADA, robustness
from apical.errors import InvalidArgumentError
from apical.robustness import Threat, attack, fgsm, margin, pgd, square, transfer

ATTACKS = {"fgsm": fgsm, "pgd": pgd, "square": square}


def two_classes(seed: int, size: int = 6, samples: int = 40) -> tuple[nn.Linear, torch.Tensor, torch.Tensor]:
    """A linear classifier of two classes, inputs in the middle of [0, 1], and the classes that it gives them."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(size, 2)
    with torch.no_grad():
        model.weight.copy_(torch.randn(2, size, generator=generator))
        model.bias.copy_(-model.weight.sum(1) / 2)
    x = 0.3 + 0.4 * torch.rand(samples, size, generator=generator)
    return model, x, model(x).argmax(1)


def best_margin(model: nn.Linear, x: torch.Tensor, labels: torch.Tensor, eps: float) -> torch.Tensor:
    """The largest margin within eps, where the range of inputs does not matter: margin + eps * |w_wrong - w_right|."""
    with torch.no_grad():
        slope = (model.weight[0] - model.weight[1]).abs().sum()
        return margin(model(x), labels) + eps * slope


@settings(max_examples=20)
@given(st.integers(0, 1000), st.sampled_from([0.01, 0.1, 0.25]))
def test_gradient_attacks_are_exact_on_a_linear_classifier(seed: int, eps: float) -> None:
    model, x, labels = two_classes(seed)
    expected = best_margin(model, x, labels, eps)
    for name in ("fgsm", "pgd"):
        moved = ATTACKS[name](model, x, labels, Threat(eps))
        torch.testing.assert_close(margin(model(moved), labels).detach(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_square_attack_stays_below_the_optimum_and_comes_near_it(seed: int) -> None:
    model, x, labels = two_classes(seed, size=4)
    with torch.no_grad():
        model.bias[0] += 1e4 * (2 * labels[0] - 1) * -1  # so sure of one class that no query ends the search
    labels = model(x).argmax(1)
    reached = margin(model(square(model, x, labels, Threat(0.1, queries=400))), labels) - margin(model(x), labels)
    possible = best_margin(model, x, labels, 0.1) - margin(model(x), labels).detach()
    assert (reached <= possible + 2e-3).all()
    assert (reached >= possible - 2e-3).float().mean() > 0.9


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("shape", [(7,), (1, 9, 8), (3, 5, 5), (4, 3)])
def test_inputs_stay_within_eps_and_within_the_range(name: str, shape: tuple[int, ...]) -> None:
    x = torch.rand(12, *shape) * 2 - 1  # many values stand at the edge or near it
    x[0], x[1] = -1.0, 1.0
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(16), ADA(alpha=0.5), nn.Linear(16, 5))
    labels = model(x).argmax(1)
    threat = Threat(0.3, low=-1.0, high=1.0, steps=5, queries=30)
    moved = ATTACKS[name](model, x, labels, threat)
    assert moved.shape == x.shape
    assert (moved - x).abs().max() <= 0.3 + 1e-6
    assert moved.min() >= -1.0
    assert moved.max() <= 1.0
    assert not torch.equal(moved, x)
    assert torch.equal(moved, ATTACKS[name](model, x, labels, threat))


def test_another_seed_gives_other_inputs() -> None:
    model, x, labels = two_classes(3)
    first, second = (square(model, x, labels, Threat(0.05, queries=20, seed=seed)) for seed in (0, 1))
    assert not torch.equal(first, second)


def test_a_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), ADA())
    model = nn.Sequential(model, nn.Linear(8, 3))
    model[0][1].eval()
    model[1].bias.requires_grad_(False)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes, wanted = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    x = torch.rand(10, 4)
    attack(model, x, torch.zeros(10, dtype=torch.long), eps=0.1, queries=5, steps=2, source=model)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == wanted
    assert all(p.grad is None for p in model.parameters())


def test_transfer_is_pgd_of_the_other_model() -> None:
    model, x, labels = two_classes(0)
    other = two_classes(1)[0]
    threat = Threat(0.1)
    assert torch.equal(transfer(other, x, labels, threat), pgd(other, x, labels, threat))
    result = attack(model, x, labels, eps=0.1, attacks=["transfer"], source=other)
    expected = model(pgd(other, x, labels, threat)).argmax(1) == labels
    assert torch.equal(result.survived["transfer"], expected)


def test_the_weakest_counts_and_is_taken_for_each_sample() -> None:
    clean = torch.tensor([True, True, True, False])
    survived = {"pgd": torch.tensor([True, False, True, False]), "square": torch.tensor([False, True, True, False])}
    result = robustness.AttackResult(threat=Threat(0.1), clean=clean, survived=survived)
    assert (result.clean_accuracy, result.accuracy("pgd"), result.accuracy("square")) == (0.75, 0.5, 0.5)
    assert result.weakest == 0.25
    assert result.masked == 0.25  # the first sample: right under PGD, wrong under the square attack
    assert result.suspicious
    assert "the gradient misleads them" in result.summary
    assert result.as_dict()["attacks"] == {"pgd": 0.5, "square": 0.5}


class Masked(nn.Module):
    """A linear classifier behind steps: its gradient is 0 everywhere, and nothing else about it is strong."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model((x * 50).round() / 50 + 0 * x)


def test_a_hidden_gradient_is_noticed() -> None:
    model, x, labels = two_classes(5)
    plain = attack(model, x, labels, eps=0.2)
    assert plain.masked == 0
    assert not plain.suspicious
    hidden = attack(Masked(model), x, labels, eps=0.2, source=model, restarts=1)
    assert hidden.accuracy("fgsm", "pgd") > hidden.accuracy("square")
    assert hidden.suspicious
    assert hidden.masked is not None
    assert hidden.masked > 0.2
    assert hidden.weakest <= plain.weakest + 0.1
    assert attack(model, x, labels, eps=0.2, attacks=["pgd"]).masked is None


def test_flat_cross_entropy_does_not_stop_pgd() -> None:
    """Logits so large that the gradient of the cross-entropy is exactly 0: the margin goes on."""
    model, x, labels = two_classes(2)
    with torch.no_grad():
        model.weight *= 1e4
        model.bias *= 1e4
    assert torch.equal(fgsm(model, x, labels, Threat(0.2))[0], x[0])
    assert attack(model, x, labels, eps=0.2, attacks=["pgd"]).weakest < attack(model, x, labels, eps=0.2).accuracy(
        "fgsm"
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"eps": 0.0}, "eps is 0.0 and values lie in"),
        ({"steps": 0}, "steps is 0, but must be at least 1"),
        ({"attacks": ["pdg"]}, "unknown attack 'pdg'; did you mean 'pgd'"),
        ({"attacks": ["transfer"]}, "the attack 'transfer' needs source="),
        ({"stpes": 3}, "unknown setting of attacks 'stpes'"),
        ({"low": 0.5}, "inputs lie in"),
    ],
)
def test_what_is_wrong_is_one_sentence(change: dict, sentence: str) -> None:
    model, x, labels = two_classes(0)
    with pytest.raises(InvalidArgumentError, match=sentence):
        attack(model, x, labels, **{"eps": 0.1} | change)


def test_no_samples_give_no_accuracy() -> None:
    model, x, labels = two_classes(0)
    result = attack(model, x[:0], labels[:0], eps=0.1)
    assert result.clean_accuracy != result.clean_accuracy
