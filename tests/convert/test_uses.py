"""What a forward does beside its activations (guards, statistics, further arguments, second names) changes no row."""

import copy
import math
from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import apical
from apical.errors import ConversionError


class Network(nn.Module):
    """One hidden layer with a ReLU; each network below reads its values, or writes it, in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.affine, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        raise NotImplementedError


class Guarded(Network):
    def forward(self, x: Tensor) -> Any:
        h = torch.relu(self.affine(x))
        if h.abs().max() > 1e9:
            raise ValueError
        return self.last(h)


class GuardedInALoop(Network):
    def forward(self, x: Tensor) -> Any:
        steps = 0
        while steps < int(x.sum() < 1e9):
            h = torch.relu(self.affine(x))
            if h.abs().max() > 1e9:
                raise ValueError
            steps += 1
        return self.last(h)


class Halved(Network):
    def forward(self, x: Tensor) -> Any:
        h = torch.relu(self.affine(x))
        while h.abs().max() > 1e9:
            h = h / 2
        return self.last(h)


class Measured(Network):
    def forward(self, x: Tensor) -> Any:
        h = torch.relu(self.affine(x))
        self.size = h.abs().mean().item()
        return self.last(h)


class Penalised(Network):
    def forward(self, x: Tensor) -> Any:
        h = torch.relu(self.affine(x))
        return self.last(h), h.abs().sum(-1).mean()


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("kind", [Guarded, GuardedInALoop, Halved, Measured, Penalised])
def test_what_only_looks_at_an_activation_is_no_part_of_it(kind: type[Network], shown: bool) -> None:
    model, x = kind(), torch.randn(3, 4)
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert [(row.kind, row.converted) for row in report.rows if row.kind != "item"] == [("relu", True)]
    after = model(x)
    after = after[0] if isinstance(after, tuple) else after
    assert torch.allclose(after, model.last(apical.ADA()(model.affine(x))), atol=1e-6)


class Shrinking(Network):
    def forward(self, x: Tensor) -> Any:
        while x.abs().max() > 0.5:
            x = self.affine(x) * 0.1
            x = torch.where(x > 0, x, 0.1 * x)
        return self.last(x)


class Unrolled(Network):
    def forward(self, x: Tensor) -> Any:
        h = self.affine(x)
        for _ in range(2):
            h = torch.where(h > 0, h, 0.1 * h)
        return self.last(h)


@pytest.mark.parametrize(("kind", "rows"), [(Shrinking, 1), (Unrolled, 2)])
def test_a_loop_with_inputs_has_the_rows_that_it_has_without(kind: type[Network], rows: int) -> None:
    x = torch.randn(3, 4)
    for inputs in (None, x):
        model = kind()
        before = model(x)
        report = apical.convert_(model, "leaky_relu(leak=0.1)", example_inputs=inputs)
        assert [(row.kind, row.converted) for row in report.rows] == [("leaky_relu", True)] * rows
        assert torch.allclose(model(x), before, atol=1e-6)


def test_the_second_of_two_in_a_row_did_run() -> None:
    report = apical.convert_(Unrolled(), "pynada", example_inputs=torch.randn(3, 4))
    assert [row.reason for row in report.kept] == ["it is fed by where, not by an affine layer"]


def test_a_formula_in_a_class_without_source_is_one_row() -> None:
    scope: dict[str, Any] = {"Network": Network, "torch": torch}
    exec(
        "class Hidden(Network):\n"
        "    def forward(self, x):\n"
        "        h = self.affine(x)\n"
        "        return self.last(h * torch.sigmoid(h))\n",
        scope,
    )
    report = apical.convert_(scope["Hidden"](), "ada", example_inputs=torch.randn(3, 4))
    assert str(report).startswith("1 of 1 activation converted")


class Repeated(Network):
    def forward(self, x: Tensor) -> Any:
        def act(t: Tensor) -> Tensor:
            return F.relu(t)

        if x.isnan().any():
            return x
        return act(self.last(act(self.affine(x))))


def test_one_place_that_two_layers_feed_is_not_wired_to_the_first() -> None:
    with pytest.raises(ConversionError, match="several layers feed it, one after another"):
        apical.convert_(Repeated(), "pynada", example_inputs=torch.randn(3, 4))


class Steep(Network):
    def forward(self, x: Tensor) -> Any:
        h = self.affine(x)
        return self.last(h * torch.sigmoid(1.7 * h))


def steep(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.7 * x)


class SteepFunction(Network):
    def forward(self, x: Tensor) -> Any:
        return x if x.isnan().any() else self.last(steep(self.affine(x)))


class SteepByHand(Network):
    def forward(self, x: Tensor) -> Any:
        h = self.affine(x)
        return self.last(h / (1 + torch.exp(-1.7 * h)))


@pytest.mark.parametrize("kind", [Steep, SteepFunction, SteepByHand])
def test_a_formula_that_rectifies_is_converted_as_a_module_would_be(kind: type[Network]) -> None:
    assert len(apical.convert_(kind(), "ada").converted) == 1


class Positive(Network):
    def forward(self, x: Tensor) -> Any:
        spread = torch.log(1 + torch.exp(2 * self.last(x))) / 2
        chance = torch.sigmoid(self.affine(x))
        return F.relu(self.affine(x)), spread, -((1 - chance) ** 2 * torch.log(chance + 1e-6)).mean()


def test_a_positive_output_and_a_loss_are_no_hidden_activations() -> None:
    report = apical.convert_(Positive(), "ada")
    assert [row.kind for row in report.converted] == ["relu"]


def test_a_gate_that_is_a_part_is_not_offered() -> None:
    with pytest.raises(ConversionError) as error:
        apical.convert_(Steep(), "ada", kinds=["sigmoid"])
    assert "was found by itself (sigmoid is a part of formula), but 1 formula" in str(error.value)
    assert "kinds=['formula']" in str(error.value)


class Slope(nn.Module):
    def forward(self, x: Tensor, slope: float = 0.1, mask: Tensor | None = None) -> Tensor:
        y = torch.where(x > 0, x, slope * x)
        return y if mask is None else y * mask


class Further(Network):
    """Calls its activation with more than its input, in a forward that is traced or is not."""

    def __init__(self, how: str, decides: bool) -> None:
        super().__init__()
        self.how, self.decides, self.steps, self.set = how, decides, 0, 0.3
        self.slope = nn.Parameter(torch.tensor(0.3))
        self.act: Any = F.leaky_relu if how == "function" else F.relu if how == "in place" else Slope()
        self.acts = nn.ModuleList([Slope()])

    def forward(self, x: Tensor) -> Any:
        h = self.affine(x)
        if self.decides and h.isnan().any():
            return x
        if self.how == "position":
            y = self.act(h, 0.3)
        elif self.how == "function":
            y = self.act(input=h, negative_slope=0.3)
        elif self.how == "attribute":
            y = self.act(h, slope=self.set)
        elif self.how == "parameter":
            y = self.act(h, self.slope)
        elif self.how == "in place":
            y = self.act(h, inplace=True) + h
        elif self.how == "twice":
            y = self.act(self.act(h, 0.3))
        elif self.how == "mask":
            y = self.act(h, mask=(x > 0).float())
        else:
            for act in self.acts:
                y = act(h, 0.3)
        return self.last(y)


WAYS = ("position", "function", "attribute", "parameter", "in place", "twice", "listed")


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("how", WAYS)
def test_an_activation_is_converted_whatever_numbers_it_takes_beside_its_input(
    how: str, decides: bool, shown: bool
) -> None:
    model, x = Further(how, decides), torch.randn(3, 4)
    before, ada = model(x), apical.ADA()
    named = "acts.0" if how == "listed" else "act"
    chosen: Any = {"filter_fn": lambda name, module: name == named, "example_inputs": x if shown else None}
    report = apical.convert_(model, "ada", **chosen)
    assert {row.name.partition(" ")[0] for row in report.converted} == {named}
    h = ada(model.affine(x))
    expected = model.last({"in place": 2 * h, "twice": ada(h)}.get(how, h))
    assert torch.allclose(model(x), expected, atol=1e-6)
    report.undo()
    assert torch.equal(model(x), before)


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("decides", [False, True])
def test_an_activation_that_takes_data_beside_its_input_stays(decides: bool, shown: bool) -> None:
    model, x = Further("mask", decides), torch.randn(3, 4)
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    (row,) = (row for row in report.kept if row.name == "act")
    assert "called with other data beside its input" in row.reason
    assert "make it a module" not in row.reason  # it is one


@pytest.mark.parametrize("decides", [False, True])
def test_the_numbers_beside_the_input_decide_what_keeps_the_function(decides: bool) -> None:
    model, x = Further("position", decides), torch.randn(3, 4)
    before = model(x)
    chosen: Any = {"filter_fn": lambda name, module: name == "act", "keep_function": True, "example_inputs": x}
    with pytest.raises(ConversionError, match=r"act is leaky_relu\(leak=0.3\), but"):
        apical.convert_(model, "pyramidal(basal=leaky_relu(leak=0.1),apical=ada)", **chosen)
    apical.convert_(model, "pyramidal(basal=leaky_relu(leak=0.3),apical=ada)", **chosen)
    assert torch.allclose(model(x), before, atol=1e-6)


class SecondName(Network):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.also, self.body = self.act, nn.Sequential(self.affine, self.act)

    def forward(self, x: Tensor) -> Any:
        return x if x.isnan().any() else self.last(self.body(x))


@pytest.mark.parametrize("shown", [False, True])
def test_a_name_that_no_forward_reads_has_no_row(shown: bool) -> None:
    model, x = SecondName(), torch.randn(3, 4)
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert [(row.name, row.converted) for row in report.rows] == [("body.1", True)]
    assert model.act is model.also is model.body[1]
    assert isinstance(model.act, apical.ADA)


class Largest(Network):
    def forward(self, x: Tensor) -> Any:
        h = F.relu(self.affine(x))
        return self.last(h) * max(0.0, h.mean()) + max(len(h), 1) * min(h.shape)


@pytest.mark.parametrize("shown", [False, True])
def test_what_python_picks_is_listed(shown: bool) -> None:
    report = apical.convert_(Largest(), "ada", example_inputs=torch.randn(3, 4) if shown else None)
    assert [(row.name, row.asked) for row in report.kept] == [("max", False)]
    assert report.kept[0].reason.startswith("a value leaves torch by max() (line ")


class Buffered(Network):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("root", torch.tensor(math.sqrt(2.0)))
        self.beta, self.slopes = nn.Parameter(torch.full((4,), 1.5)), nn.Parameter(torch.full((4,), 0.2))

    def forward(self, x: Tensor) -> Any:
        h = self.affine(x)
        if h.isnan().any():
            return x
        h = h * 0.5 * (1.0 + torch.erf(h / self.root))
        h = self.affine(h)
        h = F.prelu(h, self.slopes)
        h = self.affine(h)
        return self.last(h * torch.sigmoid(self.beta * h))


@pytest.mark.parametrize("shown", [False, True])
def test_weights_in_an_expression_do_not_hide_it(shown: bool) -> None:
    model, x = Buffered(), torch.randn(3, 4)
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert [(row.kind, row.converted) for row in report.rows] == [("gelu", True), ("prelu", True), ("formula", True)]
    ada, h = apical.ADA(), x
    for _ in range(3):
        h = ada(model.affine(h))
    assert torch.allclose(model(x), model.last(h), atol=1e-6)


def test_what_is_learned_keeps_no_function() -> None:
    with pytest.raises(ConversionError, match=r"prelu is prelu \(learned\), but"):
        apical.convert_(
            Buffered(), "pyramidal(basal=leaky_relu(leak=0.2),apical=ada)", kinds=["prelu"], keep_function=True,
            example_inputs=torch.randn(3, 4),
        )  # fmt: skip


class Residual(Network):
    def forward(self, x: Tensor) -> Any:
        return self.last(torch.relu(self.affine(x) + x))


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_pyramidal_network_is_converted_already(unit: str) -> None:
    model = Residual()
    apical.convert_(model, "pynada")
    with pytest.raises(ConversionError, match="every activation of the model is apical's already: build it anew"):
        apical.convert_(model, unit)


def test_two_activations_of_one_kind_are_told_apart() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(approximate="tanh"))
    with pytest.raises(ConversionError, match=r"1 is gelu\(approximate=tanh\), but the basal .* is 'gelu'"):
        apical.convert_(model, "pyramidal(basal=gelu,apical=ada)", keep_function=True)


class Later(Network):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Any:
        h = self.act(self.affine(x))
        if h.sum() > 1e9:
            return self.act(self.affine(h))
        return h


def test_a_call_that_did_not_run_has_a_row_and_keeps_its_activation() -> None:
    x = torch.randn(3, 4)
    model, fresh = Later(), Later()
    report = apical.convert_(model, "pynada", example_inputs=x)
    assert [(row.name, row.reason) for row in report.kept] == [("act (call 2)", "it did not run on example_inputs")]
    assert bool(model(1e11 * x).isfinite().all())
    apical.convert.load(fresh, report.record)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), model(x))


def test_one_value_for_each_channel_of_no_layer_names_the_call_that_works() -> None:
    with pytest.raises(ConversionError) as error:
        apical.convert_(nn.Sequential(nn.Flatten(), nn.ReLU()), "ada(alpha=learn,scope=channel)")
    assert str(error.value).endswith("convert_(model, 'ada(alpha=learn,scope=layer)')")


class Given(nn.Module):
    """An activation whose slope its caller gives, which calls of one argument cannot ask."""

    def __init__(self, decides: bool) -> None:
        super().__init__()
        self.decides = decides

    def forward(self, x: Tensor, slope: float) -> Tensor:
        if self.decides and x.isnan().any():
            return x
        return torch.where(x > 0, x, slope * x)


class Numbers(Network):
    """Formulas with numbers that are arguments: of a module, of a method or of the forward itself."""

    def __init__(self, how: str, decides: bool) -> None:
        super().__init__()
        self.how, self.decides = how, decides
        if how in ("module", "varying"):
            self.act = Given(decides)

    def sloped(self, x: Tensor, slope: float) -> Tensor:
        return torch.where(x > 0, x, slope * x)

    def forward(self, x: Tensor, beta: float = 1.7, low: float = 0.0) -> Any:
        h = self.affine(x)
        if self.decides and h.isnan().any():
            return x
        if self.how == "module":
            return self.last(self.act(h, 0.3))
        if self.how == "varying":
            return self.act(self.last(self.act(h, 0.3)), slope=0.2)
        if self.how == "method":
            return self.last(self.sloped(h, 0.3))
        if self.how == "clamp":
            return self.last(h.clamp(min=low))
        return self.last(h * torch.sigmoid(beta * h))


KINDS = {"module": "leaky_relu", "varying": "leaky_relu", "method": "leaky_relu", "clamp": "relu", "default": "formula"}


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("how", KINDS)
def test_a_number_that_is_an_argument_is_a_part_of_the_activation(how: str, decides: bool, shown: bool) -> None:
    model, x, ada = Numbers(how, decides), torch.randn(3, 4), apical.ADA()
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert [(row.kind, row.converted) for row in report.rows if row.asked] == [(KINDS[how], True)]
    expected = model.last(ada(model.affine(x)))
    assert torch.allclose(model(x), ada(expected) if how == "varying" else expected, atol=1e-6)


def test_a_number_that_varies_keeps_no_function() -> None:
    with pytest.raises(
        ConversionError, match=r"keep_function=True is impossible: act\.leaky_relu is leaky_relu \(written"
    ):
        apical.convert_(Numbers("varying", decides=False), "leaky_relu(leak=0.3)", keep_function=True)


class Unused(Network):
    def __init__(self) -> None:
        super().__init__()
        self.gated = False

    def gate(self, x: Tensor) -> Tensor:
        return F.gelu(x) if x.isfinite().all() else x

    def forward(self, x: Tensor) -> Any:
        h = F.relu(self.affine(x))
        if h.isnan().any():
            return x
        return self.last(self.gate(h) if self.gated else h)


def test_a_method_that_no_call_reaches_has_no_row() -> None:
    report = apical.convert_(Unused(), "ada")
    assert [(row.kind, row.converted) for row in report.rows] == [("relu", True)]


def buckets(position: Tensor) -> Tensor:
    return -torch.min(position, torch.zeros_like(position))


class Positions(Network):
    def forward(self, x: Tensor) -> Any:
        h = F.relu(self.affine(x))
        if h.isnan().any():
            return x
        steps = torch.arange(3)
        return self.last(h) + buckets(steps[None] - steps[:, None]).sum(-1, keepdim=True)


@pytest.mark.parametrize("shown", [False, True])
def test_a_bound_of_positions_is_no_activation(shown: bool) -> None:
    report = apical.convert_(Positions(), "ada", example_inputs=torch.randn(3, 4) if shown else None)
    assert [(row.kind, row.converted) for row in report.rows if row.asked] == [("relu", True)]


class Ran(TorchFunctionMode):
    """The activations of torch that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names |= {func.__name__} & {"relu", "gelu", "silu", "sigmoid"}
        return func(*args, **(kwargs or {}))


