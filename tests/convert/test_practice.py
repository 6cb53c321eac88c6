"""Code as practitioners write it, on which conversions were once wrong: loops over layers, modes, wrappers, devices."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

import apical

X = torch.randn(4, 6)
IMAGES = torch.randn(4, 3, 6, 6)


class Residual(nn.Module):
    """One activation for all layers of a loop, in a forward with an optional argument, which keeps its code."""

    def __init__(self, act: Any, depth: int = 3) -> None:
        super().__init__()
        self.layers, self.act = nn.ModuleList(nn.Linear(6, 6) for _ in range(depth)), act

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            h = layer(x)
            if mask is not None:
                h = h * mask
            x = x + self.act(h)
        return x


class Listed(Residual):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.stack([self.act(layer(x) if mask is None else layer(x) * mask) for layer in self.layers]).sum(0)


class LastWithout(Residual):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x) if mask is None else layer(x) * mask
            if i != len(self.layers) - 1:
                x = self.act(x)
        return x


@pytest.mark.parametrize("inputs", [None, X])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("kind", "count"), [(Residual, 3), (Listed, 3), (LastWithout, 2)])
def test_a_loop_over_layers_with_one_activation(
    kind: Any, count: int, in_place: bool, inputs: Tensor | None, tmp_path: Path
) -> None:
    model = kind(nn.ReLU(inplace=in_place))
    original = copy.deepcopy(model)
    report = apical.convert_(model, "pynada(alpha=0.3,c=1)", example_inputs=inputs, keep_function=True)
    assert len(report.converted) == count
    mask = torch.rand(4, 6)
    for arguments in ((X,), (X, mask)):
        assert torch.allclose(model(*arguments), original(*arguments), atol=1e-6)
    model(X).sum().backward()
    branches = [p for name, p in model.named_parameters() if "apical" in name and p.dim() == 2]
    assert len(branches) == count
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in branches)
    assert torch.equal(copy.deepcopy(model)(X), model(X))
    report.save(tmp_path / "c.json")
    fresh = kind(nn.ReLU(inplace=in_place))
    apical.convert.load(fresh, tmp_path / "c.json")
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(X), model(X))
    report.undo(discard=True)
    assert torch.equal(model(X), original(X))


def test_each_layer_of_a_loop_has_a_branch_of_its_own() -> None:
    model = Residual(nn.ReLU(), depth=2)
    apical.convert_(model, "pynada")
    x, h = X, X
    for layer, neuron in zip(model.layers, model.act_neuron, strict=True):  # type: ignore[call-overload]
        h = x
        x = x + F.relu(layer(h)) + neuron.apical(h)
    assert torch.allclose(model(X), x, atol=1e-6)


class Again(Residual):
    """One layer that runs several times, in a loop or in a method."""

    def hidden(self, x: Tensor) -> Tensor:
        return self.act(self.layers[0](x))  # type: ignore[no-any-return]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        a = self.hidden(x) if mask is None else self.hidden(x) * mask
        return self.hidden(a) + a


class InTurn(Residual):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in (self.layers[0], self.layers[1], self.layers[0]):
            x = self.act(layer(x))
            if mask is not None:
                x = x * mask
        return x


@pytest.mark.parametrize("inputs", [None, X])
@pytest.mark.parametrize(("kind", "count", "rows"), [(Again, 1, 2), (InTurn, 2, 3)])
def test_a_layer_that_runs_several_times_has_one_branch(
    kind: Any, count: int, rows: int, inputs: Tensor | None, tmp_path: Path
) -> None:
    model = kind(nn.ReLU(), depth=count)
    original = copy.deepcopy(model)
    report = apical.convert_(model, "pynada(alpha=0.3,c=1)", example_inputs=inputs, keep_function=True)
    assert len(report.converted) == rows
    assert len([name for name, p in model.named_parameters() if "apical" in name and p.dim() == 2]) == count
    for arguments in ((X,), (X, torch.rand(4, 6))):
        assert torch.allclose(model(*arguments), original(*arguments), atol=1e-6)
    report.save(tmp_path / "c.json")
    fresh = kind(nn.ReLU(), depth=count)
    apical.convert.load(fresh, tmp_path / "c.json")
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(X), model(X))
    assert torch.equal(report.undo()(X), original(X))


class AllFirst(Residual):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        sums = [layer(x) + (x if mask is None else mask) for layer in self.layers]
        return torch.stack([self.act(h) for h in sums]).sum(0)


class Samples(Residual):
    """One output of a layer, activated several times."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.layers[0](x) if mask is None else self.layers[0](x) * mask
        return torch.stack([self.act(h * 1.0) if mask is not None else self.act(h) for _ in range(3)]).sum(0)


