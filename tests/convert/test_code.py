"""A forward does after the conversion all that it did before, also what no graph shows; or it says that it does not."""

import contextlib
import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apical import convert_


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.o = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)


class Reversed(Layers):
    def forward(self, x):
        return self.o(F.relu(self.b(Reversal.apply(F.relu(self.a(x))))))


def reverse(x):
    return Reversal.apply(x)


class ReversedByAFunction(Layers):
    def forward(self, x):
        return self.o(F.relu(self.b(reverse(F.relu(self.a(x))))))


class Frozen(Layers):
    def forward(self, x):
        with torch.no_grad():
            h = F.relu(self.a(x))
        return self.o(F.relu(self.b(h)))


class FrozenMethod(Layers):
    @torch.no_grad()
    def features(self, x):
        return F.relu(self.a(x))

    def forward(self, x):
        return self.o(F.relu(self.b(self.features(x))))


class SwitchedOff(Layers):
    def forward(self, x):
        torch.set_grad_enabled(False)
        h = F.relu(self.a(x))
        torch.set_grad_enabled(True)
        return self.o(F.relu(self.b(h)))


class SwitchedOn(Layers):
    @torch.enable_grad()
    def forward(self, x):
        return self.o(F.relu(self.b(F.relu(self.a(x)))))


class FrozenIfAsked(Layers):
    def forward(self, x):
        h = F.relu(self.a(x))
        return self.o(F.relu(self.b(h.detach() if torch.is_grad_enabled() else h)))


class Split(Layers):
    """The activation needs a graph, for a view lies before it."""

    def forward(self, x):
        with torch.no_grad():
            h = self.a(x).view(-1, 2, 4)
            h = F.relu(h).flatten(1)
        return self.o(F.relu(self.b(h)))


def gradients(model: nn.Module, x: Tensor) -> list[Tensor | None]:
    model.zero_grad()
    model(x).square().sum().backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(
    "build", [Reversed, ReversedByAFunction, Frozen, FrozenMethod, SwitchedOff, SwitchedOn, FrozenIfAsked, Split]
)
def test_gradients_are_those_of_the_code(build, given):
    model, x = build(), torch.randn(4, 8)
    before = gradients(model, x)
    report = convert_(model, nn.ReLU(), **({"example_inputs": x} if given else {}))
    assert len(report.converted) == 2
    for old, new in zip(before, gradients(model, x), strict=True):
        assert (old is None and new is None) or torch.allclose(old, new, atol=1e-6)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("build", [Reversed, ReversedByAFunction, Frozen, FrozenMethod, SwitchedOff, Split])
def test_gradients_of_pyramidal_neurons_are_those_of_the_code(build):
    model, x = build(), torch.randn(4, 8)
    before = {name: g for (name, _), g in zip(model.named_parameters(), gradients(model, x), strict=True)}
    convert_(model, "pynada(alpha=0.3,c=1)", keep_function=True)
    after = {name: g for (name, _), g in zip(model.named_parameters(), gradients(model, x), strict=True)}
    assert any(name in after for name in before)
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        assert (old is None and new is None) or torch.allclose(old, new, atol=1e-5)
    assert all(g is None for name, g in after.items() if name.startswith("a") and before["a.weight"] is None)


def test_autocast_stays():
    class Mixed(Layers):
        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                h = F.relu(self.a(x))
            return self.o(h.float()), h.dtype

    model = Mixed()
    convert_(model, "ada")
    assert model(torch.randn(2, 8))[1] is torch.bfloat16


entered = []


@contextlib.contextmanager
def noted():
    entered.append(1)
    yield


def inside(layer, x):
    with noted():
        return layer(x)


def test_contexts_of_ones_own_stay():
    class Own(Layers):
        def forward(self, x):
            return self.o(F.relu(inside(self.a, x)))

    for unit in ("ada", "pynada"):
        model = Own()
        convert_(model, unit)
        entered.clear()
        model(torch.randn(2, 8))
        assert entered == [1]


CFG = {"scale": 1.0}
ACTS = {"relu": F.relu, "tanh": torch.tanh}