class OfProperty(Network):
    """A property gives the activation, in a forward without a graph."""

    function: Any
    name, smooth = "gelu", True

    def forward(self, x: Tensor) -> Any:
        h = self.affine(x)
        return self.last(self.function(h) if h.sum() < 1e9 else h)


class Returned(OfProperty):
    @property
    def function(self) -> Any:
        """What it applies."""
        return F.gelu


class ReturnedByName(OfProperty):
    @property
    def function(self) -> Any:
        return getattr(F, self.name)


class ReturnedByAttribute(OfProperty):
    @property
    def function(self) -> Any:
        if self.smooth:
            return F.gelu
        return F.relu


class ReturnedOnce(OfProperty):
    @cached_property
    def function(self) -> Any:
        return F.gelu


class ReturnedByMethod(OfProperty):
    @property
    def function(self) -> Any:
        return self.made()

    def made(self) -> Any:
        return F.gelu


class ReturnedInside(OfProperty):
    @property
    def function(self) -> Any:
        return lambda x: x * torch.sigmoid(x)


class Computed(OfProperty):
    def forward(self, x: Tensor) -> Any:
        self.hidden = self.affine(x)
        return self.last(self.activated) if self.hidden.sum() < 1e9 else x

    @property
    def activated(self) -> Tensor:
        return F.gelu(self.hidden)


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize(
    "kind",
    [Returned, ReturnedByName, ReturnedByAttribute, ReturnedByMethod, ReturnedInside, Computed],
)
def test_what_a_property_gives_is_converted(kind: type[Network], unit: str, shown: bool) -> None:
    model, x = kind().eval(), torch.randn(3, 4)
    before = set(vars(model))
    if unit == "pynada" and not shown:
        with pytest.raises(ConversionError, match="example_inputs"):
            apical.convert_(model, unit)
        assert set(vars(model)) == before
        return
    report = apical.convert_(model, unit, example_inputs=x if shown else None)
    assert [row.converted for row in report.rows] == [True]
    with Ran() as ran:
        model(x)
    assert ran.names == ({"relu"} if unit == "pynada" else set())