@pytest.mark.parametrize("inputs", [None, X])
@pytest.mark.parametrize("kind", [AllFirst, Samples])
def test_a_loop_that_does_not_activate_each_layer_at_once_is_kept(kind: Any, inputs: Tensor | None) -> None:
    model = kind(nn.ReLU())
    expected = model(X)
    with pytest.raises(apical.errors.ConversionError, match="runs several times"):
        apical.convert_(model, "pynada", example_inputs=inputs)
    assert torch.equal(model(X), expected)


class Skips(Residual):
    """A layer that may not be activated."""

    def forward(self, x: Tensor, linear: int | None = None) -> Tensor:
        for i, layer in enumerate(self.layers):
            z = layer(x)
            x = x + z if i == linear else self.act(z + x)
        return x


def test_a_layer_that_left_its_call_makes_the_next_neuron_say_so() -> None:
    model = Skips(nn.ReLU(), depth=2)
    assert len(apical.convert_(model, "pynada").converted) == 2
    model(X)
    model(X, 1)
    with pytest.raises(RuntimeError, match="after 2 calls of the layer before it"):
        model(X, 0)
    model(X)


class Unshown(Residual):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = self.act(layer(x)) if mask is None else self.act(layer(x) * mask)
        return x


def test_a_call_that_no_graph_shows_has_one_row_of_its_own(tmp_path: Path) -> None:
    model = Unshown(nn.ReLU(), depth=2)
    report = apical.convert_(model, "pynada", example_inputs=X)
    assert [(row.name, row.converted) for row in report.rows] == [
        ("act", True), ("act (call 2)", True), ("act (call 3)", False)
    ]  # fmt: skip
    report.save(tmp_path / "c.json")
    apical.convert.load(Unshown(nn.ReLU(), depth=2), tmp_path / "c.json")


def test_the_basal_activation_of_wired_neurons_stays() -> None:
    model = Residual(nn.ReLU())
    apical.convert_(model, "pynada")
    expected = model(X)
    with pytest.raises(apical.errors.ConversionError, match="apical's already"):
        apical.convert_(model, "ada", example_inputs=X)
    assert torch.equal(model(X), expected)


class FirstOnly(Residual):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.layers[0](x) if mask is None else self.layers[0](x) * mask
        for layer in self.layers[1:]:
            h = F.relu(h, False)
            h = torch.tanh(layer(h))
        return h


@pytest.mark.parametrize("inputs", [None, X])
def test_a_loop_that_a_layer_feeds_at_first_alone_is_kept(inputs: Tensor | None) -> None:
    model = FirstOnly(nn.Identity())
    expected = model(X)
    with pytest.raises(apical.errors.ConversionError, match="relu"):
        apical.convert_(model, "pynada", example_inputs=inputs)
    assert torch.equal(model(X), expected)


class Held(nn.Module):
    """An activation that is a function kept as an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.activation = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), F.relu
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        h = self.bn(self.conv(x))
        h = h if scale is None else h * scale
        return self.head(self.activation(h).mean((2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("unit", ["pynada", "rrelu", "ada(noise=0.1)"])
def test_what_takes_the_place_of_a_function_is_in_the_mode_of_its_owner(
    unit: str, training: bool, tmp_path: Path
) -> None:
    model = Held().train(training)
    report = apical.convert_(model, unit)
    assert {module.training for module in model.modules()} == {training}
    report.save(tmp_path / "c.json")
    fresh = Held().train(training)
    apical.convert.load(fresh, tmp_path / "c.json")
    assert {module.training for module in fresh.modules()} == {training}


@pytest.mark.parametrize("inputs", [None, X])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_power_iteration_does_not_go_on(unit: str, inputs: Tensor | None) -> None:
    model = nn.Sequential(spectral_norm(nn.Linear(6, 6)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(6, 1)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    report = apical.convert_(model, unit, example_inputs=inputs)
    report.undo()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules())


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        h = self.bn(self.conv(x))
        return self.relu(h if skip is None else h + skip)  # type: ignore[no-any-return]


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Block(), Block()

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        return self.b(self.a(x, skip), x)  # type: ignore[no-any-return]


class Wrapper(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.net(*args, **kwargs)


@pytest.mark.parametrize("inputs", [None, IMAGES])
@pytest.mark.parametrize("wrap", [Wrapper, nn.DataParallel])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_wrapper_that_passes_everything_on(unit: str, wrap: Any, inputs: Tensor | None) -> None:
    model = wrap(Blocks()).eval()
    plain = copy.deepcopy(model)
    report = apical.convert_(model, "relu" if unit == "ada" else unit, example_inputs=inputs, keep_function=True)
    assert len(report.converted) == 2
    for arguments in ((IMAGES,), (IMAGES, IMAGES)):
        assert torch.allclose(model(*arguments), plain(*arguments), atol=1e-6)


class Unused(nn.Module):
    """PointNet's: a module that nothing calls, beside calls of the function."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu, self.fc = nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 9)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.max(F.relu(self.bn(self.conv(x))), 2)[0])  # type: ignore[no-any-return]


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("inputs", [None, torch.randn(2, 3, 5)])
def test_a_function_and_an_unused_module_of_its_name_have_a_row_each(
    unit: str, inputs: Tensor | None, tmp_path: Path
) -> None:
    model, fresh = Unused(), Unused()
    report = apical.convert_(model, unit, example_inputs=inputs)
    assert len({row.name for row in report.rows}) == 2
    report.save(tmp_path / "c.json")
    apical.convert.load(fresh, tmp_path / "c.json")
    fresh.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 5)
    assert torch.equal(fresh.eval()(x), model.eval()(x))