class Tempered(Layers):
    def __init__(self):
        super().__init__()
        self.t, self.p, self.n, self.config = 1.0, 0.0, 1, SimpleNamespace(shift=0.0)

    def forward(self, x):
        h = F.dropout(F.relu(self.a(x).view(-1, 2, 4)).flatten(1), self.p, True)
        for _ in range(self.n):
            h = self.b(h)
        return self.o(h) / self.t * CFG["scale"] + self.config.shift


def changes(model):
    yield lambda: setattr(model, "t", 2.0)
    yield lambda: setattr(model, "p", 1.0)
    yield lambda: setattr(model, "n", 2)
    yield lambda: setattr(model.config, "shift", 3.0)
    yield lambda: CFG.update(scale=0.5)


@pytest.mark.parametrize("change", range(5))
def test_numbers_are_followed(change, monkeypatch):
    monkeypatch.setitem(CFG, "scale", 1.0)
    model, x = Tempered(), torch.randn(4, 8)
    twin = copy.deepcopy(model)
    convert_(twin, nn.ReLU())
    [*changes(model)][change]()
    if change < 4:
        [*changes(twin)][change]()
    assert torch.equal(model(x), twin(x))


@pytest.mark.parametrize("change", range(5))
def test_other_numbers_than_those_of_the_graph_are_refused(change, monkeypatch):
    monkeypatch.setitem(CFG, "scale", 1.0)
    model, x = Tempered(), torch.randn(4, 8)
    before = model(x)
    convert_(model, "pynada", keep_function=True)
    copied = copy.deepcopy(model)
    assert torch.allclose(copied(x), before, atol=1e-6)
    [*changes(copied)][change]()
    with pytest.raises(ValueError, match=r"Tempered was converted for .*=.* and cannot take"):
        copied(x)


def test_a_second_conversion_keeps_the_checks(monkeypatch):
    monkeypatch.setitem(CFG, "scale", 1.0)

    class Bounded(Tempered):
        def forward(self, x):
            h = F.relu(self.a(x).view(-1, 2, 4)).flatten(1)
            return self.o(torch.tanh(self.b(h))) / self.t * CFG["scale"]

    for change in (0, 4):
        model, x = Bounded(), torch.randn(4, 8)
        convert_(model, "pynada")
        assert len(convert_(model, nn.Mish(), kinds=["tanh"]).converted) == 1
        model(x)
        [*changes(model)][change]()
        with pytest.raises(ValueError, match="was converted for"):
            model(x)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("given", [False, True])
def test_functions_picked_by_an_attribute(unit, given):
    class Picked(Layers):
        def __init__(self):
            super().__init__()
            self.name = "relu"

        def forward(self, x):
            return self.o(ACTS[self.name](self.b(F.relu(self.a(x)))))

    class PickedByName(Picked):
        def forward(self, x):
            return self.o(getattr(F, self.name)(self.b(F.relu(self.a(x)))))

    for build in (Picked, PickedByName):
        x = torch.randn(4, 8)
        model = build()
        convert_(model, unit, **({"example_inputs": x} if given else {}), filter_fn=lambda name, _: name != "relu")
        model.name = "tanh"
        with pytest.raises(ValueError, match="was converted for name='relu' and cannot take name='tanh'"):
            model(x)


def test_one_activation_in_two_places_is_converted_in_both():
    class InTwoPlaces(Layers):
        def forward(self, x):
            return self.o(F.relu(self.a(x)) + 1 if self.training else F.relu(self.a(x)))

    model, x = InTwoPlaces(), torch.randn(4, 8)
    convert_(model, nn.Identity())
    for mode in (True, False):
        assert torch.allclose(model.train(mode)(x), model.o(model.a(x) + mode), atol=1e-6)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_method_of_the_class_of_tensors_is_the_activation_of_its_name(unit, given):
    class Unbound(Layers):
        def forward(self, x):
            return self.o(torch.Tensor.relu(self.a(x)))

    x = torch.randn(4, 8)
    if unit == "ada" or given:
        report = convert_(Unbound(), unit, **({"example_inputs": x} if given else {}))
        assert [row.before for row in report.converted] == ["relu()" if unit == "ada" else "Linear + relu()"]
