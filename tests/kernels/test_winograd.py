"""Winograd's convolutions against torch's, forward and backward, with torch's in float64 as the oracle."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.functional import conv2d

from apical import models
from apical.kernels import native, winograd
from apical.nn import PyramidalConv2d

pytestmark = pytest.mark.skipif(not native.library().winograd, reason="the C library has no Winograd transforms here")

# Relative to the largest value of a result, against float64. Most errors are 1e-6 to 4e-6, as torch's own; where
# there are few channels and pixels, the largest value is small beside the roundings of the transforms.
BOUND = {torch.float32: 2e-5, torch.float64: 4e-14}


def example(
    n: int, inputs: int, outputs: int, height: int, width: int, *, dtype: torch.dtype = torch.float32, bias: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    x = torch.randn(n, inputs, height, width, dtype=dtype)
    weight = torch.randn(outputs, inputs, 3, 3, dtype=dtype) / (3 * inputs**0.5)
    return x, weight, torch.randn(outputs, dtype=dtype) if bias else None


def gradients(function, tensors, g: Tensor | None = None) -> list[Tensor]:
    """The result and the gradients of all tensors that want one."""
    y = function(*tensors)
    wanted = [t for t in tensors if t is not None and t.requires_grad]
    return [y, *torch.autograd.grad(y, wanted, torch.ones_like(y) if g is None else g)]


def leaves(tensors, dtype: torch.dtype | None = None) -> list[Tensor | None]:
    return [None if t is None else t.detach().clone().to(dtype or t.dtype).requires_grad_() for t in tensors]


def torch_s(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return conv2d(x, weight, bias, padding=1)


def error(own: Tensor, exact: Tensor) -> float:
    own, exact = own.detach(), exact.detach()
    return float((own.double() - exact).abs().max() / exact.abs().max())


def check(tensors, bound: float | None = None) -> None:
    own, exact = leaves(tensors), leaves(tensors, torch.float64)
    g = torch.randn_like(torch_s(*own))
    for a, b in zip(gradients(winograd.conv2d, own, g), gradients(torch_s, exact, g.double()), strict=True):
        assert a.shape == b.shape
        assert a.dtype == own[0].dtype
        assert error(a, b) <= (bound or BOUND[a.dtype])


SIDES = st.integers(1, 13)


@settings(max_examples=60)
@given(
    st.integers(1, 5), st.integers(16, 70), st.integers(16, 70), SIDES, SIDES,
    st.sampled_from([torch.float32, torch.float64]), st.booleans(), st.integers(0, 2**31),
)  # fmt: skip
def test_equals_torch_for_any_shape(n, inputs, outputs, height, width, dtype, bias, seed) -> None:
    torch.manual_seed(seed)
    check(example(n, inputs, outputs, height, width, dtype=dtype, bias=bias))


# Torch's own errors on these are 3e-7 to 4e-6, depending on the machine's vectors, so they are no measure.
@pytest.mark.parametrize(
    ("inputs", "outputs", "side", "bound"),
    [(64, 128, 16, 4e-6), (256, 256, 8, 4e-6), (512, 512, 4, 4e-6), (512, 512, 2, 1.5e-6)],
)
def test_errors_of_float32_are_a_few_roundings(inputs: int, outputs: int, side: int, bound: float) -> None:
    check(example(8, inputs, outputs, side, side), bound)


def test_a_large_batch_is_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = example(7, 32, 48, 8, 8)
    whole = gradients(winograd.conv2d, leaves(tensors))
    monkeypatch.setattr(winograd, "VALUES", 3 * 4 * 36 * (32 + 48))  # three images
    for a, b in zip(gradients(winograd.conv2d, leaves(tensors)), whole, strict=True):
        assert error(a, b.double()) < BOUND[torch.float32]
    check(tensors)


LAYOUTS = {
    "torch": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3),
    "with gaps": lambda x: x.repeat_interleave(2, 3)[..., ::2],
    "expanded": lambda x: x[:1].expand_as(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_input_weight_and_gradient(layout: str) -> None:
    x, weight, bias = example(3, 40, 24, 8, 8)
    arrange = LAYOUTS[layout]
    g = arrange(torch.randn(3, 24, 8, 8))
    own = [arrange(x).detach().requires_grad_(), arrange(weight).detach().requires_grad_(), bias]
    exact = [t.detach().double().requires_grad_(t.requires_grad) for t in own]
    results = gradients(winograd.conv2d, own, g)
    for a, b in zip(results, gradients(torch_s, exact, g.double()), strict=True):
        assert error(a, b) < BOUND[torch.float32]
    if layout in ("torch", "channels last"):
        memory = torch.contiguous_format if layout == "torch" else torch.channels_last
        assert results[0].is_contiguous(memory_format=memory)


@pytest.mark.parametrize("wanted", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1) if a + b + c])
def test_only_the_gradients_that_are_wanted(wanted: tuple[int, ...]) -> None:
    tensors = [t.requires_grad_(bool(w)) for t, w in zip(example(2, 32, 32, 6, 6), wanted, strict=True)]
    exact = [t.detach().double().requires_grad_(t.requires_grad) for t in tensors]
    for a, b in zip(gradients(winograd.conv2d, tensors), gradients(torch_s, exact), strict=True):
        assert error(a, b) < BOUND[torch.float32]


def test_two_forwards_before_their_backwards_and_a_graph_that_is_kept() -> None:
    first, second = leaves(example(4, 32, 48, 8, 8)), leaves(example(4, 32, 48, 4, 4))
    alone = [gradients(winograd.conv2d, tensors) for tensors in (first, second)]
    a, b = winograd.conv2d(*first), winograd.conv2d(*second)
    for _ in range(2):
        for y, tensors, (expected, *expected_gradients) in ((a, first, alone[0]), (b, second, alone[1])):
            assert torch.equal(y, expected)
            own = torch.autograd.grad(y, tensors, torch.ones_like(y), retain_graph=True)
            assert all(map(torch.equal, own, expected_gradients))


def test_an_input_that_was_changed_before_backward_is_refused() -> None:
    x, weight, bias = leaves(example(2, 32, 32, 4, 4))
    h = x * 1
    y = winograd.conv2d(h, weight, bias)
    h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_without_gradients_and_in_inference_mode_it_gives_the_same() -> None:
    tensors = leaves(example(2, 32, 32, 4, 4))
    expected = winograd.conv2d(*tensors)
    native.library.cache_clear()
    winograd._scratch._parts.clear()  # so that inference mode makes the memory that training uses later
    with torch.inference_mode():
        assert torch.equal(winograd.conv2d(*tensors), expected)
    with torch.no_grad():
        y = winograd.conv2d(*tensors)
    assert torch.equal(y, expected)
    assert not y.requires_grad
    winograd.conv2d(*tensors).sum().backward()


def test_derivatives_and_second_derivatives_are_right() -> None:
    x, weight, bias = leaves(example(1, 16, 16, 3, 2, dtype=torch.float64))

    def some(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return winograd.conv2d(x, weight, bias)[:, :2]

    assert torch.autograd.gradcheck(some, (x, weight, bias), fast_mode=True)
    assert torch.autograd.gradgradcheck(some, (x, weight, bias), fast_mode=True)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding="same"), nn.ReLU(),
        PyramidalConv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 3), nn.Conv2d(32, 32, 3, padding=1, groups=2),
        nn.Conv2d(32, 32, 3, padding=1, padding_mode="reflect"), nn.Conv2d(32, 32, 3, padding=2, dilation=2),
        nn.Conv2d(32, 32, 3, padding=1, stride=2), nn.Conv2d(32, 32, 5, padding=2), nn.Conv1d(32, 32, 3, padding=1),
    )  # fmt: skip


def counted(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of the inputs that Winograd's convolution is called with, from now on."""
    shapes, original = [], winograd.conv2d

    def count(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        shapes.append(x.shape)
        return original(x, weight, bias)

    monkeypatch.setattr(winograd, "conv2d", count)
    return shapes


def test_a_network_uses_it_where_it_suits_and_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, x = network()[:4], torch.randn(16, 1, 8, 8)
    expected, calls = layers(x), counted(monkeypatch)
    assert winograd.use_(network()) == ["1", "3"]
    assert winograd.use_(layers) == ["1", "3"]
    own = layers(x)
    torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)
    assert calls == [(16, 32, 8, 8)] * 2
    copied = deepcopy(layers)
    assert torch.equal(copied(x), own)
    assert copied[1]._conv_forward.__self__ is copied[1]
    assert layers.state_dict().keys() == network()[:4].state_dict().keys()


