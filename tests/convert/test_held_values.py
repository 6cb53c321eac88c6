"""Values that a trace would freeze, and layers that are called with more than an input."""

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import apical
from apical.errors import ConversionError

SCALE = torch.ones(8)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.table = nn.Linear(8, 8), nn.Linear(8, 8), torch.ones(8)
        self.register_buffer("u", torch.ones(8))


class Penalty(Two):
    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x)))) + sum(p.pow(2).sum() for p in self.parameters())


class Attribute(Two):
    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x)))) * (self.table * 2)


class Buffers(Two):
    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x)))) * (dict(self.named_buffers())["u"] * 2)


class Global(Two):
    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x)))) * SCALE


@pytest.mark.parametrize("kind", [Penalty, Attribute, Buffers, Global])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_forward_that_computes_with_tensors_of_others_reads_them_anew(kind, unit, with_inputs, monkeypatch):
    torch.manual_seed(0)
    model, x = kind(), torch.randn(3, 8)
    if (kind, unit, with_inputs) == (Penalty, "pynada", True):  # new weights are penalised too: another function
        with pytest.raises(apical.errors.ApicalError, match="computes something else"):
            apical.convert_(model, unit, example_inputs=x)
        return
    report = apical.convert_(model, unit, example_inputs=x if with_inputs else None)
    assert len(report.converted) == 2
    before = model(x)
    with torch.no_grad():
        for tensor in (model.table, model.u):
            tensor.mul_(5)
    monkeypatch.setitem(globals(), "SCALE", 5 * SCALE)
    if kind is Penalty:
        penalty = sum(p.pow(2).sum() for p in model.parameters())
        hidden = before - penalty
        with torch.no_grad():
            extra = nn.Parameter(torch.full((3,), 2.0))
            model.extra = extra
        torch.testing.assert_close(model(x) - hidden, (penalty + extra.pow(2).sum()).expand(3, 8))
        model(x).sum().backward()
        assert extra.grad is not None
    else:
        torch.testing.assert_close(model(x), 5 * before)
    copy.deepcopy(model)(x)


class Made(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        places = torch.arange(8)[None] * 2
        return self.b(F.relu(self.a(x))) + places + torch.tensor(0.5)


def test_tensors_that_a_forward_makes_are_no_hindrance():
    model, x = Made(), torch.randn(3, 8)
    before = model(x)
    report = apical.convert_(model, "pynada", keep_function=True)
    assert [row.after for row in report.converted] == ["PyramidalLinear"]
    torch.testing.assert_close(model(x), before)


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.c = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x, skip):
        return F.relu(self.c(F.relu(self.up(x, output_size=skip.shape[-2:])) + skip))


@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_layer_that_is_called_with_an_output_size_passes_it_on(with_inputs):
    torch.manual_seed(0)
    model, inputs = Up(), (torch.randn(1, 3, 4, 4), torch.randn(1, 4, 8, 8))
    before = model(*inputs)
    report = apical.convert_(model, "pynada", keep_function=True, example_inputs=inputs if with_inputs else None)
    assert len(report.converted) == 2
    torch.testing.assert_close(model(*inputs), before)
    odd = torch.randn(1, 4, 7, 7)
    assert model(inputs[0], odd).shape == odd.shape


# --- modules that are held beside being registered -------------------------------------------------------------------


class Pair(NamedTuple):
    layer: nn.Module
    act: nn.Module


class Caller:
    def __init__(self, act: nn.Module) -> None:
        self.act = act

    def __call__(self, x: Tensor) -> Tensor:
        return self.act(x)  # type: ignore[no-any-return]


class Steps(nn.Module):
    """Calls its parts by way of what `hold` makes of them: pairs of a layer and an activation."""

    def __init__(self, hold: Callable[[list[nn.Module]], Any]) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.act, self.act2 = nn.ReLU(), nn.ReLU()
        self.steps = hold([self.a, self.act, self.b, self.act2])

    def forward(self, x: Tensor) -> Tensor:
        for layer, act in self.steps.values() if isinstance(self.steps, dict) else self.steps:
            x = act(layer(x))
        return self.c(x)  # type: ignore[no-any-return]


