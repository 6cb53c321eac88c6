"""The report: its table, the shares of inputs, the warning about trained weights, and the way back."""

import copy
import re
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.convert.probe import looks_trained
from apical.errors import ConversionError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.conv, self.bn = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.gate, self.head = nn.Sigmoid(), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(self.bn(self.conv(x)) + x)
        x = x * self.gate(x.mean((2, 3), keepdim=True))
        return self.head(F.elu(x.mean((2, 3))))


X = torch.randn(4, 3, 9, 9)


def test_the_table_shows_every_activation_and_why_it_was_kept() -> None:
    lines = str(apical.convert_(Net(), "pynada(alpha=0.3)")).splitlines()
    assert lines[:2] == ["2 of 3 activations converted to pynada(alpha=0.3)", ""]
    left = "not asked for: 1 sigmoid; kinds=[*apical.convert.DEFAULT_KINDS, 'sigmoid'] adds them"
    assert lines[7:] == ["", left, "", "parameters: 877 -> 1.71 k"]
    lines = lines[:7]
    cells = [[cell.strip() for cell in re.split(r"  +", line)] for line in lines[2:3] + lines[4:]]
    assert cells == [
        ["name", "before", "after", "reason"],
        ["stem.2", "Conv2d + BatchNorm2d + ReLU", "PyramidalConv2d"],
        ["relu", "Conv2d + BatchNorm2d + sum + relu()", "pyramidal neuron: apical branch added"],
        ["elu", "elu()", "kept", "it is fed by mul, not by an affine layer"],
    ]
    assert len({line.index(word) for line, word in zip(lines[4:], ["Conv2d", "Conv2d", "elu()"], strict=True)}) == 1


@pytest.mark.parametrize("unit", ["ada", "pynada", "leaky_ada(alpha=learn)"])
@pytest.mark.parametrize("mode", [True, False])
def test_undo_restores_bit_equal_outputs_and_the_very_modules(unit: str, mode: bool) -> None:
    model = Net().train(mode)
    keys, modules, kind = list(model.state_dict()), [*model.modules()], type(model)
    original = copy.deepcopy(model)
    report = apical.convert_(model, unit)
    assert report.undo() is model
    assert [a is b for a, b in zip(model.modules(), modules, strict=True)] == [True] * len(modules)
    assert type(model) is kind
    assert list(model.state_dict()) == keys
    assert torch.equal(model(X), original(X))


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_undo_leaves_a_head_of_another_size(unit: str) -> None:
    model = Net()
    original = copy.deepcopy(model)
    report = apical.convert_(model, unit)
    with torch.no_grad():
        next(model.stem.parameters()).add_(1)
    model.head = nn.Linear(8, 3)
    with pytest.raises(ConversionError, match="changed since its conversion"):
        report.undo()
    report.undo(discard=True)
    original.head = model.head
    assert torch.equal(model.eval()(X), original.eval()(X))
    assert model.head.out_features == 3


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_undo_after_training_asks_first_and_then_restores_everything(unit: str) -> None:
    model = Net()
    original = copy.deepcopy(model)
    report = apical.convert_(model, unit)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model(X).square().sum().backward()
    optimiser.step()
    with pytest.raises(ConversionError, match=r"have changed since its conversion.*report.undo\(discard=True\)"):
        report.undo()
    report.undo(discard=True)
    assert torch.equal(model.eval()(X), original.eval()(X))
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), original.state_dict().values(), strict=True)
    )


def test_undo_twice_is_undo_once() -> None:
    model = Net()
    report = apical.convert_(model, "ada")
    report.undo()
    assert report.undo() is model
    assert isinstance(model.stem[2], nn.ReLU)


def test_a_model_converted_and_undone_can_be_converted_again() -> None:
    model = Net()
    apical.convert_(model, "ada").undo()
    assert len(apical.convert_(model, "pynada").converted) == 2