class ReturnedByMode(OfProperty):
    @property
    def function(self) -> Any:
        return F.relu if self.training else F.gelu


class ReturnedInTurn(OfProperty):
    @property
    def function(self) -> Any:
        self.name = "relu" if self.name == "gelu" else "gelu"
        return F.relu if self.name == "relu" else F.gelu


class ComputedOnce(Computed):
    @cached_property
    def activated(self) -> Tensor:  # type: ignore[override]
        return F.gelu(self.hidden)


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("kind", [ReturnedByMode, ReturnedInTurn, ReturnedOnce, ComputedOnce])
def test_what_a_property_gives_at_run_time_is_listed(kind: type[Network], shown: bool) -> None:
    class Before(kind):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.ReLU()

        def forward(self, x: Tensor) -> Any:
            return super().forward(self.first(x))

    model, x = Before(), torch.randn(3, 4)
    before = {*vars(model), "_apical_conversions"}
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    kept = {row.kind for row in report.kept if row.asked}
    assert kept == ({"gelu", "relu"} if kind in (ReturnedByMode, ReturnedInTurn) else {"gelu"})
    assert set(vars(model)) == before
    for mode in (True, False):
        with Ran() as ran:
            model.train(mode)(x)
        assert ran.names <= kept


class Smooth:
    def __call__(self, x: Tensor) -> Tensor:
        return F.silu(x)


