"""Batch norm, activation and pyramidal sum in one kernel, against torch's layers and the plain formulas."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from apical import models
from apical.kernels import composite, norm
from apical.kernels.norm import Formula
from apical.nn import PyramidalConv2d, Unit
from apical.nn.pyramidal import formula

RELU, LEAKY, ADA, LEAKY_ADA = Formula(), Formula(0.2), Formula(0.0, 0.5, 1.0), Formula(0.1, 2.0, -0.5)
PAIRS = [
    (RELU, None), (LEAKY, None), (ADA, None), (LEAKY_ADA, None),
    (RELU, RELU), (LEAKY, LEAKY), (RELU, ADA), (LEAKY, LEAKY_ADA),
]  # fmt: skip


@st.composite
def calls(draw: st.DrawFn) -> tuple[nn.Module, Tensor, Formula, Formula | None, int, Tensor | None]:
    """A norm in any state, an input of any shape and layout, and what follows them."""
    basal, apical = draw(st.sampled_from(PAIRS))
    branches = 1 if apical is None else 2
    groups = draw(st.sampled_from([1, 3])) if branches == 2 else 1
    outputs = groups * draw(st.integers(1, 20))
    inner = draw(st.sampled_from([(), (9,), (1, 1), (5, 3), (40, 31), (2, 3, 4)]))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    kind = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[len(inner)]
    layer = kind(
        branches * outputs, eps=draw(st.sampled_from([1e-5, 0.1])), momentum=draw(st.sampled_from([0.1, 1.0, None])),
        affine=draw(st.booleans()), track_running_stats=draw(st.booleans()),
    ).train(draw(st.booleans()))  # fmt: skip
    with torch.no_grad():
        for name, low, high in (("weight", -2, 2), ("bias", -1, 1), ("running_mean", -1, 1), ("running_var", 0.1, 2)):
            if getattr(layer, name) is not None:
                getattr(layer, name).uniform_(low, high)
    z = 2 * torch.randn(draw(st.integers(4, 8)), branches * outputs, *inner) + draw(st.sampled_from([0.0, 3.0]))
    residual = torch.randn(z.size(0), outputs, *inner) if draw(st.booleans()) else None
    if draw(st.booleans()):
        z = z.movedim(1, -1).contiguous().movedim(-1, 1)
    return layer, z, basal, apical, groups, residual


def branches_of(
    layer: nn.Module, z: Tensor, apical: Formula | None, groups: int, residual: Tensor | None
) -> tuple[Tensor, ...]:
    """What the activations get, by torch's norm."""
    u = layer(z)
    basal, *rest = (u,) if apical is None else composite.branches(u, groups, 1)
    return basal if residual is None else basal + residual, *rest


@given(calls())
def test_equals_torch_and_the_formulas(call: tuple) -> None:
    layer, z, basal, apical, groups, residual = call
    twin = deepcopy(layer).double()
    inputs = [t.clone().requires_grad_() for t in (z, residual) if t is not None]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    y = norm.run(layer, inputs[0], basal, apical, groups, *inputs[1:] or (None,))
    pre = branches_of(twin, exact[0], apical, groups, *exact[1:] or (None,))
    expected = sum(f.composite(u) for f, u in zip((basal, apical), pre, strict=False))
    assert y is not None
    deviation = (
        twin.running_var.sqrt()
        if not layer.training and layer.track_running_stats
        else z.transpose(0, 1).flatten(1).std(1)
    )
    largest = max(1.0, 1 / deviation.min().item())
    close(y, expected, largest)
    one = y.size(1) == 1  # which has both layouts
    assert one or y.movedim(1, -1).is_contiguous() == z.movedim(1, -1).is_contiguous()
    for own, other in zip(layer.buffers(), twin.buffers(), strict=True):
        close(own, other, 1.0)
    # Where u is as good as 0, rounding decides on which side of the kink it lies: nothing is asked there.
    flat = torch.stack([u.detach().abs() > 1e-4 for u in pre]).all(0)
    g = torch.randn(y.shape) * flat
    gradients = torch.autograd.grad(y, [*inputs, *layer.parameters()], g)
    wanted = torch.autograd.grad(expected, [*exact, *twin.parameters()], g.double())
    for own, other in zip(gradients, wanted, strict=True):
        close(own, other, largest**2)


def close(actual: Tensor, expected: Tensor, scale: float) -> None:
    """Equal up to float32's rounding of numbers as large as the largest, times `scale`."""
    bound = 1e-5 * scale * max(1.0, expected.detach().abs().max().item())
    assert (actual.detach().double() - expected.detach().double()).abs().max().item() <= bound