HOLDERS: dict[str, Callable[[list[nn.Module]], Any]] = {
    "lists": lambda parts: [parts[:2], parts[2:]],
    "tuples": lambda parts: (tuple(parts[:2]), tuple(parts[2:])),
    "tuples in a list": lambda parts: [tuple(parts[:2]), tuple(parts[2:])],
    "named tuples": lambda parts: [Pair(*parts[:2]), Pair(*parts[2:])],
    "table": lambda parts: {"first": parts[:2], "second": tuple(parts[2:])},
    "objects": lambda parts: [(parts[0], Caller(parts[1])), (parts[2], Caller(parts[3]))],
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("shown", [False, True])
def test_what_holds_an_activation_beside_the_modules_gets_the_new_one(holder: str, shown: bool) -> None:
    model, x = Steps(HOLDERS[holder]).eval(), torch.randn(5, 6)
    before = model(x)
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert len(report.converted) == 2
    expected = model.c(apical.functional.ada(model.b(apical.functional.ada(model.a(x)))))
    assert torch.allclose(model(x), expected)
    copied = copy.deepcopy(model)
    assert torch.equal(copied(x), model(x))
    report.undo()
    assert torch.equal(model(x), before)


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("shown", [False, True])
def test_what_holds_layers_beside_the_modules_gets_neurons(holder: str, shown: bool) -> None:
    model, x = Steps(HOLDERS[holder]).eval(), torch.randn(5, 6)
    before = model(x)
    report = apical.convert_(model, "pynada", keep_function=True, example_inputs=x if shown else None)
    assert len(report.converted) == 2
    assert torch.allclose(model(x), before, rtol=1e-6, atol=1e-6)
    model(x).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    report.undo(discard=True)
    assert torch.equal(model(x), before)


def test_one_activation_behind_each_layer_of_a_plain_list() -> None:
    class Shared(Steps):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.steps:
                x = self.act(layer(x))
            return self.c(x)  # type: ignore[no-any-return]

    model, x = Shared(lambda parts: [parts[0], parts[2]]).eval(), torch.randn(5, 6)
    before = model(x)
    apical.convert_(model, "pynada", keep_function=True)
    assert torch.allclose(model(x), before, rtol=1e-6, atol=1e-6)


def test_an_old_activation_that_runs_still_is_noticed() -> None:
    """A closure holds it, which nothing replaces."""

    class Closed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.act, self.c = nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)
            acts = iter([self.act] * 100)
            self.pick = Picker(lambda: next(acts))

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.pick.call()(self.a(x)))  # type: ignore[no-any-return]

    class Picker:
        def __init__(self, call: Callable[[], nn.Module]) -> None:
            self.call = call

    model, x = Closed().eval(), torch.randn(5, 6)
    before = model(x)
    with pytest.raises(ConversionError, match="still calls the old activation, which something beside the modules"):
        apical.convert_(model, "ada", example_inputs=x)
    assert torch.equal(model(x), before)


# --- values that a forward changes -----------------------------------------------------------------------------------


class Momentum(nn.Module):
    """A teacher that follows its student, in the forward."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.student, self.teacher = (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(2))
        self.way = way

    @torch.no_grad()
    def follow(self) -> None:
        for a, b in zip(self.student.parameters(), self.teacher.parameters(), strict=True):
            if self.way == "new data":
                b.data = 0.9 * b.data + 0.1 * a.data
            elif self.way == "data":
                b.data.mul_(0.9).add_(a.data, alpha=0.1)
            else:
                b.mul_(0.9).add_(a, alpha=0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.student(x)
        if self.training:
            self.follow()
        return y * self.teacher(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["new data", "data", "in place"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_values_that_a_forward_changes_stay_as_they_were(way: str, training: bool, shown: bool, unit: str) -> None:
    model, x = Momentum(way).train(training), torch.randn(5, 6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = apical.convert_(model, unit, example_inputs=x if shown else None)
    assert len(report.converted) == 2
    report.undo()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Masked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(6, 6)
        self.register_buffer("mask", torch.ones(6, 6).tril())

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data *= self.mask
        return super().forward(x)


@pytest.mark.parametrize("shown", [False, True])
def test_a_mask_that_a_forward_puts_on_its_weight_is_put_on_by_the_network_alone(shown: bool) -> None:
    model, x = nn.Sequential(Masked(), nn.ReLU(), Masked()).eval(), torch.randn(5, 6)
    before = model[0].weight.detach().clone()
    apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert torch.equal(model[0].weight, before)


class Stage(nn.Module):
    """A part with a second entry, which stores what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.seen = None, None

    def start(self, x: Tensor) -> Tensor:
        self.steps, self.seen = x.shape[1], x * 2
        return x


class Staged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stage, self.affine = Stage(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.affine(self.stage.start(x)))


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("shown", [True, False])
def test_what_a_forward_stores_in_a_part_of_the_model_is_as_before(unit: str, shown: bool) -> None:
    model, x = Staged(), torch.randn(2, 4)
    assert len(apical.convert_(model, unit, example_inputs=x if shown else None).converted) == 1
    assert model.stage.steps is None
    assert model.stage.seen is None
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))
    assert model.stage.steps == 4