def test_torch_serves_every_other_call(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, calls = nn.Conv2d(32, 32, 3, padding=1), counted(monkeypatch)
    winograd.use_(layer)
    x = torch.randn(16, 32, 8, 8)
    layer(x[0])  # no batch
    layer(x[:0])
    layer(x[:1])  # four tiles: the transforms of the weight would cost more than they save
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    vmap(layer)(x[None])
    torch.export.export(layer, (x,))
    monkeypatch.setenv("APICAL_BACKEND", "composite")
    layer(x)
    assert not winograd.available()
    monkeypatch.delenv("APICAL_BACKEND")
    layer.to(torch.bfloat16)(x.bfloat16())
    layer.to("meta")(x.bfloat16().to("meta"))
    assert calls == []


def test_without_the_library_torch_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.Conv2d(32, 32, 3, padding=1), torch.randn(16, 32, 8, 8)
    expected, calls = layer(x), counted(monkeypatch)
    monkeypatch.setattr(native, "library", lambda: native.Library(False, "none"))
    winograd.use_(layer)
    assert not winograd.available()
    assert torch.equal(layer(x), expected)
    assert calls == []


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    call = winograd._Call.of(*example(5, 32, 32, 9, 7)[:2])
    threads = torch.get_num_threads()
    points = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            points.append(call.spread(call.x, winograd.INPUT, "input").clone())
            points.append(call.collect(points[-1], None, torch.empty_like(call.x), winograd.INPUT))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(points[0], points[2])
    assert torch.equal(points[1], points[3])


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_gradients_of_vgg_9_are_about_as_exact_as_those_of_torch(unit: str) -> None:
    theirs = models.create("vgg-9", unit, seed=0).eval()
    own, exact = deepcopy(theirs).to(memory_format=torch.channels_last), deepcopy(theirs).double()
    assert len(winograd.use_(own)) == 7
    x, labels = torch.randn(32, 1, 32, 32), torch.arange(32) % 10
    for model in (theirs, own, exact):
        nn.functional.cross_entropy(model(x.to(model.head.weight.dtype)), labels).backward()
    own_errors, their_errors = (
        sorted(error(a.grad, b.grad) for a, b in zip(model.parameters(), exact.parameters(), strict=True))
        for model in (own, theirs)
    )
    middle = len(own_errors) // 2
    assert own_errors[middle] < min(1e-5, 5 * their_errors[middle])
    assert own_errors[-1] < 0.05  # rounding may let another pixel win a pool, as it does in torch's
