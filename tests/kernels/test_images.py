"""Convolutions and pooling of the stacked trainer against torch's own."""

import pytest
import torch
from torch.nn import functional

from apical.kernels import images

TOLERANCE = {torch.float32: {"rtol": 1e-4, "atol": 1e-3}, torch.float64: {"rtol": 1e-11, "atol": 1e-11}}
SHAPES = {  # networks, inputs, outputs, height, width, rows, columns
    "lenet": (3, 6, 16, 14, 14, 5, 5),
    "small kernel": (2, 3, 7, 9, 8, 3, 2),
    "wide kernel": (2, 13, 11, 7, 9, 1, 7),
    "one pixel": (1, 1, 1, 3, 4, 3, 4),
}


def random(*shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=dtype)


def convolved(shape, n, shared, dtype):
    """Result and gradients of weights, biases and inputs, ours and torch's."""
    networks, inputs, outputs, height, width, rows, columns = shape
    x = random(inputs * (1 if shared else networks), height, width, n, dtype=dtype)
    weight, bias = random(networks, outputs, inputs, rows, columns, dtype=dtype), random(networks, outputs, dtype=dtype)
    kernel = images.Convolution(networks, inputs, outputs, rows, columns, shared=shared)
    y = kernel.forward(x, weight, bias, torch.empty(kernel.shape(x), dtype=dtype))
    g = random(*y.shape, 1, dtype=dtype)[..., 0]
    gradients = torch.empty_like(weight), torch.empty_like(bias)
    kernel.weight_gradients(g, x, *gradients)
    own = [y, *gradients, *([] if shared else [kernel.input_gradient(g, weight, torch.empty_like(x))])]
    leaves = [t.clone().requires_grad_() for t in (weight, bias, x)]
    flat = leaves[0].flatten(0, 1), leaves[1].flatten()
    plain = functional.conv2d(leaves[2].permute(3, 0, 1, 2), *flat, groups=1 if shared else networks).permute(
        1, 2, 3, 0
    )
    return own, [plain, *torch.autograd.grad(plain, leaves[: len(own) - 1], g)]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n", [1, 5, 16, 17, 48, 72])
@pytest.mark.parametrize("name", SHAPES)
def test_convolutions_and_their_gradients_are_those_of_torch(name, n, dtype):
    for shared in (False, True):
        own, plain = convolved(SHAPES[name], n, shared, dtype)
        for one, other in zip(own, plain, strict=True):
            torch.testing.assert_close(one, other, **TOLERANCE[dtype])


def test_the_number_of_threads_changes_no_bit():
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(convolved(SHAPES["lenet"], 33, False, torch.float32)[0])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("size", "n"), [(2, 1), (2, 33), (3, 16)])
@pytest.mark.parametrize("branches", [1, 2])
def test_pooling_picks_the_pixels_that_torch_picks(branches, size, n, dtype):
    groups, channels, height, width = 2, 3, 7, 6
    z = random(groups, branches, channels, height, width, n, dtype=dtype).round(decimals=1)  # there are ties
    z[0, 0, 0, 0, 1, 0] = torch.nan
    leaf = z.clone().requires_grad_()
    a = leaf.sum(1).flatten(0, 1)
    pooling = images.Pooling(groups, branches, size)
    flat = z.flatten(0, 2)
    best, winner = torch.empty(pooling.shape(flat), dtype=dtype), torch.empty(pooling.shape(a), dtype=torch.uint8)
    pooling.forward(a.detach(), flat, best, winner)
    plain = functional.max_pool2d(a.permute(3, 0, 1, 2), size).permute(1, 2, 3, 0)
    picked = best.unflatten(0, (groups, branches, channels))
    torch.testing.assert_close(picked.sum(1).flatten(0, 1), plain, rtol=0, atol=0, equal_nan=True)
    g = random(*plain.shape, dtype=dtype)
    below = g.unflatten(0, (groups, 1, channels)).expand_as(picked).flatten(0, 2).contiguous()
    (expected,) = torch.autograd.grad(plain, leaf, g)
    assert torch.equal(pooling.backward(below, winner, torch.empty_like(flat)), expected.flatten(0, 2))
