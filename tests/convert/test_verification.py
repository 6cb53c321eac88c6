"""With example inputs, a conversion that would change more than activations is refused, whatever the reason."""

import importlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.convert import application, flow
from apical.convert.verification import at_fault
from apical.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3)
        self.act, self.last = nn.ReLU(inplace=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> dict[str, Any]:
        h = self.norm(self.affine(x))
        identity = h
        h = self.act(h)
        return {"out": [self.last(self.drop(h) + identity)]}


def state(model: nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("unit", ["ada", "pynada", "pynada(alpha=learn)"])
def test_a_right_conversion_passes_and_leaves_no_trace(unit: str, training: bool) -> None:
    model, x = Residual().train(training), torch.randn(6, 4)
    values, random, given = state(model), torch.get_rng_state(), x.clone()
    report = apical.convert_(model, unit, example_inputs=x)
    torch.set_rng_state(random)
    assert len(report.converted) == 1
    assert torch.equal(x, given)
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items() if name in values)
    report.undo()
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())


def test_a_wrong_conversion_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Residual().eval(), torch.randn(6, 4)
    before = model(x)["out"][0]
    monkeypatch.setattr(flow.FlowGraph, "is_read_again", lambda *_: False)  # the fault: nothing is written back
    with pytest.raises(ConversionError, match="was undone: with the original activations in their new places the"):
        apical.convert_(model, "ada", example_inputs=x)
    assert torch.equal(model(x)["out"][0], before)
    assert type(model.act) is nn.ReLU