class Operations:
    def run(self, x: Tensor) -> Tensor:
        return F.relu(x)


OPERATIONS = Operations()


class Calls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.act = nn.Linear(6, 6), nn.Linear(6, 6), nn.ReLU()

    def __hidden(self, x: Tensor) -> Tensor:
        return F.relu(self.a(x))

    def forward(self, x: Tensor) -> Tensor:
        x = x / 2 if x.shape[0] > 100 else x
        return self.act(self.b(self.__hidden(x)))  # type: ignore[no-any-return]


class ByType(Calls):
    @classmethod
    def hidden(cls, x: Tensor) -> Tensor:
        return F.relu(x)

    def forward(self, x: Tensor) -> Tensor:
        x = x / 2 if x.shape[0] > 100 else x
        return self.act(self.b(type(self).hidden(self.a(x))))  # type: ignore[no-any-return]


class ByClass(ByType):
    def forward(self, x: Tensor) -> Tensor:
        x = x / 2 if x.shape[0] > 100 else x
        return self.act(self.b(self.__class__.hidden(self.a(x))))  # type: ignore[no-any-return]


class ByObject(Calls):
    def forward(self, x: Tensor) -> Tensor:
        x = x / 2 if x.shape[0] > 100 else x
        return self.act(self.b(OPERATIONS.run(self.a(x))))  # type: ignore[no-any-return]


def test_a_private_method_is_read() -> None:
    model = Calls()
    assert len(apical.convert_(model, "ada").converted) == 2
    assert len(apical.convert_(Calls(), "pynada", example_inputs=X).converted) == 2
    model(X)


@pytest.mark.parametrize(
    ("kind", "call"), [(ByType, "type(self).hidden"), (ByClass, "__class__.hidden"), (ByObject, "OPERATIONS.run")]
)
def test_methods_of_classes_and_objects_are_listed(kind: Any, call: str) -> None:
    report = apical.convert_(kind(), "ada")
    assert [row.name for row in report.kept] == [call]
    assert report.doubtful
    seen = apical.convert_(kind(), "ada", example_inputs=X)
    assert "relu" in [row.kind for row in seen.kept]


TABLE = {"silu": F.silu, "relu": F.relu, "tanh": torch.tanh, "hardswish": F.hardswish}


def picked(x: Tensor, name: str) -> Tensor:
    return TABLE[name](x)


class Picks(Calls):
    def forward(self, x: Tensor, name: str = "silu") -> Tensor:
        x = x / 2 if x.shape[0] > 100 else x
        return self.act(self.b(picked(self.a(x), name)))  # type: ignore[no-any-return]


def test_of_a_table_only_what_was_picked_counts(tmp_path: Path) -> None:
    report = apical.convert_(Picks(), "ada", example_inputs=X)
    report.save(tmp_path / "c.json")
    apical.convert.load(Picks(), tmp_path / "c.json")
    assert sorted(row.kind for row in report.rows if row.asked) == ["relu", "silu"]
    asleep = [row for row in report.kept if not row.asked]
    assert {"relu", "hardswish"} <= {row.kind for row in asleep}
    assert all("did not run on example_inputs" in row.reason for row in asleep)


def small() -> nn.Sequential:
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)]
    return nn.Sequential(*layers).eval()


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_network_without_memory(unit: str, tmp_path: Path) -> None:
    real = small()
    apical.convert_(real, unit).save(tmp_path / "c.json")
    with torch.device("meta"):
        empty, other = small(), small()
    apical.convert.load(empty, tmp_path / "c.json")
    empty.load_state_dict(real.state_dict(), assign=True)
    assert torch.equal(empty(IMAGES), real(IMAGES))
    report = apical.convert_(other, unit)
    assert all(value.is_meta for value in other.state_dict().values())
    report.undo()


def test_channels_last_stays() -> None:
    model = small().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    apical.convert_(model, "pynada")
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