class OfObject(Network):
    def __init__(self) -> None:
        super().__init__()
        self.act, self.object = nn.ReLU(), Smooth()

    @property
    def function(self) -> Any:
        return self.object

    def forward(self, x: Tensor) -> Any:
        h = self.act(self.affine(x))
        return self.last(self.function(h) if h.sum() < 1e9 else h)


def applied(function: Any, x: Tensor) -> Any:
    return function(x)


class ObjectPassed(OfObject):
    def forward(self, x: Tensor) -> Any:
        h = self.act(self.affine(x))
        return self.last(applied(self.object, h) if h.sum() < 1e9 else h)


class ObjectsInTurn(OfObject):
    def __init__(self) -> None:
        super().__init__()
        self.objects = [Smooth()]

    def forward(self, x: Tensor) -> Any:
        h = self.act(self.affine(x))
        for each in self.objects if h.sum() < 1e9 else []:
            h = each(h)
        return self.last(h)


class Delegated(OfObject):
    def __getattribute__(self, name: str) -> Any:
        return F.silu if name == "delegated" else super().__getattribute__(name)

    def forward(self, x: Tensor) -> Any:
        h = self.act(self.affine(x))
        return self.last(self.delegated(h) if h.sum() < 1e9 else h)


class InTrainingAlone(OfObject):
    def forward(self, x: Tensor) -> Any:
        h = self.act(self.affine(x))
        return self.last(self.object(h) if h.sum() < 1e9 and self.training else h)


