"""What a forward does beside its tensors goes on after a conversion, with the values of that time."""

import copy
import random
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import apical

FACTOR = 1.0
SETTINGS = {"factor": 1.0}


def scaled(h):
    return h * FACTOR


class Schedule:
    def __init__(self):
        self.factor, self.calls = 1.0, 0

    def get(self):
        self.calls += 1
        return self.factor


class Layers(nn.Module):
    """A neuron whose layer is followed by a view: without what `factor` reads, a graph would stand for this forward."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm, self.drop = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.5)
        self.schedule, self.config, self.callbacks = Schedule(), SimpleNamespace(factor=1.0), []
        self.scale, self.numbers = 1.0, np.random.RandomState(0)

    def forward(self, x):
        h = F.relu(self.a(x))
        return self.b(torch.tanh(h)) * self.factor(h)


class Method(Layers):
    def factor(self, h):
        return self.schedule.get()

    def change(self):
        self.schedule.factor = 3.0


class Alias(Layers):
    def factor(self, h):
        config = self.config
        return config.factor

    def change(self):
        self.config.factor = 3.0


class Callbacks(Layers):
    def factor(self, h):
        for callback in self.callbacks:
            h = callback(h)
        return h.mean() / h.detach().mean() * (3.0 if self.callbacks else 1.0)

    def change(self):
        self.callbacks.append(lambda h: h * 3)


class Helper(Layers):
    def factor(self, h):
        return scaled(torch.ones(8))

    def change(self):
        globals()["FACTOR"] = 3.0


class ByName(Layers):
    def factor(self, h):
        return getattr(self, "gain", 1.0)

    def change(self):
        self.gain = 3.0


class LayerSetting(Layers):
    def factor(self, h):
        return self.norm.eps / 1e-5

    def change(self):
        self.norm.eps = 3e-5


class ModeOfAChild(Layers):
    def factor(self, h):
        return 3.0 if self.drop.training else 1.0

    def change(self):
        self.drop.train()


class OfItsClass(Layers):
    gain = 1.0

    def factor(self, h):
        return type(self).gain

    def change(self):
        OfItsClass.gain = 3.0


CHANGING = [Method, Alias, Callbacks, Helper, ByName, LayerSetting, ModeOfAChild, OfItsClass]


@pytest.fixture(autouse=True)
def _globals(monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    monkeypatch.setattr(OfItsClass, "gain", 1.0)


@pytest.mark.parametrize("kind", CHANGING)
@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_forward_reads_what_it_reads_at_each_call(kind, unit, with_inputs):
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(3, 8)
    report = apical.convert_(model, unit, example_inputs=x if with_inputs else None)
    assert len(report.converted) == 1
    before = model(x)
    model.change()
    torch.testing.assert_close(model(x), 3 * before)


class Generators(Layers):
    def __init__(self):
        super().__init__()
        self.steps, self.chance = iter([1.0] * 1000), random.Random(0)

    def factor(self, h):
        return next(self.steps) * self.numbers.rand() * self.chance.random()


class Clock(Layers):
    def factor(self, h):
        return 1.0 + time.perf_counter_ns() % 9973


@pytest.mark.parametrize("kind", [Generators, Clock])
def test_what_changes_from_call_to_call_still_does(kind):
    model, x = kind().eval(), torch.randn(3, 8)
    apical.convert_(model, "pynada")
    assert not torch.equal(model(x), model(x))


class Precision(Layers):
    def factor(self, h):
        return torch.ones(8, dtype=next(self.parameters()).dtype)


def test_the_type_of_the_weights_is_asked_for_at_each_call():
    model = Precision().eval()
    apical.convert_(model, "pynada")
    assert model.double()(torch.randn(3, 8).double()).dtype == torch.float64


@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_conversion_leaves_no_trace_in_what_the_model_holds(with_inputs):
    class Counting(Method):
        def factor(self, h):
            self.schedule.log = [*getattr(self.schedule, "log", ()), 1]
            return self.schedule.get() * self.numbers.rand() * self.chance.random()

    model, x = Counting(), torch.randn(3, 8)
    model.chance, model.nested = random.Random(0), {"inner": [model.schedule]}
    drawn = copy.deepcopy((model.numbers, model.chance))
    apical.convert_(model, "pynada", example_inputs=x if with_inputs else None)
    assert vars(model.schedule) == {"factor": 1.0, "calls": 0}
    assert (model.numbers.rand(), model.chance.random()) == (drawn[0].rand(), drawn[1].random())


def test_a_layer_fused_with_its_activation_needs_a_forward_that_a_graph_shows():
    class Plain(Layers):
        def factor(self, h):
            return self.scale * SETTINGS["factor"]

    plain, other = apical.convert_(Plain(), "pynada"), apical.convert_(Method(), "pynada")
    assert [row.after for row in plain.converted] == ["PyramidalLinear"]
    assert [row.after for row in other.converted] == ["pyramidal neuron: apical branch added"]


class Frozen(nn.Module):
    """Keeps the statistics of its norm, as detectors do, or as its parent does."""

    def __init__(self, width=8):
        super().__init__()
        self.layer, self.bn = nn.Linear(8, width), nn.BatchNorm1d(width)

    def forward(self, x):
        return F.relu(self.bn(self.layer(x)))


class ByItself(Frozen):
    def train(self, mode=True):
        super().train(mode)
        self.bn.eval()
        return self


class InItsForward(Frozen):
    def forward(self, x):
        self.bn.eval()
        return F.relu(self.bn(self.layer(x)))


class Holder(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x)


class ByItsParent(Holder):
    def forward(self, x):
        block = self.block
        block.bn.eval()
        return block(x)


@pytest.mark.parametrize("build", [ByItself, InItsForward, lambda: Holder(ByItself()), lambda: ByItsParent(Frozen())])
@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_norm_that_code_elsewhere_freezes_stays_frozen(build, with_inputs):
    torch.manual_seed(0)
    model, x = build(), torch.randn(16, 8)
    norm = next(module for module in model.modules() if isinstance(module, nn.BatchNorm1d))
    norm.running_mean.normal_()
    model.eval()
    before, mean = model(x), norm.running_mean.clone()
    report = apical.convert_(model, "pynada", example_inputs=x if with_inputs else None, keep_function=True)
    assert len(report.converted) == 1
    model.train()
    torch.testing.assert_close(model(x), before)
    assert torch.equal(norm.running_mean, mean)


def test_a_norm_that_nothing_else_names_is_merged():
    report = apical.convert_(Holder(Frozen()), "pynada")
    assert [row.after for row in report.converted] == ["PyramidalLinear"]


class Asks(nn.Module):
    """Looks at what its input is before it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = nn.Linear(6, 8), nn.Linear(8, 2)

    def prepared(self, x):
        return x

    def forward(self, x):
        return self.c(F.relu(self.a(self.prepared(x))))