class InTraining(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        h = super().forward(x)
        return F.relu(h) + 1 if self.training else F.relu(h)


def test_a_fault_in_training_mode_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = InTraining(nn.Linear(4, 4)), torch.randn(3, 4)
    whole: Callable[..., Any] = application.Application._call_instead

    def wrong(self: Any, site: Any, mode: bool, name: str, **kwargs: Any) -> Any:
        call = whole(self, site, mode, name, **kwargs)
        if mode:
            call.args = (call.graph.call_method("neg", call.args),)
            call.prepend(call.args[0])
        return call

    monkeypatch.setattr(application.Application, "_call_instead", wrong)
    with pytest.raises(ConversionError, match="computes something else in training mode"):
        apical.convert_(model, "ada", example_inputs=x)
    assert len(apical.convert_(model.eval(), "ada", example_inputs=x).converted) == 1


@dataclass
class Outputs:
    scores: Tensor
    number: int


class Chooses(nn.Module):
    """Amplifies rounding: what it returns depends on the order of scores that are almost equal."""

    def __init__(self) -> None:
        super().__init__()
        self.affine, self.wide = nn.Linear(64, 64), nn.Linear(64, 512)

    def forward(self, x: Tensor) -> Outputs:
        scores = self.wide(F.relu(self.affine(x))).mul(1e-6).add(1.0).sum(0)
        order = scores.sort(stable=True).indices
        return Outputs(order.float(), int(order[0]))


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_rounding_that_the_network_amplifies_is_no_fault(unit: str) -> None:
    assert len(apical.convert_(Chooses(), unit, example_inputs=torch.randn(8, 64)).converted) == 1


class Random(nn.Module):
    """Draws random numbers: a graph would hold one draw for ever."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.affine, self.source, self.generator = nn.Linear(4, 4), source, torch.Generator()

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.affine(x))
        if self.source == "python":
            return h + random.random()
        return h + torch.rand(4, generator=self.generator if self.source == "own" else None)


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("source", ["python", "torch", "own"])
def test_a_forward_that_draws_numbers_still_does(source: str, shown: bool) -> None:
    model, x = Random(source), torch.randn(3, 4)
    assert len(apical.convert_(model, "ada", example_inputs=x if shown else None).converted) == 1
    assert not torch.equal(model(x), model(x))


class Parts(nn.Module):
    """A leaky ReLU of two parts that meet where statements are not followed; the forward cannot be traced."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.affine, self.last = way, nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.affine(x)
        if bool(h.isnan().any()):
            return x
        return F.gelu(self.last(self.parts(h)))

    def parts(self, h: Tensor) -> Tensor:
        if self.way == "table":
            table = {}
            table["p"], table["n"] = F.relu(h), F.relu(-h)
            return table["p"] - 0.1 * table["n"]
        if self.way == "list":
            both = [F.relu(h), -0.1 * F.relu(-h)]
            return sum(both)  # type: ignore[return-value]
        if self.way == "attribute":
            self.p, self.n = F.relu(h), F.relu(-h)
            return self.p - 0.1 * self.n
        if self.way == "loop":
            total = torch.zeros_like(h)
            for sign, scale in ((1.0, 1.0), (-1.0, -0.1)):
                total = total + scale * F.relu(sign * h)
            return total
        return torch.stack([h, 0.1 * h]).max(0)[0]


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("way", ["table", "list", "attribute", "loop", "stack"])
def test_no_part_of_an_activation_is_converted_alone(way: str, shown: bool) -> None:
    model, x = Parts(way).eval(), torch.randn(3, 4)
    middle = model.parts(model.affine(x))
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert [row.kind for row in report.converted] == ["gelu"]
    kept = [row for row in report.kept if "a part of" not in row.reason and "as the model is set" not in row.reason]
    assert {row.kind for row in kept} <= {"leaky_relu", "formula"}
    assert [row for row in report.kept if row.asked]
    assert torch.equal(model.parts(model.affine(x)), middle)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_maximum_over_a_stack_is_an_activation(unit: str) -> None:
    class Stacked(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            h = super().forward(x)
            return torch.stack([h, torch.zeros_like(h)]).amax(0)

    report = apical.convert_(nn.Sequential(Stacked(4, 4), nn.Linear(4, 4), nn.ReLU()), unit)
    assert [row.kind for row in report.rows] == ["relu", "relu"]


class Iterated(nn.Module):
    """Calls the parts of a Sequential one by one: nothing may be added to that, and its forward never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x) if bool(x.isfinite().all()) else x
        return x


@pytest.mark.parametrize("shown", [False, True])
def test_the_parts_of_a_sequence_may_be_called_one_by_one(shown: bool) -> None:
    model, x = Iterated(), torch.randn(3, 4)
    before = model(x)
    report = apical.convert_(model, "pynada", keep_function=True, example_inputs=x if shown else None)
    assert len(report.converted) == 1
    assert torch.allclose(model(x), before, atol=1e-6)
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


class Optional(nn.Module):
    """What it computes between the layer and the activation is read where no graph shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.affine, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor, skip: bool = False) -> Tensor:
        h = self.affine(x)
        y = self.act(h)
        return y + h if skip else y


def test_an_argument_that_reads_the_input_of_the_activation_still_does() -> None:
    model, x = Optional(), torch.randn(3, 4)
    before = model(x, skip=True)
    apical.convert_(model, "pynada", keep_function=True)
    assert torch.allclose(model(x, skip=True), before, atol=1e-6)


def test_the_forward_of_another_module_is_that_module() -> None:
    class Bound(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.affine, self.act = nn.Linear(4, 4), nn.ReLU()
            self.apply_ = self.act.forward

        def forward(self, x: Tensor) -> Tensor:
            return self.apply_(self.affine(x)) if bool(x.isfinite().all()) else x

    model, x = Bound(), torch.randn(3, 4)
    report = apical.convert_(model, "ada")
    assert str(report).startswith("1 of 1 activation")
    assert torch.allclose(model(x), apical.ADA()(model.affine(x)))
    report.undo()
    assert torch.equal(model(x), model.affine(x).relu())
    assert model.apply_ == model.act.forward


class Scattered(nn.Module):
    """Two activations that a list holds beside their input: without example inputs they may be parts of one."""

    def __init__(self) -> None:
        super().__init__()
        self.affine, self.last = nn.Linear(4, 4), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.affine(x)
        values = [h, F.relu(h), F.relu(-h)] if bool(h.isfinite().all()) else [h, h, h]
        return F.gelu(self.last(torch.cat(values, 1)))


@pytest.mark.parametrize("shown", [False, True])
def test_what_example_inputs_told_is_known_when_it_is_loaded(shown: bool, tmp_path: Path) -> None:
    model, x = Scattered(), torch.randn(3, 4)
    report = apical.convert_(model, "ada(alpha=learn)", example_inputs=x if shown else None)
    assert len(report.converted) == (3 if shown else 1)
    report.save(tmp_path / "conversion.json")
    fresh = Scattered()
    apical.convert.load(fresh, tmp_path / "conversion.json")
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), model(x))