class WithArgument(OfObject):
    """A graph shows its forward without the argument."""

    def forward(self, x: Tensor, smooth: Any = None) -> Any:
        h = self.act(self.affine(x))
        return self.last(h if smooth is None else self.object(h))


@torch.jit.script
def product_then_silu(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.silu(x @ y)


class Scripted(OfObject):
    def forward(self, x: Tensor) -> Any:
        h = self.act(self.affine(x))
        return self.last(product_then_silu(h, self.affine.weight) if h.sum() < 1e9 else h)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (OfObject, "function"),
        (ObjectPassed, "object"),
        (ObjectsInTurn, "each"),
        (Delegated, "delegated"),
        (InTrainingAlone, "object"),
        (WithArgument, "object"),
        (Scripted, "product_then_silu"),
    ],
)
def test_a_call_of_what_is_not_known_is_listed_and_not_counted(kind: type[Network], name: str) -> None:
    runs = kind not in (InTrainingAlone, WithArgument)
    for x in (None, torch.randn(3, 4)):
        report = apical.convert_(kind().eval(), "ada", example_inputs=x)
        unknown = [row for row in report.kept if row.reason.startswith("what it calls is not known")]
        if runs and x is not None:  # the forward showed what it calls
            assert [(row.kind, row.asked) for row in report.kept] == [("silu", True)]
            assert "not read" not in str(report)
            continue
        assert unknown == report.kept
        assert [(row.name, row.asked) for row in unknown] == [(name, False)]
        assert " of forward)" in unknown[0].reason
        assert str(report).startswith("1 of 1 activation converted to ada")
        seen = "example_inputs show whether they compute anything" if x is None else "they computed nothing"
        assert f"calls whose code was not read: 1 {name}; {seen} (report.kept says where)" in str(report)