class AsksWhetherTensor(Asks):
    def prepared(self, x):
        return x * 2 if torch.is_tensor(x) else x


class AsksInstance(Asks):
    def prepared(self, x):
        if isinstance(x, (list, tuple)):
            x = torch.stack(list(x)).sum(0)
        return x * 2 if isinstance(x, torch.Tensor) else x


class AsksType(Asks):
    def prepared(self, x):
        return x * 2 if type(x) is torch.Tensor else torch.stack(x).mean(0)


class AsksAttribute(Asks):
    def prepared(self, x):
        return x["x"] if hasattr(x, "keys") else x


class AsksNone(Asks):
    def forward(self, x, mask):
        h = F.relu(self.a(x))
        return self.c(h if mask is None else h * mask)


ASKED = [
    (AsksWhetherTensor, (torch.ones(3, 6),)), (AsksInstance, (torch.ones(3, 6),)),
    (AsksInstance, ([torch.ones(3, 6)] * 2,)), (AsksType, (torch.ones(3, 6),)), (AsksType, ([torch.ones(3, 6)] * 2,)),
    (AsksAttribute, (torch.ones(3, 6),)), (AsksAttribute, ({"x": torch.ones(3, 6)},)),
    (AsksNone, (torch.ones(3, 6), None)), (AsksNone, (torch.ones(3, 6), torch.ones(8))),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "args"), ASKED)
@pytest.mark.parametrize("shown", [False, True])
def test_what_an_argument_is_stays_a_question(kind, args, shown) -> None:
    model = kind().eval()
    before = model(*args)
    report = apical.convert_(model, "pynada", keep_function=True, example_inputs=args if shown else None)
    assert len(report.converted) == 1
    assert torch.allclose(model(*args), before, rtol=1e-6, atol=1e-6)
