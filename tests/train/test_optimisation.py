from dataclasses import replace

import pytest
import torch
from torch import nn

from apical.errors import CheckpointError
from apical.models import create
from apical.nn import ADA
from apical.train import TrialSpec
from apical.train.optimisation import FastStep, load_state, optimiser_of, set_rate, state_of

SPEC = TrialSpec(data="digits", model="mlp-1", learning_rate=0.1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), ADA(learnable=True), nn.Linear(4, 2))


def step(model, optimiser, penalty=0.0):
    optimiser.zero_grad()
    x = torch.arange(15.0, dtype=model[0].weight.dtype).view(5, 3) / 10
    loss = model(x).square().mean()
    loss = loss + penalty * sum(p.square().sum() / 2 for p in model.parameters() if p.dim() > 1)
    loss.backward()
    optimiser.step()


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_l2_is_the_penalty_on_weights_alone(name):
    """In double precision: a norm takes away the bias in front of it, so that its gradient is rounding alone, and Adam,
    which divides gradients by their size, makes steps of rounding as long as any other unless it is far below eps."""
    ours, plain = network().double(), network().double()
    spec = TrialSpec(data="digits", model="mlp-1", learning_rate=0.01, l2=0.3, optimiser=name)
    classes = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    first, second = optimiser_of(spec, ours), classes[name](plain.parameters(), lr=0.01)
    for _ in range(5):
        step(ours, first)
        step(plain, second, penalty=0.3)
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_the_state_continues_bit_equal():
    a, b = network(), network()
    first, second = optimiser_of(SPEC, a), optimiser_of(SPEC, b)
    for _ in range(3):
        step(a, first)
    b.load_state_dict(a.state_dict())
    load_state(second, {name: t.clone() for name, t in state_of(first).items()})
    for _ in range(3):
        step(a, first)
        step(b, second)
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("key", ["99:step", "x:step", "0:", "0:exp_avg"])
def test_a_state_of_another_network_is_refused(key):
    with pytest.raises(CheckpointError, match="optimiser"):
        load_state(optimiser_of(SPEC, network()), {key: torch.zeros(2, 2)})


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_lean_steps_have_the_bits_of_torchs_own(optimiser, l2):
    spec = TrialSpec(data="digits", model="mlp-1", optimiser=optimiser, l2=l2)
    networks = [create("mlp-1", "ada(alpha=learn)", seed=0, inputs=8) for _ in range(2)]
    whole, lean = (optimiser_of(spec, network) for network in networks)
    steps = [whole, FastStep(lean)]
    for k in range(6):
        if k == 3:  # what a resumed trial does
            load_state(lean, {name: t.clone() for name, t in state_of(lean).items()})
        for network, own, step in zip(networks, (whole, lean), steps, strict=True):
            set_rate(own, 0.1 / (k + 1))
            step.zero_grad()
            network(torch.arange(16.0).view(2, 8) / 16).square().sum().backward()
            step.step()
    for one, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        assert torch.equal(one, other)
    assert all(torch.equal(t, state_of(lean)[name]) for name, t in state_of(whole).items())


def test_a_parameter_without_a_gradient_is_left_alone():
    network = create("mlp-1", "relu", seed=0, inputs=8)
    step = FastStep(optimiser_of(TrialSpec(data="digits", model="mlp-1"), network))
    for used in (network, network.hidden, network):
        before = network.head.weight.clone()
        step.zero_grad()
        used(torch.ones(2, 8)).sum().backward()
        step.step()
        assert torch.equal(before, network.head.weight) == (used is network.hidden)


def test_the_step_is_fused_unless_float16_gradients_are_clipped():
    """A fused step removes the scale of float16 gradients itself; Fabric refuses to clip what is still scaled."""
    for clip, precision, fused in ((None, "32", True), (1.0, "bf16-mixed", True), (1.0, "16-mixed", False)):
        optimiser = optimiser_of(replace(SPEC, clip=clip, precision=precision), network())
        assert optimiser.defaults["fused"] is fused


def test_moments_come_back_in_the_layout_of_their_parameter():
    weight = nn.Parameter(torch.randn(4, 4, 3, 3).contiguous(memory_format=torch.channels_last))
    optimiser = torch.optim.Adam([weight], fused=True)
    weight.grad = torch.randn_like(weight)
    optimiser.step()
    stored = {key: tensor.clone(memory_format=torch.contiguous_format) for key, tensor in state_of(optimiser).items()}
    load_state(optimiser, stored)
    assert torch.equal(optimiser.state[weight]["exp_avg"], stored["0:exp_avg"])
    assert optimiser.state[weight]["exp_avg"].stride() == weight.stride()  # fused Adam looks at memory alone