class Picking(Network):
    """An attribute picks the activation, or the layer, among the module's own."""

    def __init__(self) -> None:
        super().__init__()
        self.acts = nn.ModuleDict({"relu": nn.ReLU(), "gelu": nn.GELU()})
        self.affines = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.name, self.number = "relu", 0

    def forward(self, x: Tensor) -> Any:
        return self.last(self.acts[self.name](self.affine(x)))


class PickingByAName(Picking):
    def forward(self, x: Tensor) -> Any:
        name = self.name
        act = self.acts[name]
        return self.last(act(self.affine(x)))


class PickingByGetattr(Picking):
    def forward(self, x: Tensor) -> Any:
        return self.last(getattr(self.acts, self.name)(self.affine(x)))


class PickingByAProperty(Picking):
    @property
    def act(self) -> Any:
        return self.acts[self.name]

    def forward(self, x: Tensor) -> Any:
        return self.last(self.act(self.affine(x)))


class PickingOnValues(Picking):
    def forward(self, x: Tensor) -> Any:
        h = self.affine(x)
        return self.last(self.acts[self.name](h) if h.sum() < 1e9 else h)


class PickingBesideACall(Picking):
    def forward(self, x: Tensor) -> Any:
        return self.last(self.acts[self.name](self.affine(x))) + F.relu(self.affines[0](x)).sum()


