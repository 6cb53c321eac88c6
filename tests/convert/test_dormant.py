"""Activations that an attribute keeps from running are listed; modules that store something keep doing so."""

import json
import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import apical
from apical.errors import ConversionError


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.mode, self.steps = nn.Linear(4, 8), nn.Linear(8, 2), "a", 0


class Branch(Layers):
    def forward(self, x):
        h = self.a(x)
        if self.mode == "a":  # noqa: SIM108
            h = F.relu(h)
        else:
            h = F.gelu(h)
        return self.b(h)


class Expression(Layers):
    def forward(self, x):
        h = self.a(x)
        return self.b(F.relu(h) if self.mode == "a" else F.gelu(h))


class Match(Layers):
    def forward(self, x):
        h = self.a(x)
        match self.mode:
            case "a":
                h = F.relu(h)
            case _:
                h = F.gelu(h)
        return self.b(h)


class Early(Layers):
    def forward(self, x):
        if self.mode == "a":
            return self.b(F.relu(self.a(x)))
        return self.b(F.gelu(self.a(x)))


@pytest.mark.parametrize("kind", [Branch, Expression, Match, Early])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("with_inputs", [True, False])
def test_what_an_attribute_keeps_from_running_is_listed(kind, unit, with_inputs):
    report = apical.convert_(kind(), unit, example_inputs=torch.randn(3, 4) if with_inputs else None)
    assert [row.kind for row in report.converted] == ["relu"]
    (row,) = report.kept
    assert (row.kind, row.asked) == ("gelu", False)
    assert row.reason.startswith("it does not run as the model is set (line ")
    assert str(report).startswith("1 of 1 activation converted")


class Counted(Layers):
    def forward(self, x):
        self.steps += 1
        h = self.a(x)
        return self.b(F.relu(h) if self.steps < 3 else F.gelu(h))


@pytest.mark.parametrize("with_inputs", [True, False])
def test_what_a_counter_keeps_from_running_is_converted_where_the_forward_keeps_its_code(with_inputs):
    model, x = Counted(), torch.randn(3, 4)
    report = apical.convert_(model, "ada", example_inputs=x if with_inputs else None)
    assert [row.kind for row in report.converted] == ["relu", "gelu"]
    assert [row.inputs for row in report.rows][1] == ("did not run" if with_inputs else "")
    expected = model.b(apical.ADA()(model.a(x)))
    for _ in range(4):
        torch.testing.assert_close(model(x), expected)


class Penalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.log = []

    def forward(self, x):
        self.calls += 1
        self.penalty = x.abs().mean()
        self.log.append(self.penalty.item())
        return F.relu(x)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_module_that_stores_something_is_converted_inside_and_stores_it(unit, with_inputs):
    act = Penalised()
    model, x = nn.Sequential(nn.Linear(4, 8), act, nn.Linear(8, 2)), torch.randn(3, 4)
    report = apical.convert_(model, unit, example_inputs=x if with_inputs else None)
    assert [row.name for row in report.converted] == ["1.relu"]
    assert (model[1], act.calls.item(), act.log, hasattr(act, "penalty")) == (act, 0, [], False)
    model(x)
    assert (act.calls.item(), len(act.log)) == (1, 1)
    torch.testing.assert_close(act.penalty, model[0](x).abs().mean())


class Query(nn.Module):
    def __init__(self):
        super().__init__()
        self.prompt = nn.Parameter(torch.randn(5, 4))
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x):
        return x @ self.mlp(self.prompt[None].expand(1, -1, -1))[0].T


def test_a_module_called_on_a_view_of_a_parameter_is_counted():
    model = Query()
    report = apical.convert_(model, "ada", example_inputs=torch.randn(3, 4))
    assert report.cost.multiply_adds == (5 * 4 * 8 * 2 + 3 * 4 * 5,) * 2
    assert model.prompt.requires_grad


@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_function_that_is_passed_to_a_call_of_torch_stays(with_inputs):
    class Segments(Layers):
        def forward(self, x):
            h = checkpoint(F.relu, self.a(x), use_reentrant=False)
            return self.b(F.gelu(h))

    model, x = Segments(), torch.randn(3, 4)
    report = apical.convert_(model, "ada", example_inputs=x if with_inputs else None)
    assert ([row.kind for row in report.converted], [row.kind for row in report.kept]) == (["gelu"], ["relu"])
    model(x).sum().backward()


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            if not (self.training and min(random.random(), np.random.rand()) < 0.2):
                x = layer(x)
        return x


def test_the_check_draws_the_same_numbers_of_python_and_numpy_and_leaves_them():
    for seed in range(20):
        random.seed(seed)
        np.random.seed(seed)
        states = random.getstate(), np.random.get_state()[1].tolist()
        assert len(apical.convert_(Dropping(), "ada", example_inputs=torch.randn(3, 4)).converted) == 4
        assert (random.getstate(), np.random.get_state()[1].tolist()) == states


def test_alone_it_is_refused_in_one_sentence():
    class Segment(Layers):
        def forward(self, x):
            return self.b(checkpoint(F.relu, self.a(x), use_reentrant=False))

    with pytest.raises(ConversionError, match="its call is not written out in the source"):
        apical.convert_(Segment(), "ada")


@dataclass
class Result:
    logits: torch.Tensor
    hidden: torch.Tensor


def test_a_class_of_results_is_no_operator():
    class Returning(Layers):
        def forward(self, x):
            h = F.relu(self.a(x))
            return Result(logits=self.b(h), hidden=h)

    assert apical.convert_(Returning(), "ada").kept == []


class Positions(Layers):
    """Indices within bounds, in a forward that keeps its code."""

    def forward(self, x, places):
        if places.sum() > 1e9:
            return x
        span = 5
        h = F.relu(self.a(x))
        return torch.gather(h, -1, self.bounded(places + span, span) % 8)


class ByFunction(Positions):
    def bounded(self, places, span):
        return torch.clamp(places, 0, 2 * span - 1)


class ByMethod(Positions):
    def bounded(self, places, span):
        return places.clamp(0, max=2 * span - 1)


class OneSided(Positions):
    def bounded(self, places, span):
        return torch.clamp(places, min=0)


@pytest.mark.parametrize(  # without inputs, one bound is written like a ReLU
    ("kind", "with_inputs"),
    [(ByFunction, True), (ByFunction, False), (ByMethod, True), (ByMethod, False), (OneSided, True)],
)
def test_bounds_of_indices_are_no_activations(kind, with_inputs):
    model, inputs = kind(), (torch.randn(3, 4), torch.tensor([[-2, 0, 1]] * 3))
    report = apical.convert_(model, "ada", example_inputs=inputs if with_inputs else None)
    assert [row.kind for row in report.converted] == ["relu"]
    assert [row.kind for row in report.kept] == ([] if with_inputs else ["clamp"])
    fresh = kind()
    apical.convert.load(fresh, json.loads(json.dumps(report.record)))
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(*inputs), model(*inputs))


def test_a_module_that_is_called_with_whole_numbers_is_listed():
    class Clipped(Positions):
        def __init__(self):
            super().__init__()
            self.act, self.clip = nn.ReLU(), nn.ReLU()

        def forward(self, x, places):
            return torch.gather(self.act(self.a(x)), -1, self.clip(places))

    inputs = (torch.randn(3, 4), torch.tensor([[-2, 0, 1]] * 3))
    report = apical.convert_(Clipped(), "ada", example_inputs=inputs)
    assert [row.name for row in report.converted] == ["act"]
    assert [(row.name, row.reason) for row in report.kept] == [("clip", "it is called with whole numbers")]
