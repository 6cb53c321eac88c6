"""The activations of stacked networks, alone and with the pooling behind them, against plain torch."""

import pytest
import torch
from torch.nn import functional

from apical.kernels import composite, neurons

GROUPS, OUTPUTS = 2, 3
ALPHA = torch.tensor([0.3, 1.0, 2.5, 0.7, 5.0, 0.05])
C = torch.tensor([0.0, 1.0, -2.0, 0.5, 0.0, 3.0])
FORMULAS = {
    "relu": lambda x, alpha, c, leak: functional.leaky_relu(x, leak),
    "rbf": lambda x, alpha, c, leak: composite.rbf(x, alpha),
    "swish": lambda x, alpha, c, leak: composite.swish(x, alpha),
    "ada": composite.ada,
}
SHAPES = [(1,), (7,), (64,), (1500,)]


def random(*shape):
    return 3 * torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def formula(function, z, alpha, c, leak, basal_leak, branches):
    """In double precision: y of (channels, ...) z."""
    along = [-1] + [1] * (z.dim() - 1)
    values = z if branches == 1 else composite.branches(z, GROUPS, 0)[1]
    y = FORMULAS[function](values, alpha.view(along), c.view(along), leak)
    return y if branches == 1 else functional.leaky_relu(composite.branches(z, GROUPS, 0)[0], basal_leak) + y


def expected(function, z, g, leak, basal_leak, branches, pool=False):
    leaves = [t.double().requires_grad_() for t in (z, ALPHA)]
    y = formula(function, leaves[0], leaves[1], C.double(), leak, basal_leak, branches)
    if pool:
        y = functional.max_pool2d(y.permute(3, 0, 1, 2), 2).permute(1, 2, 3, 0)
    gradients = torch.autograd.grad(y, leaves, g(y.shape).double(), allow_unused=True)
    return y.detach(), *gradients


def close(one, other):
    scale = float(other.abs().max()) if other.numel() else 0.0
    torch.testing.assert_close(one.double(), other, rtol=2e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("leak", [0.0, 0.2])
@pytest.mark.parametrize("function", neurons.FUNCTIONS)
def test_values_and_gradients_are_those_of_the_formula(function, leak, branches, shape):
    z = random(GROUPS * branches * OUTPUTS, *shape)
    layer = neurons.Neurons(function, GROUPS, branches, leak=leak, basal_leak=0.1)
    bound = layer.bind(z.shape, ALPHA, C)
    y, g = torch.empty(GROUPS * OUTPUTS, *shape), random(GROUPS * OUTPUTS, *shape)
    neurons.forward(z, bound, y)
    gz, galpha = torch.empty_like(z), torch.empty(len(ALPHA))
    neurons.backward(z, g, bound, gz, galpha)
    plain, plain_z, plain_alpha = expected(function, z, lambda _: g, leak, 0.1, branches)
    close(y, plain)
    close(gz, plain_z)
    if plain_alpha is not None:
        close(galpha, plain_alpha)
    in_place = g.clone() if branches == 1 else z.clone()
    neurons.backward(z if branches == 1 else in_place, g if branches == 2 else in_place, bound, in_place, None)
    assert torch.equal(in_place, gz)


@pytest.mark.parametrize("n", [1, 16, 33])
@pytest.mark.parametrize("size", [(6, 4), (5, 7)], ids=str)
@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("function", neurons.FUNCTIONS)
def test_pooled_they_are_those_of_the_formula_and_torchs_pooling(function, branches, size, n):
    z = random(GROUPS * branches * OUTPUTS, *size, n)
    layer = neurons.Neurons(function, GROUPS, branches, leak=0.1, basal_leak=0.1)
    bound = layer.bind(z.shape, ALPHA, C)
    pooled = size[0] // 2, size[1] // 2, n
    y, best = torch.empty(len(ALPHA), *pooled), torch.empty(len(z), *pooled)
    winner, g = torch.empty(y.shape, dtype=torch.uint8), random(*y.shape)
    neurons.pool_forward(z, bound, y, best, winner)
    gz, galpha = torch.full_like(z, torch.nan), torch.empty(len(ALPHA))
    neurons.pool_backward(g, bound, best, winner, gz, galpha)
    plain, plain_z, plain_alpha = expected(function, z, lambda _: g, 0.1, 0.1, branches, pool=True)
    close(y, plain)
    close(gz, plain_z)
    if plain_alpha is not None:
        close(galpha, plain_alpha)


def test_of_equals_the_first_pixel_wins_and_not_a_number_does():
    z = torch.zeros(1, 2, 4, 2)
    z[0, 1, 2, 1] = torch.nan
    bound = neurons.Neurons("relu", 1, 1).bind(z.shape, torch.ones(1), torch.zeros(1))
    y, best, winner = torch.empty(1, 1, 2, 2), torch.empty(1, 1, 2, 2), torch.empty(1, 1, 2, 2, dtype=torch.uint8)
    neurons.pool_forward(z, bound, y, best, winner)
    assert winner.flatten().tolist() == [0, 0, 0, 2]
    assert y.isnan().flatten().tolist() == [False, False, False, True]


@pytest.mark.parametrize("function", neurons.FUNCTIONS)
def test_extreme_values_are_those_of_the_formula(function):
    z = torch.tensor([[-1e30, -1e4, -90.0, -0.0, 0.0, 1e-40, 60.0, 90.0, 1e4, 1e30, torch.nan]])
    bound = neurons.Neurons(function, 1, 1).bind(z.shape, torch.ones(1), torch.zeros(1))
    y, gz = torch.empty_like(z), torch.empty_like(z)
    neurons.forward(z, bound, y)
    neurons.backward(z, torch.ones_like(z), bound, gz, None)
    plain = FORMULAS[function](z, torch.ones(1), torch.zeros(1), 0.0)
    torch.testing.assert_close(y, plain, rtol=1e-6, atol=1e-36, equal_nan=True)
    assert torch.isfinite(gz[0, :-1]).all()


@pytest.mark.parametrize("s", [-1.0, 1e-6])
def test_a_learned_width_below_its_floor_is_held_there_or_has_none(s):
    z = torch.linspace(-2, 2, 9).view(1, -1)
    for floor, used in ((1e-4, max(s, 1e-4)), (-float("inf"), s)):
        bound = neurons.Neurons("rbf", 1, 1, floor=floor).bind(z.shape, torch.tensor([s]), torch.zeros(1))
        y = torch.empty_like(z)
        neurons.forward(z, bound, y)
        torch.testing.assert_close(y, composite.rbf(z, used), rtol=1e-6, atol=1e-36)


def test_the_number_of_threads_changes_no_bit():
    before, results = torch.get_num_threads(), []
    z, g = random(2 * GROUPS * OUTPUTS, 8, 8, 20), random(GROUPS * OUTPUTS, 4, 4, 20)
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            bound = neurons.Neurons("swish", GROUPS, 2).bind(z.shape, ALPHA, C)
            y, best = torch.empty_like(g), torch.empty(len(z), 4, 4, 20)
            winner, gz, galpha = torch.empty(g.shape, dtype=torch.uint8), torch.empty_like(z), torch.empty(len(ALPHA))
            neurons.pool_forward(z, bound, y, best, winner)
            neurons.pool_backward(g, bound, best, winner, gz, galpha)
            results.append((y, winner, gz, galpha))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