PICKING = [Picking, PickingByAName, PickingByGetattr, PickingByAProperty, PickingOnValues, PickingBesideACall]


@pytest.mark.parametrize("kind", PICKING)
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_forward_that_picks_by_an_attribute_still_does(kind: type[Picking], unit: str) -> None:
    model, x = kind().eval(), torch.randn(3, 4)
    original = copy.deepcopy(model)
    report = apical.convert_(model, unit, example_inputs=x)
    kept = {row.name for row in report.kept}
    assert kept == (set() if unit == "ada" else {"acts.gelu"})
    assert "acts.relu" in {row.name for row in report.converted}
    converted = model(x)
    model.name = original.name = "gelu"
    with Ran() as ran:
        model(x)
    assert ("gelu" in ran.names) == ("acts.gelu" in kept)
    if unit == "pynada" and kind is not PickingBesideACall:
        assert torch.equal(model(x), original(x))  # the layer before what stayed is as it was
    model.name = "relu"
    assert torch.equal(model(x), converted)


class PickingLayers(Picking):
    def forward(self, x: Tensor) -> Any:
        return self.last(self.acts["relu"](self.affines[self.number](x)))


def test_a_neuron_refuses_another_layer_than_its_own() -> None:
    model, x = PickingLayers(), torch.randn(3, 4)
    report = apical.convert_(model, "pynada")
    assert [row.name for row in report.converted] == ["acts.relu"]
    model(x)
    model.number = 1
    with pytest.raises(RuntimeError, match="not the layer before it"):
        model(x)


class Tapped(nn.Module):
    """Collects what activations make, which it knows by their class."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.GELU())

    def forward(self, x: Tensor) -> Any:
        taps = []
        for layer in self.layers:
            x = layer(x)
            if isinstance(layer, (nn.ReLU, nn.Sequential)):
                taps.append(x)
        return x, taps


class TappedByType(Tapped):
    def forward(self, x: Tensor) -> Any:
        taps = []
        for layer in self.layers:
            x = layer(x)
            if type(layer) is nn.ReLU:
                taps.append(x)
        return x, taps


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("kind", [Tapped, TappedByType])
def test_an_activation_that_forward_knows_by_its_class_stays(kind: type[Tapped], unit: str) -> None:
    model = kind()
    report = apical.convert_(model, unit)
    (row,) = report.kept
    assert row.name == "layers.1"
    assert row.reason.startswith(f"the forward of {kind.__name__} asks whether it is a ReLU")
    assert [row.name for row in report.converted] == ["layers.3"]
    assert len(model(torch.randn(3, 4))[1]) == 1


class ReadsSlope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.act, self.other = nn.LeakyReLU(0.2), nn.LeakyReLU(0.2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.other(self.two(self.act(self.one(x))))
        return self.last(h) * self.act.negative_slope


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_an_activation_whose_attribute_forward_reads_stays(unit: str) -> None:
    model = ReadsSlope()
    report = apical.convert_(model, unit)
    assert [(row.name, row.reason) for row in report.kept] == [
        ("act", "the forward of ReadsSlope reads its negative_slope")
    ]
    assert model(torch.randn(3, 4)).shape == (3, 2)