@pytest.mark.usefixtures("all_cores")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_statistics_far_from_zero_keep_their_digits(layout: torch.memory_format) -> None:
    z = (torch.randn(16, 6, 50, 40) + 3000.0).contiguous(memory_format=layout)
    layer = nn.BatchNorm2d(6, momentum=1.0)
    norm.run(layer, z, RELU, None, 1, None)
    exact = z.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(layer.running_mean.double(), exact.mean(1), rtol=1e-7, atol=0)
    torch.testing.assert_close(layer.running_var.double(), exact.var(1), rtol=1e-4, atol=0)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_any_number_of_threads_gives_the_same_bits(layout: torch.memory_format) -> None:
    z = torch.randn(8, 12, 33, 31).contiguous(memory_format=layout)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            layer, x = nn.BatchNorm2d(12), z.clone().requires_grad_()
            y = norm.run(layer, x, RELU, ADA, 1, None)
            assert y is not None
            results.append((y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]), *layer.buffers()))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_second_derivatives_are_those_of_the_formulas(training: bool) -> None:
    layer = nn.BatchNorm2d(4).train(training)
    layer.running_mean.normal_()
    z, residual = torch.randn(3, 4, 5, 2, requires_grad=True), torch.randn(3, 2, 5, 2, requires_grad=True)
    twin, inputs = deepcopy(layer), [z, residual, *layer.parameters()]

    def curvature(y: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), inputs)

    own = curvature(norm.run(layer, z, RELU, ADA, 1, residual), inputs)
    basal, apical = branches_of(twin, z, ADA, 1, residual)
    expected = curvature(RELU.composite(basal) + ADA.composite(apical), [z, residual, *twin.parameters()])
    for a, b in zip(own, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_upstream_gradients_and_residuals_of_any_layout() -> None:
    z, residual = torch.randn(3, 8, 5, 4, requires_grad=True), torch.randn(3, 4, 5, 4)
    layer = nn.BatchNorm2d(8)
    plain = norm.run(layer, z, RELU, ADA, 1, residual)
    other = norm.run(layer, z, RELU, ADA, 1, residual.contiguous(memory_format=torch.channels_last))
    assert torch.equal(plain, other)
    whole = torch.autograd.grad(plain, z, torch.ones(3, 4, 5, 4), retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(plain.sum(), z)[0], whole)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda layer, z: (layer.double(), z.double()),
        lambda layer, z: (layer, z[:, :, ::2]),
        lambda layer, z: (layer, z[:1, :, :1, :1]),
        lambda layer, z: (layer, z[:0]),
        lambda layer, z: (layer, z.to("meta")),
        lambda layer, z: (nn.GroupNorm(2, 8), z),
        lambda layer, z: (nn.SyncBatchNorm(8), z),
    ],
)
def test_other_calls_are_left_to_torch(spoil) -> None:
    layer, z = spoil(nn.BatchNorm2d(8), torch.randn(3, 8, 6, 4))
    assert norm.run(layer, z, RELU, None, 1, None) is None


def test_hooks_are_heard() -> None:
    heard = []
    neuron = PyramidalConv2d(3, 4, 3, norm=nn.BatchNorm2d)
    for part in (neuron.norm, neuron.basal, neuron.apical):
        part.register_forward_hook(lambda *_: heard.append(1))
        neuron(torch.randn(2, 3, 5, 5))
    assert len(heard) == 1 + 2 + 3


@pytest.mark.parametrize("unit", ["relu", "ada", "pynada"])
def test_a_forward_of_its_own_is_called(unit: str) -> None:
    neuron = Unit.parse(unit).layers().conv(2, 3, 4, 3, norm=nn.BatchNorm2d)
    x = torch.randn(2, 3, 5, 5)
    activation = neuron.apical if unit == "pynada" else neuron.activation
    activation.forward = lambda u: torch.full_like(u, 100.0)
    assert bool((neuron(x) >= 100.0).all())


def test_which_activations_the_kernel_knows() -> None:
    assert formula(nn.ReLU()) == RELU
    assert formula(nn.LeakyReLU(0.2)) == LEAKY
    assert formula(nn.LeakyReLU(-0.2)) is None
    assert formula(Unit.parse("ada(alpha=0.5,c=1)").layers().activation()) == ADA
    assert formula(Unit.parse("ada(alpha=learn)").layers().activation(4)) is None
    assert formula(nn.GELU()) is None


@pytest.mark.parametrize(
    "unit", ["relu", "leaky_relu", "ada(alpha=0.1)", "pynrelu", "pynada(alpha=0.5)", "leaky_pynada"]
)
def test_a_resnet_takes_it_and_trains_alike(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 0, 1])
    networks = [models.create("resnet-18", unit, seed=0, stem=64, outputs=2, width=4).train() for _ in range(2)]
    calls, served = [], norm._serves

    def losses(network: nn.Module, serves) -> list[float]:
        monkeypatch.setattr(norm, "_serves", serves)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.01)
        values = []
        for _ in range(3):
            loss = nn.functional.cross_entropy(network(x), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            values.append(loss.item())
        return values

    def counted(*arguments) -> bool:
        calls.append(served(*arguments))
        return calls[-1]

    own, expected = losses(networks[0], counted), losses(networks[1], lambda *_: False)
    assert calls == [True] * 17 * 3
    assert own == pytest.approx(expected, rel=1e-3)
    for a, b in zip(networks[0].buffers(), networks[1].buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)
