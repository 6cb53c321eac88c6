"""Hand-written activations in random networks: what the report says is what runs, and nothing is left unlisted.

Each way of writing one calls a function of torch that no other calls, so that a forward shows which of them run.
"""

import contextlib
import copy
import math
import pickle
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

import apical
from apical.errors import ConversionError

WIDTH = 4


def awake(rows: Any) -> list[Any]:
    """Rows without those of the ways of writing an activation that the forward could take and does not."""
    return [row for row in rows if "as the model is set" not in row.reason]


class Formula(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.full((1,), 1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.beta * x)


class Wrapper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.inner(x + 3) / 6


def mish(x: Tensor) -> Tensor:
    return x * (1 - 2 / (1 + F.softplus(x).exp().square()))  # tanh(y) = 1 - 2 / (1 + exp(2y))


LOOSE = nn.LeakyReLU(0.2)
TABLE = {"hardswish": F.hardswish, "threshold": F.threshold}
LAMBDAS = {True: lambda t: torch.where(t > 0, t, 0.3 * t)}


def hook(module: nn.Module, args: Any, result: Tensor) -> Tensor:
    return F.mish(result)


class Loose(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.cos(x)


class Layer(nn.Module):
    """One affine layer and one activation, written in one of many ways, in one of four forwards."""

    def __init__(self, way: str, forward: str) -> None:
        super().__init__()
        self.way, self.kind_of_forward = way, forward
        self.reached, self.name, self.acts = way in REACHED, "hardswish", [nn.SELU(), Loose()]
        self.affine, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        modules: dict[str, type[nn.Module]] = {"formula": Formula, "learned": Learned, "wrapper": Wrapper}
        if way in modules:
            self.act = modules[way]()
        elif way == "attribute":
            self.act = F.selu  # type: ignore[assignment]
        elif way == "descriptor":
            self.act = Tensor.relu  # type: ignore[assignment]
        elif way == "hook":
            self.affine.register_forward_hook(hook)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.way == "call":
            return torch.selu(super().__call__(*args, **kwargs))
        return super().__call__(*args, **kwargs)

    def reach(self, z: Tensor) -> Tensor:
        """Activations that are no child and no plain call."""
        if self.way == "made":
            return nn.CELU()(z)  # type: ignore[no-any-return]
        if self.way == "named":
            act = nn.CELU()
            return act(z)  # type: ignore[no-any-return]
        if self.way == "global":
            return LOOSE(z)  # type: ignore[no-any-return]
        if self.way == "listed":
            return self.acts[0](z)  # type: ignore[no-any-return]
        if self.way == "loose":
            return self.acts[1](z)  # type: ignore[no-any-return]
        if self.way == "operator":
            return torch.ops.aten.silu(z)  # type: ignore[no-any-return]
        if self.way == "table":
            return TABLE[self.name](z)  # type: ignore[no-any-return]
        if self.way == "getattr":
            return getattr(F, self.name)(z)  # type: ignore[no-any-return]
        if self.way == "condition":
            return (F.gelu if self.reached else F.relu)(z)
        if self.way == "lambda":
            return (lambda t: F.gelu(t))(z)  # noqa: PLC3002, PLW0108 - people do
        if self.way == "comprehension":
            return [torch.clamp_min(t, 0) for t in (z,)][0]  # noqa: RUF015 - a comprehension is what it is about
        if self.way == "picked":
            return (F.relu6 if bool(z.isfinite().all()) else F.relu6)(z)  # noqa: RUF034 - at run time
        if self.way == "several":
            return [f(z) for f in (F.rrelu,) if bool(z.isfinite().all())][0]  # noqa: RUF015
        if self.way == "lambdas":
            return LAMBDAS[bool(z.isfinite().all())](z)
        if self.way == "closure":
            scale = 1.0

            def gated(t: Tensor) -> Tensor:
                return scale * F.softplus(t).tanh() * t

            return gated(z)
        if self.way == "parts":
            return torch.clamp(z, min=0) - 0.1 * F.relu(-z)
        if self.way == "sum":
            positive, negative = torch.clamp(z, min=0), torch.minimum(z, torch.zeros_like(z))
            return positive + 0.1 * negative
        if self.way == "square":
            z = torch.relu(z)
            return z * z
        if self.way == "gelu":
            inner = 0.7978845608 * (z + 0.044715 * z**3)
            return 0.5 * z * (1 + torch.tanh(inner))
        if self.way == "erf":
            return 0.5 * z * (1 + torch.erf(z / math.sqrt(2)))
        if self.way == "statements":
            e = torch.expm1(-z)
            z = z / (2 + e)
        if self.way == "mask":
            z = z.clone()
            z[z < 0] = 0
        return z


class Plain(Layer):
    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(self.affine(x))
        if self.way == "function":
            return F.elu(z)
        if self.way == "method":
            return z.relu_()  # type: ignore[no-any-return]
        if self.way == "helper":
            return mish(z)
        if self.way == "inline":
            return z / (1 + torch.exp(-z))  # type: ignore[no-any-return]
        if self.reached:
            return self.reach(z)
        return self.act(z)  # type: ignore[no-any-return]


class Optional(Layer):
    """Takes an argument that a graph would fix."""

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        z = self.affine(x)
        if shift is not None:
            z = z + shift
        if self.way == "function":
            z = F.elu(z)
        elif self.way == "method":
            z = z.relu_()
        elif self.way == "helper":
            z = mish(z)
        elif self.way == "inline":
            z = z / (1 + torch.exp(-z))
        elif self.reached:
            z = self.reach(z)
        else:
            z = self.act(z)
        return z + x


class Branching(Layer):
    """Cannot be traced: it looks at values."""

    def forward(self, x: Tensor) -> Tensor:
        z = self.affine(x)
        if z.isnan().any():
            return x
        if self.way == "function":
            z = F.elu(z)
        elif self.way == "method":
            z.relu_()
        elif self.way == "helper":
            z = mish(z)
        elif self.way == "inline":
            z = z / (1 + torch.exp(-z))
        elif self.reached:
            z = self.reach(z)
        else:
            z = self.act(z)
        return z  # type: ignore[no-any-return]


class Split(Layer):
    """Calls its activation in a method of its own, after a sum."""

    def body(self, z: Tensor) -> Tensor:
        if self.way == "function":
            return F.elu(z)
        if self.way == "method":
            return z.relu_()
        if self.way == "helper":
            return mish(z)
        if self.way == "inline":
            return z / (1 + torch.exp(-z))
        if self.reached:
            return self.reach(z)
        return self.act(z)  # type: ignore[no-any-return]

    def forward(self, x: Tensor, scale: bool = False) -> Tensor:
        y = self.body(self.affine(x) + x)
        return 2 * y if scale else y


class Stack(nn.Module):
    """Layers in a loop, in a forward that cannot be traced either."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) if bool((x == x).all()) else x
        return x


KINDS = {
    "formula": "gelu", "learned": "Learned", "wrapper": "hardswish", "attribute": "selu", "descriptor": "relu",
    "function": "elu", "method": "relu", "helper": "mish", "inline": "silu", "made": "celu", "named": "celu",
    "global": "leaky_relu", "listed": "selu", "loose": "Loose", "operator": "silu", "table": "hardswish",
    "getattr": "hardswish", "condition": "gelu", "lambda": "gelu", "comprehension": "relu", "call": "selu",
    "picked": "relu6", "several": "rrelu", "lambdas": "leaky_relu", "statements": "silu", "mask": "relu",
    "hook": "mish", "closure": "mish", "parts": "leaky_relu", "sum": "leaky_relu", "square": "formula",
    "gelu": "gelu", "erf": "gelu",
}  # fmt: skip
WAYS = tuple(KINDS)
REACHED = WAYS[9:]
SPREAD = ("statements", "sum", "square", "gelu")
"""What several statements compute: converted as a whole where a graph shows it, and else listed and left whole."""
LEFT = ("picked", "several", "lambdas", "mask", "hook", *SPREAD)
"""What is picked at run time or called by a hook is listed and left too."""

CALLS: dict[Any, str] = {
    torch.tanh: "gelu", torch.sigmoid: "Learned", F.hardtanh: "hardswish", F.selu: "selu", F.elu: "elu",
    Tensor.relu_: "relu", F.softplus: "mish", torch.exp: "silu", F.celu: "celu", F.leaky_relu: "leaky_relu",
    torch.cos: "Loose", torch.ops.aten.silu: "silu", F.hardswish: "hardswish", F.gelu: "gelu",
    torch.clamp_min: "relu", F.relu6: "relu6", F.rrelu: "rrelu", torch.where: "leaky_relu", torch.expm1: "silu",
    Tensor.__setitem__: "relu", F.mish: "mish", torch.selu: "selu", Tensor.relu: "relu", torch.clamp: "leaky_relu",
    torch.relu: "formula", torch.erf: "gelu",
}  # fmt: skip
FORWARDS: tuple[type[Layer], ...] = (Plain, Optional, Branching, Split)

PYRAMIDAL = "pyramidal(basal=rbf,apical=ada)"
"""Its basal activation is none of theirs."""


class Watch(TorchFunctionMode):
    """Which of the hand-written activations run, outside of apical's own modules."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.stack: list[nn.Module] = []
        for module in model.modules():
            module.register_forward_pre_hook(lambda module, args: self.stack.append(module))
            module.register_forward_hook(lambda module, args, result: self.stack.pop() and None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ours = any(type(module).__module__.startswith("apical.") for module in self.stack)
        if func in CALLS and not ours:
            self.seen[CALLS[func]] += 1
        return func(*args, **(kwargs or {}))


def running(model: nn.Module, x: Tensor) -> Counter[str]:
    model = copy.deepcopy(model)
    with torch.no_grad(), Watch(model) as watch:
        model(x)
    return watch.seen


def left_ways(model: nn.Module) -> int:
    return sum(layer.way in LEFT for layer in model.modules() if isinstance(layer, Layer))


layers = st.tuples(st.sampled_from(WAYS), st.sampled_from(FORWARDS)).map(lambda pair: pair[1](pair[0], ""))
networks = st.recursive(
    st.lists(layers, min_size=1, max_size=4).map(lambda parts: nn.Sequential(*parts)),
    lambda inner: st.lists(st.one_of(layers, inner), min_size=1, max_size=3).flatmap(
        lambda parts: st.sampled_from([nn.Sequential(*parts), Stack(parts)])
    ),
    max_leaves=3,
)


@settings(deadline=None, max_examples=60)
@given(model=networks, unit=st.sampled_from(["ada", PYRAMIDAL]), shown=st.booleans())
def test_the_report_is_what_runs(model: nn.Module, unit: str, shown: bool) -> None:
    x = torch.randn(3, WIDTH)
    model.eval()
    before, expected = running(model, x), model(x)
    planted = Counter(KINDS[layer.way] for layer in model.modules() if isinstance(layer, Layer))
    assert before == planted
    try:
        report = apical.convert_(model, unit, example_inputs=x if shown else None)
    except ConversionError as error:
        sentence = str(error)
    else:
        sentence = ""
    if sentence:
        assert ("example_inputs=..." in sentence and not shown) or left_ways(model) == planted.total()
        assert running(model, x) == before
        return
    left = running(model, x)
    assert left == Counter(row.kind for row in awake(report.kept) if "a part of" not in row.reason)
    assert before - left == Counter(row.kind for row in report.converted)
    assert all(row.reason for row in report.kept)
    if unit == "ada" or shown:
        assert sum(left.values()) <= left_ways(model)
    after = model(x)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), after)
    report.undo()
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("way", [way for way in WAYS if way not in (*LEFT, "call")])
@pytest.mark.parametrize("forward", FORWARDS)
def test_every_way_in_every_forward(way: str, forward: type[Layer]) -> None:
    model, x = nn.Sequential(forward(way, ""), nn.Linear(WIDTH, 2)), torch.randn(3, WIDTH)
    report = apical.convert_(model, "ada")
    assert [row.kind for row in report.converted] == [KINDS[way]]
    layer, ada = model[0], apical.ADA()
    inner = layer.affine(x) + (x if forward is Split else 0)
    inner = layer.norm(inner) if forward is Plain else inner
    expected = ada(inner) + (x if forward is Optional else 0)
    assert torch.allclose(model(x), model[1](expected), atol=1e-6)
    if forward is Optional:
        assert torch.allclose(layer(x, torch.ones(WIDTH)), ada(inner + 1) + x, atol=1e-6)
    if forward is Split:
        assert torch.allclose(layer(x, scale=True), 2 * expected, atol=1e-6)


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("way", ["lambdas", "mask", "hook", "call", *SPREAD])
@pytest.mark.parametrize("forward", FORWARDS)
def test_what_stays_is_listed_beside_what_does_not(way: str, forward: type[Layer], shown: bool) -> None:
    model, x = nn.Sequential(forward(way, ""), nn.Linear(WIDTH, WIDTH), nn.GELU()), torch.randn(3, WIDTH)
    layer, stays = model[0], way in LEFT and not (way in SPREAD and forward is Plain)
    before = layer(x)
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    rows = [row for row in awake(report.kept if stays else report.converted) if "a part of" not in row.reason]
    assert [row.kind for row in rows if row.name != "2"] == [KINDS[way]]
    assert str(report).startswith("1 of 2" if stays else "2 of 2")
    assert sum(running(model, x).values()) == stays
    if stays:
        assert torch.equal(layer(x), before)
    elif forward is Plain:
        assert torch.allclose(layer(x), apical.ADA()(layer.norm(layer.affine(x))), atol=1e-6)


@pytest.mark.parametrize("way", [way for way in SPREAD if KINDS[way] != "formula"])
@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("kinds", [["formula"], ["tanh", "relu", "softplus"]])
def test_no_choice_of_kinds_takes_a_part_out_of_a_formula(way: str, forward: type[Layer], kinds: list[str]) -> None:
    model, x = nn.Sequential(forward(way, ""), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Softplus()), torch.randn(3, WIDTH)
    layer, before = model[0], model[0](x)
    with contextlib.suppress(ConversionError):
        apical.convert_(model, "ada", kinds=kinds)
    assert torch.equal(layer(x), before)


class Positive(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return F.relu(weight)


class Weighted(nn.Module):
    """Functions of weights, in a parametrization and in the forward: no activations."""

    def __init__(self, *, blind: bool) -> None:
        super().__init__()
        self.affine, self.scale, self.blind = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.ones(WIDTH)), blind
        parametrize.register_parametrization(self.affine, "weight", Positive())

    def forward(self, x: Tensor) -> Tensor:
        if self.blind and bool(x.isnan().any()):
            return x
        return F.relu(self.scale) * F.gelu(self.affine(x))


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("blind", [False, True])
def test_functions_of_weights_are_no_activations(unit: str, blind: bool) -> None:
    model, x = Weighted(blind=blind), torch.randn(3, WIDTH)
    report = apical.convert_(model, unit, example_inputs=x)
    assert [(row.kind, row.converted) for row in report.rows] == [("gelu", True)]
    assert isinstance(model.affine.parametrizations.weight[0], Positive)  # type: ignore[union-attr, index]


class Steps(nn.Module):
    """A formula between two layers, and an activation that is converted."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.first, self.second, self.gate = way, nn.Linear(4, 4), nn.Linear(4, 4), nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.second(self.middle(self.first(x))))

    def middle(self, h: Tensor) -> Tensor:
        if self.way == "gate":
            return h * self.gate(h)  # type: ignore[no-any-return]
        if self.way == "constant":
            m = torch.heaviside(h, torch.tensor(0.0))
            return m * h
        if self.way == "cast":
            m = (h > 0).to(h.dtype)
            return h * m
        if self.way == "new":
            out = torch.zeros(h.shape)
            out[h > 0] = h[h > 0]
            return out
        if self.way == "leaky":
            h[h < 0] *= 0.1
            return h
        if self.way == "sine":
            return torch.sin(30 * h)
        if self.way == "norm":
            return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return torch.softmax(h.clamp(min=-1e4), -1) * F.relu(self.second.weight).sum()


STEPS: dict[str, tuple[list[str], list[str]]] = {
    "gate": (["silu"], []), "constant": (["relu"], []), "cast": (["relu"], []), "new": ([], ["relu"]),
    "leaky": ([], ["leaky_relu"]), "sine": ([], ["sin"]), "norm": ([], []), "other": ([], []),
}  # fmt: skip
"""What is converted beside the GELU, and what is kept: values that are assigned in place stay."""


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("way", list(STEPS))
def test_steps_are_followed_and_arithmetic_is_not_an_activation(way: str, shown: bool) -> None:
    model, x = Steps(way), torch.randn(3, 4)
    before = model(x)
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    converted, kept = STEPS[way]
    assert [row.kind for row in awake(report.kept) if row.before != "Sigmoid"] == kept
    assert sorted(row.kind for row in report.converted) == sorted([*converted, "gelu"])
    if converted:
        inner = apical.ADA()(model.first(x))
        assert torch.allclose(model(x), apical.ADA()(model.second(inner)), atol=1e-6)
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    report.undo()
    assert torch.equal(model(x), before)


def test_a_forward_inside_vmap_is_observed() -> None:
    class Mapped(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.vmap(lambda row: F.gelu(F.linear(row, self.weight)))(x)  # type: ignore[no-any-return]

    report = apical.convert_(Mapped(4, 4), "ada", example_inputs=torch.randn(3, 4))
    assert str(report).startswith("1 of 1 activation converted")


def test_a_forward_set_on_the_line_of_another_call_is_read() -> None:
    class Patched(nn.Module):
        def __init__(self) -> None: super().__init__(); a = nn.Linear(4, 4); o = a.forward; a.forward = lambda x: F.silu(o(x)); self.a = a  # fmt: skip  # noqa: E501, E702

        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(self.a(x))

    report = apical.convert_(Patched(), "ada")
    assert [(row.kind, row.reason) for row in report.kept] == [("silu", "its forward is set on the instance")]


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_function_given_to_torchs_transformer_layer_is_converted(unit: str) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, activation=lambda z: z * torch.sigmoid(z), batch_first=True)
    report = apical.convert_(layer, unit, example_inputs=torch.randn(2, 3, 4))
    assert [(row.name, row.kind, row.converted) for row in report.rows] == [("activation", "silu", True)]


class Object:
    def apply(self, z: Tensor) -> Tensor:
        return F.relu(z)


@torch.jit.script
def scripted(z: Tensor, w: Tensor) -> Tensor:
    return torch.relu(z @ w)


def matmul_then_gelu(z: Tensor, w: Tensor) -> Tensor:
    return F.gelu(z @ w)


def twice(z: Tensor, w: Tensor) -> Tensor:
    return matmul_then_gelu(z, w)


class OutOfReach(nn.Module):
    """What no source shows, beside an activation that is converted."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.act, self.affine, self.object = way, nn.ReLU(), nn.Linear(WIDTH, WIDTH), Object()

    def forward(self, x: Tensor) -> Tensor:
        z = self.act(self.affine(x))
        if z.isnan().any():
            return x
        if self.way == "object":
            return self.object.apply(z)
        if self.way == "string":
            return getattr(z, "relu")()  # type: ignore[no-any-return]  # noqa: B009
        if self.way == "script":
            return scripted(z, self.affine.weight)  # type: ignore[no-any-return]
        if self.way == "outside":
            return twice(z, self.affine.weight)
        return self.affine(z)  # type: ignore[no-any-return]


class Parent(OutOfReach):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2 if bool(x.isfinite().all()) else x


@pytest.mark.parametrize("way", ["object", "string", "script"])
def test_a_forward_shows_what_no_source_does(way: str) -> None:
    model, x = OutOfReach(way), torch.randn(3, WIDTH)
    report = apical.convert_(model, "ada")
    assert "example_inputs show what else runs there" in str(report)
    report.undo()
    report = apical.convert_(model, "ada", example_inputs=x)
    assert str(report).startswith("1 of 2 activations converted to ada")
    assert [(row.kind, row.name) for row in report.kept] == [("relu", "relu")]
    reason = "inside of TorchScript" if way == "script" else "where its forward does not show it: make it a module"
    assert report.kept[0].reason.startswith(f"it is called {reason}")
    assert report.kept[0].inputs == "0% inactive, 0% saturated" or way == "script"


def plain_swish(z: Tensor) -> Tensor:
    return z * torch.sigmoid(z)


def plain_leaky(z: Tensor, slope: float) -> Tensor:
    return torch.relu(z) - slope * torch.relu(-z)


class OfHelpers(nn.Module):
    """The same helpers, by Python or by TorchScript, in a forward without a graph."""

    def __init__(self, swish: Any, leaky: Any) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.helpers = (swish, leaky)

    def forward(self, x: Tensor) -> Tensor:
        h = self.helpers[0](self.a(x))
        h = self.helpers[1](self.b(h), 0.1) if bool(h.isfinite().all()) else h
        return self.c(h)  # type: ignore[no-any-return]


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_helper_of_torchscript_is_one_activation_as_one_of_python_is(unit: str) -> None:
    x, rows = torch.randn(3, WIDTH), []
    for compiled in (lambda helper: helper, torch.jit.script):
        torch.manual_seed(0)
        model = OfHelpers(compiled(plain_swish), compiled(plain_leaky)).eval()
        report = apical.convert_(model, unit, example_inputs=x)
        rows.append([(row.name, row.before, row.after, row.reason, row.inputs) for row in report.rows])
        before = model(x)
        for layer in (model.a, model.b):  # each feeds its own neuron
            layer.weight.data += 1.0
            assert not torch.equal(before, model(x))
            before = model(x)
    assert rows[0] == rows[1]
    assert [row[0] for row in rows[0] if not row[3]] == ["silu", "leaky_relu"]
    assert apical.convert_(OfHelpers(torch.jit.script(plain_swish), torch.jit.script(plain_leaky)), "ada").kept == []


def matmul_then_formula(z: Tensor, w: Tensor) -> Tensor:
    y = z @ w
    return y / (1 + torch.exp(-y))


class Outside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return matmul_then_formula(self.affine(x).relu(), self.affine.weight)


def test_functions_outside_the_class_are_read() -> None:
    model, x = Outside(), torch.randn(3, WIDTH)
    report = apical.convert_(model, "ada")
    assert [row.kind for row in report.converted] == ["relu", "silu"]
    assert report.details == {}
    ada = apical.ADA()
    assert torch.allclose(model(x), ada(ada(model.affine(x)) @ model.affine.weight), atol=1e-6)
    report = apical.convert_(OutOfReach("outside"), "ada")
    assert [row.kind for row in report.kept] == ["gelu"]
    assert "called in matmul_then_gelu, outside its class" in report.kept[0].reason


def layer_then_relu(x: Tensor, layer: nn.Module) -> Tensor:
    return F.relu(layer(x))


def gate_times(x: Tensor) -> Tensor:
    return x * torch.tanh(F.softplus(x))


class GivesItsLayerAway(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return gate_times(self.second(layer_then_relu(x, self.first)))


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_layer_given_to_a_function_still_runs(unit: str, shown: bool) -> None:
    model, x = GivesItsLayerAway(), torch.randn(3, WIDTH)
    report = apical.convert_(model, unit, example_inputs=x if shown else None)
    model(x).sum().backward()
    assert model.first.weight.grad is not None  # type: ignore[union-attr]
    assert len(report.converted) == 2
    assert not report.kept


class TwoActs(nn.Module):
    """One name for a module in one branch, and for a function in the other."""

    def __init__(self) -> None:
        super().__init__()
        self.affine, self.wide = nn.Linear(WIDTH, WIDTH), False

    def forward(self, x: Tensor) -> Tensor:
        z = self.affine(x)
        if bool(z.isnan().any()):
            act = nn.CELU()
        else:

            def act(t: Tensor) -> Tensor:  # type: ignore[no-redef]
                return F.gelu(t)

        return act(z)  # type: ignore[no-any-return]


def test_a_name_with_two_values_stands_for_neither() -> None:
    model, x = TwoActs(), torch.randn(3, WIDTH)
    report = apical.convert_(model, "ada")
    assert [row.kind for row in report.converted] == ["gelu"]
    assert torch.allclose(model(x), apical.ADA()(model.affine(x)))


def test_a_parents_method_is_read() -> None:
    model = Parent("outside")
    report = apical.convert_(model, "ada", example_inputs=torch.randn(3, WIDTH))
    assert [row.kind for row in report.kept] == ["gelu"]
    assert [row.name for row in report.converted] == ["act"]
