"""Neurons to which their layer's input comes over a hook: from the right call of the layer, and from this forward."""

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import apical
from apical.convert.branch import WiredNeuron

X, Y = torch.randn(3, 4), torch.randn(3, 4)
MISSED = "a pyramidal neuron was called, but not the layer before it"


class Network(nn.Module):
    """A layer, a norm and a ReLU; no graph shows the forwards below, which look at values."""

    def __init__(self, *, inplace: bool = False) -> None:
        super().__init__()
        self.affine, self.norm, self.act = nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(inplace)
        self.fails = self.skips = False

    def forward(self, x: Tensor, y: Tensor) -> Any:
        raise NotImplementedError


class TwoCalls(Network):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        one, two = self.affine(x), self.affine(y)
        if one.mean() > 1e9:
            return one
        return F.relu(one), F.relu(two)


class Normed(Network):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        one, two = self.norm(self.affine(x)), self.norm(self.affine(y))
        if one.mean() > 1e9:
            return one
        return F.relu(one), F.relu(two)


class OneUnused(Network):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        h = self.affine(x)
        if h.mean() > 1e9:
            return h
        self.affine(y)
        return self.act(h)


class ChangedInPlace(Network):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        h = self.affine(x)
        if h.mean() > 1e9:
            return h
        self.affine(y)
        return self.act(h.add_(x))


class Summed(Network):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        h = self.affine(x)
        if h.mean() > 1e9:
            return h
        if self.fails:
            self.affine(y)
        return self.act(h + x)


class Raising(Network):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        h = x if self.skips else self.affine(x)
        if h.mean() > 1e9:
            return h
        if self.fails:
            raise ArithmeticError
        return self.act(h)


def neurons(model: nn.Module) -> list[WiredNeuron]:
    return [module for module in model.modules() if isinstance(module, WiredNeuron)]


@pytest.mark.parametrize("kind", [TwoCalls, Normed])
def test_of_two_calls_of_its_layer_a_neuron_takes_the_one_that_feeds_it(kind: type[Network]) -> None:
    model = kind()
    report = apical.convert_(model, "pynada", example_inputs=(X, Y))
    assert [row.name for row in report.converted] == ["relu", "relu_1"]
    for result, x, neuron in zip(model(X, Y), (X, Y), neurons(model), strict=True):
        affine = model.affine(x)
        basal = F.relu(model.norm(affine) if kind is Normed else affine)
        assert torch.allclose(result, basal + neuron.apical(x))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(X, Y)[0], model(X, Y)[0])


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("kind", [OneUnused, ChangedInPlace])
def test_a_call_whose_result_is_unused_does_not_feed_the_neuron(kind: type[Network], inplace: bool) -> None:
    model = kind(inplace=inplace)
    apical.convert_(model, "pynada", example_inputs=(X, Y))
    (neuron,) = neurons(model)
    basal = F.relu(model.affine(X) + (X if kind is ChangedInPlace else 0))
    assert torch.allclose(model(X, Y), basal + neuron.apical(X))


def test_calls_that_nothing_tells_apart_are_an_error_and_the_next_forward_is_right() -> None:
    model = Summed()
    apical.convert_(model, "pynada", example_inputs=(X, Y))
    expected = model(X, Y)
    model.fails = True
    for _ in range(2):
        with pytest.raises(RuntimeError, match="after 2 calls of the layer before it"):
            model(X, Y)
    model.fails = False
    assert torch.equal(model(X, Y), expected)


def test_the_input_of_a_forward_that_failed_is_gone() -> None:
    model = Raising()
    apical.convert_(model, "pynada", example_inputs=(X, Y))
    model.fails = True
    with pytest.raises(ArithmeticError):
        model(X, Y)
    model.fails, model.skips = False, True
    with pytest.raises(RuntimeError, match=MISSED):
        model(X, Y)


def test_a_forward_leaves_nothing_on_the_wires() -> None:
    model = OneUnused()
    apical.convert_(model, "pynada", example_inputs=(X, Y))
    x, y = X.clone(), Y.clone()
    dead = [weakref.ref(x), weakref.ref(y)]
    with torch.no_grad():
        model(x, y)
    del x, y
    gc.collect()
    assert [ref() for ref in dead] == [None, None]


class Looped(nn.Module):
    """A block that runs three times, alone or within a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.again = Summed(), False

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = checkpoint(self.block, x, x, use_reentrant=False) if self.again else self.block(x, x)
        return x


def test_a_block_that_runs_again_and_is_computed_again_for_its_gradient() -> None:
    model, x = Looped(), X.clone().requires_grad_()
    apical.convert_(model, "pynada", example_inputs=X)
    assert len(neurons(model)) == 1
    gradients = []
    for model.again in (False, True):
        (gradient,) = torch.autograd.grad(model(x).sum(), x)
        gradients.append(gradient)
    assert torch.allclose(*gradients)


class Optional(Network):
    def forward(self, x: Tensor, y: Tensor, scale: float | None = None) -> Any:
        one, two = self.affine(x), self.affine(y)
        result = F.relu(one) - F.relu(two)
        return result if scale is None else result * scale


def test_several_calls_compile_and_export() -> None:
    model = Optional().eval()
    apical.convert_(model, "pynada")
    assert len(neurons(model)) == 2
    expected = model(X, Y)
    assert torch.allclose(torch.compile(model, backend="aot_eager", fullgraph=True)(X, Y), expected, atol=1e-6)
    assert torch.allclose(torch.export.export(model, (X, Y)).module()(X, Y), expected, atol=1e-6)


def test_undo_takes_the_hooks_away() -> None:
    model = Normed()
    apical.convert_(model, "pynada", example_inputs=(X, Y)).undo()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
