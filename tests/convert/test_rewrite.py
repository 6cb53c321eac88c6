"""A rewritten module is still the module it was: class, methods, modes, arguments, copies, compilation."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical

ADA = apical.ADA()


class Net(nn.Module):
    """Functional activations, modes that differ, options, and other methods."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 4)
        self.history: list[str] = []

    def features(self, x: Tensor) -> Tensor:
        return F.relu(self.one(x))

    def forward(self, x: Tensor, mask: Tensor | None = None, *, scale: float = 1.0, double: bool = False) -> Tensor:
        x = self.features(x)
        if mask is not None:
            x = x * mask
        if self.training:
            x = F.relu(-x) + F.dropout(x, 0.5, training=self.training)
        x = F.relu(self.two(x) * scale)
        return 2 * x if double else x

    def describe(self) -> str:
        return f"{len(self.history)} {type(self).__name__}"


def converted() -> Net:
    model = Net()
    assert apical.convert_(model, "ada").model is model
    return model


def test_class_methods_and_attributes_survive() -> None:
    model = converted()
    assert isinstance(model, Net)
    assert type(model).__name__ == "Net"
    assert model.describe() == "0 Net"
    assert repr(model).startswith("Net(")
    assert {"one.weight", "two.bias"} <= set(model.state_dict())


def test_both_modes_stay_right() -> None:
    model, x = converted(), torch.randn(5, 4)
    inner = ADA(model.one(x))
    in_evaluation = ADA(model.two(inner))
    for _ in range(2):  # switching to and fro
        model.eval()
        assert torch.equal(model(x), in_evaluation)
        model.train()
        torch.manual_seed(3)
        got = model(x)
        torch.manual_seed(3)
        assert torch.equal(got, ADA(model.two(ADA(-inner) + F.dropout(inner, 0.5))))


def test_an_activation_of_one_mode_alone_is_converted_too() -> None:
    report = apical.convert_(Net(), "ada")
    assert [row.name for row in report.rows] == ["relu", "relu_1", "relu_2"]


def test_optional_arguments_keep_their_names() -> None:
    model, x = converted().eval(), torch.randn(5, 4)
    assert torch.equal(model(x=x, mask=None, scale=2.0), ADA(2.0 * model.two(ADA(model.one(x)))))


@pytest.mark.parametrize("options", [{"double": True}, {"mask": torch.rand(8)}, {}])
def test_options_work_as_before(options: dict[str, Any]) -> None:
    model, x = converted().eval(), torch.randn(5, 4)
    hidden = ADA(model.one(x)) * options.get("mask", 1.0)
    assert torch.equal(model(x, **options), ADA(model.two(hidden)) * (2 if options.get("double") else 1))


def test_without_a_source_an_option_that_the_graph_does_not_hold_is_refused_not_ignored() -> None:
    scope: dict[str, Any] = {"nn": nn, "F": F}
    exec(
        "class Hidden(nn.Module):\n"
        " def forward(self, x, double=False):\n"
        "  x = F.relu(x)\n"
        "  return 2 * x if double else x",
        scope,
    )
    model = scope["Hidden"]()
    model.__class__.__module__ = __name__
    apical.convert_(model, "ada")
    assert torch.equal(model(X := torch.randn(3)), ADA(X))
    with pytest.raises(ValueError, match="Hidden was converted for double=False"):
        model(torch.randn(5, 4), double=True)