FILE = """
import torch
from torch import nn
from torch.nn import functional as F

class Edited(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Linear(4, 4)

    def before(self, x):
        return F.relu(F.relu(x)) + 1

    def forward(self, x):
        return F.gelu(self.affine(x)) if bool(x.isfinite().all()) else x
"""


def test_a_file_that_was_edited_after_its_import_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edited_network.py"
    path.write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    model, x = importlib.import_module("edited_network").Edited(), torch.randn(3, 4)
    path.write_text(FILE.replace("import torch", "import torch\n", 1))
    with pytest.raises(ConversionError):
        apical.convert_(model, "ada", example_inputs=x)
    assert torch.equal(model(x), F.gelu(model.affine(x)))


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Residual(), InTraining(nn.Linear(2, 4)), Residual()

    def forward(self, x: Tensor) -> Tensor:
        h = self.second(self.first(x)["out"][0])
        return self.third(h)["out"][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("unit", ["ada", "pyramidal(basal=gelu,apical=ada)"])
def test_a_module_that_would_be_rewritten_wrongly_keeps_its_own_and_the_rest_is_converted(
    unit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, x = Blocks().eval(), torch.randn(6, 4)
    hidden = model.third(model.second(torch.ones(6, 2)))["out"][0]
    monkeypatch.setattr(  # the fault: nothing is written back in one of the blocks
        flow.FlowGraph, "is_read_again", lambda self, site: site.owner.name == "first"
    )
    report = apical.convert_(model, unit, example_inputs=x)
    assert {row.name for row in report.converted} == {"first.act", "second.relu"}
    (row,) = report.kept
    assert (row.name, row.asked) == ("third.act", True)
    assert row.reason.startswith("its conversion was undone: with the original activations in their new places the")
    assert type(model.third.act) is nn.ReLU
    assert type(model.third) is Residual
    report.save(tmp_path / "conversion.json")
    fresh = Blocks().eval()
    apical.convert.load(fresh, tmp_path / "conversion.json")
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), model(x))
    report.undo()
    assert torch.equal(model.third(model.second(torch.ones(6, 2)))["out"][0], hidden)


def test_all_modules_that_fail_alone_are_at_fault_and_else_all_that_fail_together() -> None:
    names = [str(number) for number in range(11)]
    assert at_fault(names, lambda tried: bool({"3", "9"} & {*tried})) == ["3", "9"]
    assert at_fault(names, lambda tried: {"3", "9"} <= {*tried}) == names
    assert at_fault(names[:1], lambda tried: True) == names[:1]


def test_a_refusal_names_the_modules_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), Residual()).eval(), torch.randn(6, 4)
    monkeypatch.setattr(flow.FlowGraph, "is_read_again", lambda *_: False)
    with pytest.raises(
        ConversionError, match=r"something else, because of what was converted in 1; exclude that, .*'1'"
    ):
        apical.convert_(model, "ada", example_inputs=x)


class Sloped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.affine(x)
        return self.sloped(self.last(self.sloped(h, 0.1)), 0.3) if h.sum() < 1e9 else h

    def sloped(self, x: Tensor, slope: float) -> Tensor:
        return F.relu(x) - slope * F.relu(-x)


def test_the_report_says_where_the_check_was_left_out() -> None:
    x = torch.randn(3, 4)
    report = apical.convert_(Sloped(), "ada", example_inputs=x)
    assert report.varying == [row.name for row in report.converted] == ["leaky_relu"]
    assert "\nnot checked on example_inputs: numbers in leaky_relu differ from call to call\n" in str(report)
    assert apical.convert_(Sloped(), "ada").varying == []  # nothing was to be checked


@pytest.mark.parametrize("unit", ["ada", "leaky_ada", "gelu", "pynada"])
@pytest.mark.parametrize("training", [True, False])
def test_a_network_of_apical_itself_is_checked_like_any_other(unit: str, training: bool) -> None:
    model = apical.models.create("resnet-18", "relu", seed=0, stem=64, outputs=2, width=4).train(training)
    x = torch.randn(2, 3, 16, 16)
    report = apical.convert_(model, unit, example_inputs=x)
    assert len(report.converted) == 17
    assert not report.kept
