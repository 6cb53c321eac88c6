"""Noise in ADA: what each place of it does, that evaluation has none, and that torch's generator decides it."""

import pytest
import torch
from torch import nn

from apical import ADA, LeakyADA, PyramidalLinear, Unit, functional
from apical.errors import InvalidArgumentError
from apical.nn import kinds
from apical.nn.activations import NOISE_IN
from apical.train import TrialSpec, stack_key, unstackable_reason

X = torch.linspace(-3, 6, 400).repeat(50)


@pytest.mark.parametrize("kind", [ADA, LeakyADA])
@pytest.mark.parametrize("where", NOISE_IN)
def test_evaluation_has_no_noise_and_the_generator_decides_it(kind: type[ADA], where: str) -> None:
    noisy, clean = kind(alpha=0.5, noise=0.3, noise_in=where), kind(alpha=0.5)
    assert torch.equal(noisy.eval()(X), clean(X))
    noisy.train()
    torch.manual_seed(1)
    first = noisy(X)
    assert not torch.equal(first, noisy(X))
    torch.manual_seed(1)
    assert torch.equal(first, noisy(X))
    assert not torch.equal(first, clean(X))


def test_noise_on_alpha_is_another_alpha_for_each_value() -> None:
    """ADA(m x) / m is ADA with m alpha: compared with the formula, value by value, forward and backward."""
    x = X.clone().requires_grad_()
    module = ADA(alpha=0.5, c=0.2, noise=0.4, learnable=True)
    torch.manual_seed(3)
    y = module(x)
    torch.manual_seed(3)
    m = torch.exp(0.4 * torch.randn_like(X) - 0.4**2 / 2)
    plain, alpha = X.clone().requires_grad_(), torch.tensor(0.5, requires_grad=True)
    expected = plain.clamp_min(0) * torch.exp(0.2 - m * alpha * plain.clamp_min(0))
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)
    y.sum().backward()
    expected.sum().backward()
    positive = X != 0  # at 0 the derivative is the right-hand one, torch's clamp has another
    torch.testing.assert_close(x.grad[positive], plain.grad[positive], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(module.alpha.grad[0], alpha.grad, rtol=1e-4, atol=1e-2)
    assert m.mean() == pytest.approx(1, abs=0.02)


def test_the_other_places_have_the_same_deviation_at_the_output() -> None:
    x = torch.full((200_000,), 1.0)
    clean = float(functional.ada(x[:1], 0.5))
    for where in ("output", "mask"):
        y = ADA(alpha=0.5, noise=0.3, noise_in=where)(x) / clean
        assert y.mean() == pytest.approx(1, abs=0.01)
        assert y.std() == pytest.approx(0.3, rel=0.02)
    mask = ADA(alpha=0.5, noise=1.0, noise_in="mask")(x)
    assert sorted(mask.unique().tolist()) == pytest.approx([0, 2 * clean])
    torch.manual_seed(0)
    moved = ADA(alpha=0.5, noise=0.3, noise_in="input")(x)
    torch.manual_seed(0)
    torch.testing.assert_close(moved, functional.ada(x + 0.3 * torch.randn_like(x), 0.5))


def test_pyramidal_layers_and_networks_have_it_too() -> None:
    layer = PyramidalLinear(4, 8, apical=ADA(alpha=0.5, noise=0.5))
    x = torch.rand(3, 4)
    assert not torch.equal(layer(x), layer(x))
    quiet = PyramidalLinear(4, 8, apical=ADA(alpha=0.5))
    quiet.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(x), quiet.eval()(x))
    network = nn.Sequential(Unit.parse("pynada(noise=0.2)").layers().linear(4, 4))
    assert not torch.equal(network(x), network(x))


def test_a_unit_says_its_noise_and_is_not_stacked() -> None:
    unit = Unit("ada", alpha=0.5, noise=0.1)
    assert str(unit) == "ada(alpha=0.5,noise=0.1)"
    assert str(Unit.parse("ada(alpha=0.5)")) == "ada(alpha=0.5)"
    assert Unit.of(ADA(alpha=0.5, noise=0.1, noise_in="mask")) == Unit("ada", alpha=0.5, noise=0.1, noise_in="mask")
    noisy = ("ada(noise=0.1)", "pynada(noise=0.1)", "pyramidal(basal=relu,apical=ada(noise=0.1))")
    assert not any(map(kinds.stackable, noisy))
    assert all(map(kinds.stackable, ("ada", "ada(noise=0)", "pynada(noise_in=mask)")))
    spec = TrialSpec(data="digits", model="mlp-1", unit="ada(noise=0.1)")
    assert stack_key(spec) is None
    assert "it draws noise" in str(unstackable_reason(spec))


def test_a_noisy_trial_is_reproducible(tmp_path) -> None:
    from apical.train import Execution, run

    spec = TrialSpec(data="digits", model="mlp-1", unit="ada(noise=0.3)", epochs=2, dims={"hidden": 8})
    first, second = (run(spec, Execution(threads=1), tmp_path / name) for name in ("a", "b"))
    assert first.history == second.history


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"noise": -0.1}, "noise is -0.1, but must be at least 0"),
        ({"noise_in": "beta"}, "noise_in is 'beta', but must"),
    ],
)
def test_what_is_wrong_is_one_sentence(settings: dict, sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        ADA(**settings)
    with pytest.raises(InvalidArgumentError, match=sentence):
        Unit("ada", **settings)


@pytest.mark.parametrize("unit", ["ada(noise=0.5)", "pynada(noise=0.5)"])
def test_noise_is_there_behind_batch_norm_too(unit: str) -> None:
    neuron = Unit.parse(unit).layers().conv(2, 3, 4, 3, norm=nn.BatchNorm2d)
    x = torch.randn(4, 3, 6, 6)
    neuron.train()
    assert not torch.equal(neuron(x), neuron(x))
    neuron.eval()
    assert torch.equal(neuron(x), neuron(x))