class Caller(nn.Module):
    """Passes what the inner module takes as options."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.net(x, mask, double=True)


def test_options_that_a_caller_passes_are_followed() -> None:
    model, x, mask = Caller().eval(), torch.randn(5, 4), torch.rand(8)
    apical.convert_(model, "ada")
    assert torch.equal(model(x, mask), 2 * ADA(model.net.two(ADA(model.net.one(x)) * mask)))


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_copies_and_pickles_are_independent_and_equal(unit: str) -> None:
    model, x = Net(), torch.randn(5, 4)
    apical.convert_(model, unit)
    model.eval()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))
        assert type(other) is type(model)
        with torch.no_grad():
            other.two.weight.zero_() if hasattr(other.two, "weight") else None
        assert not torch.equal(other.two.weight, model.two.weight)
        assert other.train().training
        assert other(x).shape == model(x).shape


def test_a_state_dict_goes_into_another_converted_model() -> None:
    first, second, x = converted().eval(), converted().eval(), torch.randn(5, 4)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))


def test_two_conversions_of_one_module_pickle_too() -> None:
    model, x = Net().eval(), torch.randn(5, 4)
    apical.convert_(model, "ada", filter_fn=lambda name, module: name == "relu")
    apical.convert_(model, "leaky_ada", filter_fn=lambda name, module: name == "relu_2")
    expected = apical.LeakyADA()(model.two(ADA(model.one(x))))
    assert torch.equal(model(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_rewritten_module_compiles_without_a_break(unit: str) -> None:
    model, x = Net(), torch.randn(5, 4)
    apical.convert_(model, unit)
    model.eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), model(x), atol=1e-6)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_rewritten_module_exports(unit: str) -> None:
    model, x = Net(), torch.randn(5, 4)
    apical.convert_(model, unit)
    exported = torch.export.export(model.eval(), (x,)).module()
    assert torch.allclose(exported(x), model(x), atol=1e-6)


class Other(nn.Module):
    """Another forward from the same file as Net's."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.one(x)) - 1


def test_several_rewritten_classes_compile_together() -> None:
    model, x = nn.Sequential(Other(), Net(), nn.Sequential(Other())), torch.randn(5, 4)
    apical.convert_(model, "ada")
    compiled = torch.compile(model.eval(), backend="eager", fullgraph=True)
    assert torch.allclose(compiled(x), model(x), atol=1e-6)


class Stateful(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.last = x
        return F.relu(x) + 1


def test_tracing_leaves_nothing_behind() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Stateful(), nn.BatchNorm1d(4))
    model[1].train(False)
    before = copy.deepcopy(model.state_dict())
    apical.convert_(model, "ada")
    assert "last" not in vars(model[1])
    assert [part.training for part in model] == [True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_traceback_shows_the_generated_forward() -> None:
    model = converted()
    with pytest.raises(RuntimeError) as caught:
        model(torch.randn(5, 3))
    assert any("self.relu(self.one(x))" in str(entry) for entry in caught.traceback)


class Caching(nn.Module):
    """Keeps what it computes for a device, as attention biases are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.cache = nn.Linear(4, 4), dict[str, Tensor]()

    def forward(self, x: Tensor) -> Tensor:
        key = str(x.device)
        if key not in self.cache:
            self.cache[key] = self.linear.bias * 2
        return F.relu(self.linear(x) + self.cache[key])


def test_tracing_leaves_nothing_in_a_cache() -> None:
    model, x = nn.Sequential(Caching()), torch.randn(3, 4)
    for _ in range(2):
        apical.convert_(model, "ada").undo()
    assert model[0].cache == {}
    apical.convert_(model, "ada")
    assert torch.equal(model(x), ADA(model[0].linear(x) + model[0].linear.bias * 2))


@pytest.mark.parametrize("activation", ["relu", F.gelu, nn.ReLU(), nn.Mish()])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_copies_of_a_decoder_layer_have_its_activation(activation, unit):
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(8, 2, 16, activation=activation, batch_first=True, dropout=0.0).eval()
    x = torch.randn(2, 3, 8)
    before = layer(x, x)
    report = apical.convert_(layer, unit)
    after = layer(x, x)
    assert len(report.converted) == 1
    assert not torch.equal(after, before)
    assert torch.equal(copy.deepcopy(layer)(x, x), after)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x, x), after)
    decoder = nn.TransformerDecoder(layer, 2).eval()
    assert torch.equal(decoder(x, x), layer(after, x))
    report.undo()
    assert torch.equal(layer(x, x), before)
    layer.activation = nn.Identity()
    assert not torch.equal(layer(x, x), before)