class Watched(nn.Module):
    """One activation of each sort, whose inputs are known."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(x), F.relu(x - 100), torch.sigmoid(x)
        return torch.stack([*y, self.act(-x).relu()])


def test_the_shares_are_those_of_the_inputs_of_each_call() -> None:
    x = torch.tensor([-1.0, -1.0, -1.0, 2.0, 2.0, 30.0, 30.0, 30.0])
    report = apical.convert_(Watched(), "ada(alpha=0.3)", example_inputs=x)
    assert {row.name: row.inputs for row in report.converted} == {
        "act": "38% inactive, 38% saturated",  # 3 of 8 below zero; 0.3 * 30 > 5
        "relu": "100% inactive, 0% saturated",
        "act (call 2)": "62% inactive, 0% saturated",
        "relu_1": "0% inactive, 0% saturated",
    }


def test_the_shares_are_measured_before_the_conversion_and_change_nothing() -> None:
    model = Net()
    before = copy.deepcopy(model.state_dict())
    seen: list[Tensor] = []
    model.stem[2].register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().clone()))
    report = apical.convert_(model, "ada", example_inputs={"x": X})
    assert report.rows[0].inputs.startswith(f"{float((seen[0] < 0).float().mean()):.0%} inactive")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items() if name in before)
    assert model.training


def test_example_inputs_that_do_not_fit_are_said_before_anything_is_changed() -> None:
    model = Net()
    with pytest.raises(ConversionError, match="does not run on example_inputs"):
        apical.convert_(model, "ada", example_inputs=torch.randn(2, 5))
    assert isinstance(model.stem[2], nn.ReLU)


def trained(model: nn.Module) -> nn.Module:
    optimiser = torch.optim.SGD(model.train().parameters(), lr=0.1)
    model(X).square().mean().backward()
    optimiser.step()
    return model


def test_a_look_at_a_fresh_network_with_batch_norm_is_no_training() -> None:
    model = Net()
    model.train()(X)
    assert not looks_trained(model)
    apical.convert_(model, "ada")  # warnings are errors here


def test_a_norm_without_parameters_looks_trained_by_what_it_has_seen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU())
    for _ in range(19):
        model(torch.randn(8, 4))
    assert not looks_trained(model)
    model(torch.randn(8, 4))
    assert looks_trained(model)


def test_trained_weights_and_another_function_give_one_sentence_of_warning() -> None:
    with pytest.warns(UserWarning, match="looks trained and gets 'ada' for its relu") as caught:
        apical.convert_(trained(Net()), "ada")
    assert len(caught) == 1
    relus = lambda name, module: name != "elu"  # noqa: E731
    with pytest.warns(UserWarning, match="new apical branch.*unless keep_function=True"):
        apical.convert_(trained(Net()), "pynada", filter_fn=relus)
    apical.convert_(trained(Net()), "pynada", filter_fn=relus, keep_function=True)  # warnings are errors here


STARTS = [
    nn.init.xavier_uniform_,
    nn.init.kaiming_normal_,
    nn.init.trunc_normal_,
    nn.init.orthogonal_,
    nn.init.zeros_,
    None,
]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("seed", range(5))
def test_fresh_weights_do_not_look_trained(start: object, seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 16))
    for layer in model[::2] if callable(start) else []:
        start(layer.weight)
    assert not looks_trained(model)


def test_weights_without_norms_look_trained_after_training_on_real_digits() -> None:
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(100):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    assert looks_trained(model)


def test_conversions_are_undone_last_one_first() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.GELU()), torch.randn(3, 4)
    before = model(x)
    first = apical.convert_(model, "ada", kinds=["relu"])
    second = apical.convert_(model, "mish", kinds=["gelu"])
    for discard in (False, True):
        with pytest.raises(ConversionError, match="was converted to mish after this"):
            first.undo(discard=discard)
    second.undo()
    first.undo()
    assert torch.equal(model(x), before)


def test_one_value_has_changed() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU())
    report = apical.convert_(model, "ada")
    with torch.no_grad():
        model[0].weight.add_(1)
    with pytest.raises(ConversionError, match=r"^1 value of the model has changed"):
        report.undo()


class Untraced(nn.Module):
    """Stops by value, so that no graph holds it; all that it calls is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.act = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), nn.ReLU()

    def squash(self, x: Tensor) -> Tensor:
        return F.gelu(self.act(x).mean(1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x) if number == 0 or x.sum() < 1e6 else x
        return self.squash(x)


class Passed(Untraced):
    def forward(self, x: Tensor, function: Any = None) -> Tensor:
        x = super().forward(x)
        return x if function is None or x.sum() > 1e6 else function(x)  # type: ignore[no-any-return]


class LookedUp(Untraced):
    def forward(self, x: Tensor) -> Tensor:
        function = getattr(F, "re" + "lu" if x.sum() > 0 else "gelu")
        return function(self.act(x))  # type: ignore[no-any-return]


TABLES = {"gates": {"one": torch.sigmoid, "two": torch.mean}, "hidden": {"one": F.gelu, "two": torch.mean}}
GATES, HIDDEN = TABLES["gates"], TABLES["hidden"]


class OfGates(Untraced):
    def forward(self, x: Tensor) -> Tensor:
        function = GATES["one" if x.sum() > 0 else "two"]
        return function(self.act(x))


class OfHidden(Untraced):
    def forward(self, x: Tensor) -> Tensor:
        function = HIDDEN["one" if x.sum() > 0 else "two"]
        return function(self.act(x))


class Object:
    def run(self, x: Tensor) -> Tensor:
        return x.relu()


class Held(Untraced):
    def __init__(self) -> None:
        super().__init__()
        self.held = Object()

    def forward(self, x: Tensor) -> Tensor:
        return self.held.run(self.act(x)) if x.sum() > 0 else x


@pytest.mark.parametrize("network", [Untraced, OfGates])
def test_the_headline_says_where_the_code_of_untraced_forwards_was_read(network: type[nn.Module]) -> None:
    report = apical.convert_(network(), "ada")
    assert list(report.details) == ["(the model)"]
    assert report.doubtful == []
    said = r"(\d) of \1 activations? converted to ada; 1 forward could not be traced, but its code was read"
    assert re.fullmatch(said, str(report).splitlines()[0])


@pytest.mark.parametrize("network", [Passed, LookedUp, OfHidden, Held])
def test_the_headline_names_forwards_that_may_run_what_was_not_read(network: type[nn.Module]) -> None:
    report = apical.convert_(network(), "ada")
    assert report.doubtful == list(report.details) == ["(the model)"]
    assert "; 1 forward could not be traced (report.details): example_inputs show" in str(report)
    model = network()
    assert "traced" not in str(apical.convert_(model, "ada", example_inputs=torch.randn(3, 4)))


def test_a_table_of_gates_is_in_doubt_where_gates_are_asked_for() -> None:
    assert apical.convert_(OfGates(), "ada", kinds=["relu", "sigmoid"]).doubtful == ["(the model)"]


class _Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.relu(self.a(x)))


def test_a_module_that_no_call_reaches_is_said_not_to_run() -> None:
    report = apical.convert_(_Unused(), "ada", example_inputs=torch.randn(2, 4))
    assert str(report).startswith("2 of 2 activations converted to ada, 1 of which did not run on example_inputs\n")
    assert {row.name: row.inputs == "did not run" for row in report.rows} == {"relu": False, "act": True}
    assert "did not run" not in str(apical.convert_(_Unused(), "ada"))  # nothing was run


def test_the_products_of_transformer_layers_are_counted_before_and_after() -> None:
    fast = torch.backends.mha.get_fastpath_enabled()
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True).eval()
    report = apical.convert_(layer, "ada", example_inputs=torch.randn(1, 4, 8))
    before, after = report.cost.multiply_adds
    # 4 tokens x (queries, keys and values 8 x 24, projection 8 x 8, feed-forward 2 x 8 x 16)
    assert before == after == 4 * (8 * 24 + 8 * 8 + 2 * 8 * 16)
    assert torch.backends.mha.get_fastpath_enabled() == fast
