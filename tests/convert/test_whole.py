"""A module or function that maps elementwise is one activation, whatever it computes inside."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.convert.probe import elementwise, whole_activation
from apical.errors import ConversionError


class NewGELU(nn.Module):
    """GELU by its formula, as GPT-2 has it."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Squared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x) ** 2


class HardSigmoid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + 3) / 6


class HardSwish(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = HardSigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class LearnedSwish(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.linspace(0.5, 2, width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.beta * x)


class Memory(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad


class MemorySwish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Memory.apply(x)  # type: ignore[no-any-return]


class Own(nn.ReLU):
    """A subclass that changes nothing."""


class Dropped(nn.Module):
    """Elementwise, but random in training: more than an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.relu, self.dropout = nn.ReLU(), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.relu(x))  # type: ignore[no-any-return]


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.gamma * x + 1


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x))


WHOLE = [(NewGELU(), "gelu"), (Squared(), None), (HardSwish(), "hardswish"), (HardSigmoid(), "hardsigmoid"),
         (LearnedSwish(4), None), (MemorySwish(), "silu")]  # fmt: skip


@pytest.mark.parametrize(("module", "kind"), WHOLE, ids=lambda value: type(value).__name__)
def test_an_activation_is_known_by_what_it_computes(module: nn.Module, kind: str | None) -> None:
    answer = whole_activation(module)
    assert answer is not None
    assert answer.kind == kind


@pytest.mark.parametrize(
    "module",
    [Dropped(), Scale(), Normed(), nn.Linear(3, 3), nn.Sequential(nn.ReLU()), nn.Softmax(-1), nn.Dropout(), nn.GLU()],
    ids=lambda value: type(value).__name__,
)
def test_what_is_more_or_less_than_an_activation(module: nn.Module) -> None:
    assert whole_activation(module) is None


@pytest.mark.parametrize(
    ("function", "kind", "gate"),
    [
        (lambda x: torch.clamp(x, min=0), "relu", False),
        (lambda x: torch.where(x > 0, x, 0.07 * x), "leaky_relu", False),
        (lambda x: x * (x > 0), "relu", False),
        (lambda x: torch.exp(-x * x), None, False),
        (lambda x: x / (1 + torch.exp(-1.702 * x)), "gelu", False),
        (lambda x: 0.5 * (1 + torch.erf(x)), None, True),
        (torch.sigmoid, "sigmoid", True),
    ],
)
def test_functions_are_asked_too(function: object, kind: str | None, gate: bool) -> None:
    answer = elementwise(function)  # type: ignore[arg-type]
    assert answer is not None
    assert (answer.kind, answer.gate) == (kind, gate)


@pytest.mark.parametrize("function", [torch.softmax, lambda x: 2 * x + 1, lambda x: x.sum(), lambda x: x > 0, F.linear])
def test_other_functions_are_no_activations(function: object) -> None:
    assert elementwise(function) is None  # type: ignore[arg-type]


def network(*activations: nn.Module) -> nn.Sequential:
    return nn.Sequential(*(layer for each in activations for layer in (nn.Linear(4, 4), each)))


@pytest.mark.parametrize("module", [NewGELU(), Squared(), HardSwish(), LearnedSwish(4), MemorySwish(), Own()])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_an_activation_of_ones_own_is_replaced_whole(module: nn.Module, unit: str) -> None:
    model, x = network(module, nn.ReLU()), torch.randn(3, 4)
    name = type(module).__name__
    report = apical.convert_(model, unit)
    assert report.kept == []
    assert report.rows[0].before.endswith(name)
    assert not any(isinstance(part, type(module)) for part in model.modules())
    if unit == "ada":
        ada = apical.ADA()
        assert torch.equal(model(x), ada(model[2](ada(model[0](x)))))
    assert str(report).startswith(f"2 of 2 activations converted to {unit}\n")


def test_the_inside_of_a_gate_is_left_alone_and_listed() -> None:
    model = network(HardSigmoid(), nn.ReLU(), NewGELU())
    report = apical.convert_(model, "ada")
    assert [(row.name, row.kind, row.asked) for row in report.kept] == [("1", "hardsigmoid", False)]
    assert "kinds=['hardsigmoid']" in report.kept[0].reason
    assert isinstance(model[1].relu, nn.ReLU6)


def test_the_advice_for_a_network_of_ones_own_activations_replaces_them_whole() -> None:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 0.5 * (1 + torch.erf(x))

    model = network(Gate(), Gate())
    with pytest.raises(ConversionError, match=r"but 2 Gate: convert_\(model, 'ada', kinds=\['Gate'\]\)"):
        apical.convert_(model, "ada")
    apical.convert_(model, "ada", kinds=["Gate"])
    assert [type(part) for part in model[1::2]] == [apical.ADA, apical.ADA]


def test_a_class_is_an_activation_by_ones_word() -> None:
    model = network(Dropped(), nn.ReLU())
    report = apical.convert_(model, "ada", also=[Dropped])
    assert [row.before for row in report.converted] == ["Dropped", "ReLU"]
    inside = network(Dropped(), nn.ReLU())
    assert [row.name for row in apical.convert_(inside, "ada").converted] == ["1.relu", "3"]


class Keeps(nn.Module):
    """Keeps its activation as a function, as many libraries do."""

    def __init__(self, act: object, *, by_value: bool) -> None:
        super().__init__()
        self.linear, self.act, self.by_value = nn.Linear(4, 4), act, by_value

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        if self.by_value and x.sum() > 1e9:
            return x
        return self.act(x)  # type: ignore[operator, no-any-return]


@pytest.mark.parametrize("by_value", [False, True])
@pytest.mark.parametrize("act", [F.gelu, torch.relu, lambda x: x * torch.exp(-x.abs()), F.silu])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_function_that_is_kept_as_an_attribute_is_an_activation(act: object, by_value: bool, unit: str) -> None:
    model, x = Keeps(act, by_value=by_value), torch.randn(3, 4)
    before = model(x)
    report = apical.convert_(model, unit, example_inputs=x)
    assert [row.name for row in report.converted] == ["act"]
    assert not torch.equal(model(x), before)
    if unit == "ada":
        assert torch.equal(model(x), apical.ADA()(model.linear(x)))
    report.undo()
    assert vars(model)["act"] is act
    assert torch.equal(model(x), before)


def test_a_function_that_is_left_is_put_back() -> None:
    model = nn.Sequential(Keeps(torch.sigmoid, by_value=False), nn.ReLU())
    report = apical.convert_(model, "ada")
    assert vars(model[0])["act"] is torch.sigmoid
    assert [row.name for row in report.kept] == ["0.act"]


def test_recurrent_layers_and_glu_are_listed_with_one_sentence() -> None:
    class Hybrid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.glu, self.relu = nn.LSTM(4, 8), nn.GLU(), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.glu(self.rnn(x)[0]))  # type: ignore[no-any-return]

    report = apical.convert_(Hybrid(), "ada")
    assert [row.name for row in report.converted] == ["relu"]
    assert [row.reason for row in report.kept] == [
        "torch's LSTM applies it in its own code",
        "torch's GLU applies it in its own code",
    ]


def test_the_report_says_what_the_change_costs() -> None:
    model, x = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5)), torch.randn(3, 10)
    report = apical.convert_(model, "pynada", example_inputs=x)
    assert report.cost.parameters == (325, 545)
    assert report.cost.multiply_adds == (900, 1500)
    assert str(report).endswith("parameters: 325 -> 545; multiply-adds: 900 -> 1.5 k")


class Rounds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + (torch.round(4 * x) / 4 - x).detach()


def test_a_quantiser_is_listed_and_stays_unless_it_is_named() -> None:
    def build() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 4), Rounds(), nn.ReLU())

    report = apical.convert_(build(), "ada")
    assert [(row.kind, row.asked) for row in report.kept] == [("Rounds", False)]
    assert [row.kind for row in report.converted] == ["relu"]
    assert [row.kind for row in apical.convert_(build(), "ada", kinds=["Rounds"]).converted] == ["Rounds"]
    assert len(apical.convert_(build(), "ada", also=[Rounds]).converted) == 2


class Shares(nn.Module):
    """One module as a part of a formula, and for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.relu, self.first, self.second = nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = self.relu(h) - 0.1 * self.relu(-h)
        return self.relu(self.second(h))


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_module_in_a_formula_is_not_changed_there_with_another_call_of_it(unit: str) -> None:
    report = apical.convert_(Shares(), unit)
    assert [row.kind for row in report.converted] == ["leaky_relu"]
    (kept,) = report.kept
    assert kept.reason == "its module is a part of leaky_relu too"


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))


class InALoop(Layers):
    """One place of the source that runs once for each layer."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            x = x * torch.sigmoid(x)
        return x


class InAMethod(Layers):
    def act(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(x)
        return x * gate

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = self.layers
        return self.act(third(self.act(second(self.act(first(x))))))


class LoopInTraining(Layers):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(F.dropout(x, 0.0)) if self.training else layer(x)) ** 2
        return x


@pytest.mark.parametrize("network", [InALoop, InAMethod, LoopInTraining])
@pytest.mark.parametrize("inputs", [None, torch.randn(2, 4)])
def test_a_formula_that_runs_several_times_is_converted_each_time(network: type[Layers], inputs: Tensor | None) -> None:
    model, x = network(), torch.randn(5, 4)
    before, expected = model(x), x
    report = apical.convert_(model, "ada(alpha=0.5)", example_inputs=inputs)
    assert len(report.converted) == 3
    for layer in model.layers:
        expected = apical.functional.ada(layer(expected), 0.5)
    for training in (True, False):
        torch.testing.assert_close(model.train(training)(x), expected)
    report.undo()
    assert torch.equal(model.train()(x), before)
    assert len(apical.convert_(network(), "pynada", example_inputs=inputs).converted) == 3


def method(layer: nn.Module, x: Tensor, _: nn.Module) -> Tensor:
    h = layer(x)
    h[:, 2:].relu_()
    return h


def flat(layer: nn.Module, x: Tensor, _: nn.Module) -> Tensor:
    h = layer(x)
    h.view(-1).clamp_(min=0)
    return h


def function(layer: nn.Module, x: Tensor, _: nn.Module) -> Tensor:
    h = layer(x)
    F.relu(h.t(), inplace=True)
    return h


def half(layer: nn.Module, x: Tensor, _: nn.Module) -> Tensor:
    h = layer(x)
    first, _second = h.chunk(2, -1)
    first.relu_()
    return h


def product(layer: nn.Module, x: Tensor, _: nn.Module) -> Tensor:
    h = layer(x)
    part = h[:, :2]
    part.mul_(part.sigmoid())
    return h


def called(layer: nn.Module, x: Tensor, act: nn.Module) -> Tensor:
    h = layer(x)
    act(h[:, 2:])
    return h


class OnAView(Layers):
    write: Any

    def __init__(self) -> None:
        super().__init__()
        self.inplace = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.layers[1](type(self).write(self.layers[0], x, self.inplace)))


@pytest.mark.parametrize("write", [method, flat, function, half, product, called])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_what_writes_into_a_view_is_converted_and_still_writes(write: Any, unit: str) -> None:
    network = type("Network", (OnAView,), {"write": staticmethod(write)})
    model, x = network(), torch.randn(5, 4)
    with torch.no_grad():  # autograd refuses to write into one of several views
        report = apical.convert_(model, unit, kinds=["gelu", "relu", "silu"], example_inputs=x)
        assert "gelu" in [row.kind for row in report.converted]
        if unit == "ada":
            assert not report.kept
            h, ada = model.layers[0](x), apical.ADA()
            parts = {method: slice(2, 4), half: slice(0, 2), product: slice(0, 2), called: slice(2, 4)}
            columns = parts.get(write, slice(0, 4))
            h[:, columns] = ada(h[:, columns])
            torch.testing.assert_close(model(x), ada(model.layers[1](h)))


def test_what_is_in_place_on_a_view_that_alone_is_read_later_is_converted() -> None:
    class Flat(OnAView):
        def forward(self, x: Tensor) -> Tensor:
            return self.inplace(self.layers[0](x).flatten(1))  # type: ignore[no-any-return]

    assert len(apical.convert_(Flat(), "ada").converted) == 1
