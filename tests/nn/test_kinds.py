"""Kinds: what their descriptors say, and that they compute what they are called."""

import copy
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import apical
from apical import Unit, trust
from apical.errors import InvalidArgumentError
from apical.kernels import composite
from apical.nn import Elementwise, Parameter, kinds
from apical.nn.building import build
from apical.nn.kinds import OTHERS, PAPER

X = torch.tensor([-3.3, -1.2, -0.4, 0.3, 0.9, 2.6], dtype=torch.float64)

# kind with settings -> what it computes, written a second time.
FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.clamp_min(0),
    "leaky_relu": lambda x: torch.where(x > 0, x, 0.01 * x),
    "leaky_relu(leak=0.3)": lambda x: torch.where(x > 0, x, 0.3 * x),
    "tanh": lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
    "rbf": lambda x: torch.exp(-x * x),
    "rbf(s=2.5)": lambda x: torch.exp(-x * x / 2.5),
    "swish": lambda x: x / (1 + torch.exp(-x)),
    "swish(beta=0.4)": lambda x: x / (1 + torch.exp(-0.4 * x)),
    "ada": lambda x: torch.where(x > 0, x * torch.exp(-x), 0),
    "ada(alpha=0.3,c=1)": lambda x: torch.where(x > 0, x * torch.exp(1 - 0.3 * x), 0),
    "leaky_ada(leak=0.2)": lambda x: torch.where(x > 0, x * torch.exp(-x), 0.2 * x),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu(approximate=tanh)": lambda x: x * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "mish": lambda x: x * torch.tanh(torch.log(1 + torch.exp(x))),
    "elu": lambda x: torch.where(x > 0, x, torch.exp(x) - 1),
    "elu(alpha=0.5)": lambda x: torch.where(x > 0, x, 0.5 * (torch.exp(x) - 1)),
    "celu(alpha=2)": lambda x: torch.where(x > 0, x, 2 * (torch.exp(x / 2) - 1)),
    "selu": lambda x: 1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (torch.exp(x) - 1)),
    "prelu": lambda x: torch.where(x > 0, x, 0.25 * x),
    "prelu(weight=0.1)": lambda x: torch.where(x > 0, x, 0.1 * x),
    "rrelu(lower=0.2,upper=0.2)": lambda x: torch.where(x > 0, x, 0.2 * x),
    "relu6": lambda x: x.clamp(0, 6),
    "hardtanh": lambda x: x.clamp(-1, 1),
    "hardtanh(min_val=-2,max_val=0.5)": lambda x: x.clamp(-2, 0.5),
    "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,
    "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6,
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "logsigmoid": lambda x: -torch.log(1 + torch.exp(-x)),
    "softplus": lambda x: torch.log(1 + torch.exp(x)),
    "softplus(beta=2,threshold=1)": lambda x: torch.where(2 * x > 1, x, torch.log(1 + torch.exp(2 * x)) / 2),
    "softsign": lambda x: x / (1 + x.abs()),
    "softshrink": lambda x: torch.sign(x) * (x.abs() - 0.5).clamp_min(0),
    "hardshrink(lambd=1)": lambda x: torch.where(x.abs() > 1, x, 0),
    "tanhshrink": lambda x: x - torch.tanh(x),
    "threshold(threshold=0.5,value=-7)": lambda x: torch.where(x > 0.5, x, -7),
    "sign": lambda x: (x > 0).to(x) - (x < 0).to(x) + 0 * x,  # its gradient is 0
    "gcu": lambda x: x * torch.cos(x),
    "gaussian": lambda x: torch.exp(-x * x / 2),
    "gaussian(sigma=0.5)": lambda x: torch.exp(-2 * x * x),
    "wavelet": lambda x: torch.cos(5 * x) * torch.exp(-x * x / 2),
    "wavelet(omega=3,sigma=0.5)": lambda x: torch.cos(3 * x) * torch.exp(-2 * x * x),
    "sine": torch.sin,
    "sine(omega=3)": lambda x: torch.sin(3 * x),
}


STANDARD = [kind for kind in (*PAPER.values(), *OTHERS.values()) if not kind.pyramidal]


def activation(unit: str, channels: int | None = None, dim: int = 1) -> nn.Module:
    return Unit.parse(unit).with_(scope=None).layers().activation(channels, dim=dim).double()


def test_every_standard_kind_has_a_formula_here() -> None:
    assert {text.partition("(")[0] for text in FORMULAS} == {kind.name for kind in STANDARD}


@pytest.mark.parametrize("unit", FORMULAS)
def test_a_kind_computes_its_formula_and_its_derivatives(unit: str) -> None:
    module = activation(unit)
    x = X.clone().requires_grad_()
    expected = FORMULAS[unit](x)
    torch.testing.assert_close(module(x), expected.to(x.dtype), rtol=1e-6, atol=1e-12)
    (slope,) = torch.autograd.grad(module(x).sum(), x)
    (wanted,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(slope, wanted, rtol=1e-6, atol=1e-12)
    assert torch.autograd.gradcheck(module, (x,))


LEARNABLE = [f"{kind.name}({p.name}=learn)" for kind in STANDARD for p in kind.parameters if p.learnable]


@pytest.mark.parametrize("unit", LEARNABLE)
@pytest.mark.parametrize("scope", kinds.SCOPES)
def test_learned_values_have_the_gradients_of_the_formula(unit: str, scope: str) -> None:
    (name,) = Unit.parse(unit).learned
    module = Unit.parse(unit).with_(scope=scope, **{f"{name}_init": 0.7}).layers().activation(3, dim=1).double()
    parameter = dict(module.named_parameters())[name]
    assert parameter.shape == ((3,) if scope == "channel" else (1,))
    x = torch.randn(4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    values = torch.tensor([0.5, 0.7, 1.3], dtype=torch.float64)[: len(parameter)].requires_grad_()
    assert torch.autograd.gradcheck(lambda x, v: torch.func.functional_call(module, {name: v}, (x,)), (x, values))
    fixed = activation(unit.replace("learn", "0.7"))
    torch.testing.assert_close(module(x), fixed(x))


@pytest.mark.parametrize("unit", ["prelu", "sine(omega=learn)", "rbf(s=learn)", "swish"])
def test_a_learned_value_per_channel_meets_its_channel_wherever_that_is(unit: str) -> None:
    for dim, shape in ((1, (5, 3)), (-1, (5, 2, 3)), (-3, (3, 4, 2)), (-3, (5, 3, 4, 2)), (1, (5, 3, 4, 2))):
        module = Unit.parse(unit).with_(scope="channel").layers().activation(3, dim=dim).double()
        with torch.no_grad():
            next(module.parameters()).copy_(torch.tensor([0.5, 1.0, 2.0]))
        x = torch.randn(shape, dtype=torch.float64)
        (name,) = Unit.parse(unit).learned
        for channel, value in enumerate((0.5, 1.0, 2.0)):
            own = activation(f"{Unit.parse(unit).kind}({name}={value})")
            torch.testing.assert_close(module(x).select(dim, channel), own(x.select(dim, channel)))
        with pytest.raises(InvalidArgumentError, match=f"{name} has shape \\(3,\\), but dimension"):
            module(torch.zeros(4, 4, 4, 4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("unit", ["prelu", "sine(omega=learn,scope=channel)", "gcu", "rbf(s=learn)", "gaussian"])
def test_outputs_have_the_dtype_of_inputs(unit: str, dtype: torch.dtype) -> None:
    module = Unit.parse(unit).layers().activation(3, dim=1)
    x = torch.randn(2, 3)
    y = module(x.to(dtype))
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), module(x), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("unit", ["prelu(scope=channel)", "sine(omega=learn)", "gcu", "elu(alpha=0.5)"])
def test_other_activations_compile_export_trace_and_pickle(unit: str) -> None:
    torch.compiler.reset()
    model = Unit.parse(unit).layers().linear(4, 3)
    x = torch.randn(2, 4)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), model(x))
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))
    torch.testing.assert_close(torch.func.vmap(model)(x[None])[0], model(x))
    torch.testing.assert_close(torch.fx.symbolic_trace(nn.Sequential(model))(x), model(x))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))


def test_a_learned_s_stays_positive_and_comes_back() -> None:
    module = apical.RBF(s=0.01, learnable=True)
    with torch.no_grad():
        module.s.fill_(-3.0)
    x = torch.tensor([0.0, 0.003])
    torch.testing.assert_close(module(x), composite.rbf(x, 1e-4))
    module(x).sum().backward()
    assert module.s.grad.item() > 0
    module.reset_parameters()
    assert module.s.item() == pytest.approx(0.01)


def test_prelu_has_one_value_for_each_layer_as_in_torch() -> None:
    for unit, names in (
        ("prelu", ["0.activation.weight", "1.activation.weight"]),
        ("prelu(scope=network)", ["0.activation.weight"]),
    ):
        layers = Unit.parse(unit).layers()
        model = nn.Sequential(layers.linear(3, 3), layers.linear(3, 3))
        assert [name for name in model.state_dict() if "activation" in name] == names


def test_the_vocabulary_is_read_without_torch() -> None:
    code = (
        "import sys\n"
        "from apical.nn import Kind, Parameter, Unit, kinds\n"
        "unit = Unit.parse('pyramidal(basal=gelu,apical=ada(alpha=0.5))').with_(c=1)\n"
        "assert unit.label == 'GELU + ADA (alpha=0.5,c=1)'\n"
        "assert kinds.color('pynada') and kinds.label('swish(beta=1)') == 'Swish (beta=1)'\n"
        "assert kinds.stackable('ada') and 'beta' in kinds.open_parameters('swish')\n"
        "kinds.register_unit('pyngelu', basal='relu', apical='gelu')\n"
        "assert Unit('pyngelu').apical == Unit('gelu')\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", [*PAPER, *OTHERS])
def test_a_descriptor_is_complete(kind: str) -> None:
    known = kinds.find(kind)
    assert known.label
    assert known.group == ("pyramidal" if kind in PAPER and "pyn" in kind else known.group)
    assert known.color is not None or kind in OTHERS
    assert known.stack == ("branches" if known.pyramidal else known.stack)
    assert kinds.stackable(kind) == (kind != "rrelu")
    for parameter in known.parameters:
        assert parameter.check(parameter.default) == parameter.default
        assert parameter.default != "learn" or parameter.start is not None


def test_no_two_kinds_have_one_colour() -> None:
    pairs = [color for kind in (*PAPER, *OTHERS) if (color := kinds.color(kind)) is not None]
    for shades in zip(*pairs, strict=True):
        assert len(set(shades)) == len(shades)
    assert kinds.color("relu") == ("#3f74b3", "#6fa3e0")
    assert kinds.color("leaky_pynada") == ("#7a4a10", "#c98a45")
    assert kinds.color("never_heard_of") is None


def test_a_family_is_a_unit_without_its_settings() -> None:
    for text, family in {
        "ada(alpha=0.3)": "ada",
        "GELU": "gelu",
        "never_heard_of(x=1)": "never_heard_of",
        "pyramidal(basal=elu(alpha=2), apical=ada(alpha=learn))": "pyramidal(basal=elu,apical=ada)",
    }.items():
        assert kinds.family(text) == family


def test_labels_are_those_of_the_tables() -> None:
    for text, label in {
        "relu": "ReLU",
        "leaky_relu(leak=0.2)": "leaky ReLU (leak=0.2)",
        "tanh": "tanh",
        "pynada(alpha=learn, c=1)": "PyNADA (alpha=learn, c=1)",
        " leaky_pynada ": "leaky PyNADA",
        "silu": "SiLU",
        "somebodys(beta=2)": "somebodys (beta=2)",
        "their.package:Act": "Act",
        "pyramidal(basal=gelu, apical=ada(alpha=0.5))": "GELU + ADA (alpha=0.5)",
    }.items():
        assert kinds.label(text) == label


def test_open_parameters_are_those_that_the_text_does_not_fix() -> None:
    assert [*kinds.open_parameters("ada")] == ["alpha", "c", "floor", "noise", "noise_in"]
    assert [*kinds.open_parameters("leaky_pynada(alpha=1)")] == ["c", "floor", "leak", "noise", "noise_in"]
    assert [*kinds.open_parameters("swish(beta=1)")] == []
    assert [*kinds.open_parameters("pyramidal(basal=elu,apical=ada(alpha=0.5))")] == [
        "alpha", "c", "floor", "noise", "noise_in",
    ]  # fmt: skip


def test_what_stacks_says_so_and_nothing_else_does(registry: None) -> None:
    apical.register_unit("alone", activation=nn.GELU)
    apical.register_unit("together", function=torch.sin, stack=True)
    assert not kinds.stackable("alone")
    assert kinds.stackable("together")
    assert not kinds.stackable("never_heard_of")
    assert not kinds.stackable("pyramidal(basal=relu,apical=alone)")
    assert kinds.stackable("pyramidal(basal=relu,apical=together)")
    assert kinds.find("together").stack == "values"


@pytest.mark.parametrize("unit", [u for u in FORMULAS if kinds.find(Unit.parse(u).kind).stack == "values"])
def test_compute_takes_a_value_for_each_channel(unit: str) -> None:
    module: Any = activation(unit)
    known = kinds.find(Unit.parse(unit).kind)
    x = torch.randn(6, 4, dtype=torch.float64)
    values = {p.name: torch.linspace(0.5, 2.0, 6, dtype=torch.float64) for p in known.parameters if not p.choices}
    y = module.compute(x, 0, **values)
    for row in range(6):
        own = ",".join(f"{name}={float(v[row])!r}" for name, v in values.items())
        torch.testing.assert_close(y[row], activation(f"{known.name}({own})" if own else known.name)(x[row]))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_REGISTERED", {})
    monkeypatch.setattr(kinds, "_LOCAL", {})


def bump(x: Tensor, width: float | Tensor, height: float = 1.0) -> Tensor:
    """A function of ours with settings."""
    return height * torch.exp(-((x / width) ** 2))


class Bent(nn.Module):
    """A module of somebody's with a setting that can be learned."""

    def __init__(self, *, slope: float, learnable: bool = False, num_parameters: int = 1, dim: int = 1) -> None:
        super().__init__()
        start = torch.full((num_parameters,), slope)
        self.slope = nn.Parameter(start) if learnable else slope
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        slope = self.slope
        if isinstance(slope, Tensor) and slope.numel() > 1:
            slope = slope.view(*[-1 if d == self.dim % x.dim() else 1 for d in range(x.dim())])
        return torch.where(x > 0, x, slope * x)


def test_a_function_of_ones_own_has_settings_that_can_be_fixed_or_learned(registry: None) -> None:
    apical.register_unit("bump", function=bump, parameters={"width": 2.0, "height": Parameter(1.0, above=0.0)})
    x = torch.randn(5, 3)
    torch.testing.assert_close(Unit("bump").layers().activation()(x), bump(x, 2.0))
    torch.testing.assert_close(Unit.parse("bump(width=0.5,height=3)").layers().activation()(x), bump(x, 0.5, 3.0))
    assert str(Unit.of(bump)) == "bump"
    assert str(Unit.of(Unit.parse("bump(width=3)").layers().activation())) == "bump(width=3)"
    learned = Unit.parse("bump(width=learn,width_init=0.5,scope=channel)").layers().linear(4, 3)
    assert learned.activation.width.tolist() == [0.5] * 3
    learned(torch.randn(2, 4)).sum().backward()
    assert learned.activation.width.grad.isfinite().all()
    assert len(apical.no_weight_decay(learned)[1]["params"]) == 1
    for text, sentence in {
        "bump(height=learn)": "height is 'learn', but must be a number",
        "bump(height=0)": "height is 0.0, but must be greater than 0 and finite",
        "bump(hight=1)": "unit 'bump': unknown setting 'hight'; did you mean 'height'\\? available: width, height",
    }.items():
        with pytest.raises(InvalidArgumentError, match=sentence):
            Unit.parse(text)


def test_a_factory_of_ones_own_has_settings_that_can_be_fixed_or_learned(registry: None) -> None:
    apical.register_unit("bent", activation=Bent, parameters={"slope": Parameter(0.1, learnable=True, start=0.3)})
    apical.register_unit("pynbent", basal="relu", apical="bent")
    x = torch.randn(5, 3)
    torch.testing.assert_close(Unit.parse("bent(slope=0.2)").layers().activation()(x), functional.leaky_relu(x, 0.2))
    layers = Unit.parse("pynbent(slope=learn)").layers()
    model = nn.Sequential(layers.linear(3, 4), layers.linear(4, 2))
    assert [name for name in model.state_dict() if "slope" in name] == ["0.apical.slope"]
    assert model[0].apical.slope.tolist() == pytest.approx([0.3])
    assert [len(group["params"]) for group in apical.no_weight_decay(model)] == [4, 1]
    channels = Unit.parse("pynbent(slope=learn,scope=channel)").layers().linear(3, 4)
    assert channels.apical.slope.shape == (4,)
    assert channels(x).shape == (5, 4)


def test_a_parameter_that_the_activation_does_not_have_is_refused(registry: None) -> None:
    class Forgetful(Bent):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**(settings | {"learnable": False}))

    apical.register_unit("forgetful", activation=Forgetful, parameters={"slope": Parameter(0.1, learnable=True)})
    with pytest.raises(InvalidArgumentError, match="called with learnable=True, but has no parameter 'slope'"):
        Unit.parse("forgetful(slope=learn)").layers().activation()


def test_a_pyramidal_kind_of_ones_own_can_fix_settings_of_its_branches(registry: None) -> None:
    apical.register_unit("mine", basal="leaky_relu(leak=0.3)", apical="ada(c=1)", label="Mine", color="#A0B0C0")
    unit = Unit.parse("mine(alpha=0.5)")
    assert (str(unit.basal), str(unit.apical)) == ("leaky_relu(leak=0.3)", "ada(alpha=0.5,c=1)")
    assert kinds.find("mine").settings == ("alpha", "floor", "noise", "noise_in")
    assert (kinds.label("mine(alpha=0.5)"), kinds.color("mine")) == ("Mine (alpha=0.5)", ("#a0b0c0", "#a0b0c0"))
    assert Unit.parse(str(unit)) == unit


def test_torchs_names_can_be_redefined_and_the_papers_cannot(registry: None) -> None:
    apical.register_unit("mish", function=lambda x, beta: x * torch.tanh(functional.softplus(beta * x)),
                         parameters={"beta": 1.0}, label="Mish of ours")  # fmt: skip
    assert kinds.names().count("mish") == 1
    assert str(Unit.parse("mish(beta=0.5)")) == "mish(beta=0.5)"
    assert Unit("mish").label == "Mish of ours"
    assert Unit("Mish") == Unit("mish")
    x = torch.randn(5)
    for torchs in (nn.Mish, nn.Mish(), functional.mish):
        torch.testing.assert_close(Unit.of(torchs).layers().activation()(x), functional.mish(x))
        assert Unit.of(torchs).kind != "mish"
    with pytest.raises(InvalidArgumentError, match="there is a unit 'swish' already"):
        apical.register_unit("swish", activation=nn.SiLU)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"parameters": {"scope": 1.0}}, "parameter 'scope' of unit 'other' cannot have this name"),
        ({"parameters": {"beta_init": 1.0}}, "'beta_init' of unit 'other' cannot have this name"),
        ({"parameters": {"a b": 1.0}}, "cannot have this name"),
        ({"parameters": {"width": math.nan}}, "width is nan, but must be finite"),
        ({"parameters": {"width": Parameter(0.0, above=0.0)}}, "width is 0.0, but must be greater than 0"),
        ({"parameters": {"width": Parameter("learn", learnable=True)}}, "has no initial value: give start="),
        ({"parameters": {"width": Parameter(1.0, tune=(1.0, -1.0), minimum=0.0)}}, "width is -1.0, but must be at"),
        ({"parameters": {"size": 2.0}}, r"size=2.0\) it does not \(TypeError: .* unexpected keyword argument 'size'\)"),
        ({"color": "red"}, "color of unit 'other' is 'red', but must be '#rrggbb'"),
        ({"color": ("#000000", "#00000g")}, "but must be '#rrggbb', or one for light and one for dark"),
        ({"basal": "relu"}, "needs one of activation="),
        ({"function": None, "basal": "relu", "apical": "ada", "parameters": {"x": 1.0}}, "has the parameters of"),
    ],
)  # fmt: skip
def test_a_bad_registration_is_one_sentence(registry: None, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        apical.register_unit("other", **({"function": bump, "parameters": {"width": 1.0}} | settings))
    assert "other" not in Unit.kinds()


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("ada(alpha=0.3)", "ada(alpha=0.3)"),
        (Unit("ada"), "ada"),
        (nn.ReLU, "relu"),
        (nn.Mish, "mish"),
        (nn.PReLU, "prelu"),
        (apical.LeakyADA, "leaky_ada"),
        (nn.ReLU(inplace=True), "relu"),
        (nn.ELU(0.5), "elu(alpha=0.5)"),
        (nn.LeakyReLU(0.2), "leaky_relu(leak=0.2)"),
        (nn.GELU(approximate="tanh"), "gelu(approximate=tanh)"),
        (nn.Hardtanh(-2, 2), "hardtanh(min_val=-2,max_val=2)"),
        (nn.PReLU(init=0.5), "prelu(weight_init=0.5)"),
        (nn.PReLU(3), "prelu(scope=channel,weight_init=0.25)"),
        (apical.ADA(alpha=0.3, c=1), "ada(alpha=0.3,c=1)"),
        (apical.ADA(alpha=0.5, learnable=True), "ada(alpha=learn,scope=layer,alpha_init=0.5)"),
        (apical.Swish(beta=2, learnable=False), "swish(beta=2)"),
        (Unit.parse("sine(omega=3)").layers().activation(), "sine(omega=3)"),
        (torch.relu, "relu"),
        (functional.gelu, "gelu"),
        (torch.sigmoid, "sigmoid"),
        (torch.sin, "torch:sin"),
        (nn.Softmax, "torch.nn.modules.activation:Softmax"),
    ],
)
def test_the_unit_of_an_activation(what: Any, text: str) -> None:
    unit = Unit.of(what)
    assert str(unit) == text
    assert Unit.of(text) == unit


@pytest.mark.parametrize("kind", [kind for kind in STANDARD if kind.build and kind.form != "function"])
def test_the_place_of_a_class_is_the_kind_that_it_is(kind: kinds.Kind) -> None:
    assert Unit(str(kind.build)) == Unit(kind.name)
    made = type(Unit(kind.name).layers().activation())
    if made.__module__ == "torch.nn.modules.activation":
        assert Unit.parse(f"{made.__module__}:{made.__name__}") == Unit(kind.name)


def test_the_place_of_a_class_takes_the_settings_of_its_kind() -> None:
    assert str(Unit.parse("torch.nn:ELU(alpha=0.5)")) == "elu(alpha=0.5)"
    assert str(Unit.parse("torch.nn:PReLU")) == "prelu"
    assert str(Unit.parse("pyramidal(basal=torch.nn:Mish,apical=ada)")) == "pyramidal(basal=mish,apical=ada)"
    assert kinds.label("torch.nn:SiLU") == "SiLU"
    assert Unit.parse("torch.nn:Softmax").kind == "torch.nn:Softmax"


def test_the_place_of_a_class_is_not_a_kind_that_somebody_has_redefined(registry: None) -> None:
    apical.register_unit("mish", function=lambda x: -x)
    x = torch.randn(5)
    assert torch.equal(Unit.parse("torch.nn:Mish").layers().activation()(x), functional.mish(x))


def test_the_unit_of_an_instance_computes_what_the_instance_does() -> None:
    for module in (nn.ELU(0.5), nn.Softplus(2.0, 3.0), nn.PReLU(3, 0.4), apical.ADA(alpha=0.3), nn.Threshold(0.5, -2)):
        built = Unit.of(module).layers().activation(3)
        x = torch.randn(5, 3)
        torch.testing.assert_close(built(x), module(x))


def test_what_cannot_be_imported_is_known_to_this_process(registry: None) -> None:
    class Curve(nn.Module):
        def __init__(self, power: float = 2.0) -> None:
            super().__init__()
            self.power = power

        def forward(self, x: Tensor) -> Tensor:
            return x.abs() ** self.power

    x = torch.randn(4)
    for what, text, expected in (
        (Curve, "local_Curve", x.abs() ** 2),
        (Curve(3.0), "local_Curve_2", x.abs() ** 3),
        (lambda: Curve(4.0), "local_lambda", x.abs() ** 4),
        (lambda x: x.cos(), "local_lambda_2", x.cos()),
    ):
        unit = Unit.of(what)
        assert str(unit) == text
        assert Unit.of(what) == unit == Unit.parse(text)
        torch.testing.assert_close(unit.layers().activation()(x), expected)
        torch.testing.assert_close(Unit("pyramidal", basal=what, apical="ada").basal.layers().activation()(x), expected)
    assert not any("local" in name for name in Unit.kinds())
    module = Curve(3.0)
    first, second = (Unit.of(module).layers().activation() for _ in range(2))
    assert first is not second
    assert first is not module


def test_an_activation_by_its_path_works_wherever_a_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_activations.py").write_text(
        "from torch import nn\n"
        "class Cube(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x ** 3\n"
        "def square(x):\n"
        "    return x ** 2\n"
        "def factory():\n"
        "    return nn.ELU(0.5)\n",
        encoding="utf-8",
    )
    (tmp_path / "broken_activations.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    trust.grant("my_activations", "broken_activations")
    x = torch.randn(4)
    for path, expected in (("Cube", x**3), ("square", x**2), ("factory", functional.elu(x, 0.5))):
        unit = Unit.parse(f"my_activations:{path}")
        assert str(unit) == f"my_activations:{path}"
        assert Unit.parse(f"pyramidal(basal=relu,apical={unit})").apical == unit
        torch.testing.assert_close(unit.layers().activation()(x), expected)
    import my_activations  # type: ignore[import-not-found]

    assert str(Unit.of(my_activations.Cube)) == "my_activations:Cube"
    with pytest.raises(InvalidArgumentError, match=r"cannot be imported \(ZeroDivisionError: division by zero\)"):
        Unit.parse("broken_activations:Cube")


def test_an_elementwise_function_shows_what_it_is() -> None:
    module = Elementwise(bump, learn=["width"], width=2.0, height=3.0)
    assert repr(module) == "Elementwise(bump, width=2.0, height=3.0, learned: width)"
    with pytest.raises(InvalidArgumentError, match="num_parameters is 3, but nothing is learned"):
        Elementwise(bump, num_parameters=3, width=2.0)


def test_the_values_of_a_grid_are_any_sequence():
    assert Parameter(1.0, tune=[0.5, 1.0]) == Parameter(1.0, tune=(0.5, 1.0))
    assert Parameter(1.0, tune=range(2)).tune == (0, 1)
    for wrong in (0.5, "learn"):
        with pytest.raises(InvalidArgumentError, match=f"tune is {wrong!r}, but must list the values to try"):
            Parameter(1.0, tune=wrong)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0, 3.0, 9.9, 10.1, 40.0])
def test_c_can_follow_from_alpha(alpha: float) -> None:
    x = torch.tensor([1 / alpha], dtype=torch.float64)
    for kind in ("ada", "leaky_ada"):
        assert build(Unit.parse(f"{kind}(alpha={alpha},c=peak)"), None, 1)(x).item() == pytest.approx(1.0, rel=1e-12)
    z = torch.linspace(0.0, 12.0, 1_000_001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / (2 * torch.pi) ** 0.5
    y = build(Unit("ada", alpha=alpha, c="unit"), None, 1)(z)
    assert torch.trapezoid(y.square() * density, z).item() == pytest.approx(0.5, rel=1e-5)


def test_a_unit_whose_c_follows_from_alpha_reads_like_any_other() -> None:
    unit = Unit.parse("pynada(alpha=0.5,c=peak)")
    assert str(unit) == "pynada(alpha=0.5,c=peak)"
    assert unit.layers().linear(3, 2).apical.c == pytest.approx(1 + math.log(0.5))
    assert Unit.parse(str(unit.with_(alpha=1))) == Unit("pynada", c="peak")
    for text in ("ada(alpha=learn,c=unit)", "leaky_pynada(alpha=learn,c=peak)"):
        with pytest.raises(InvalidArgumentError, match="follows from alpha, but alpha is learned: give c or alpha"):
            Unit.parse(text)
    with pytest.raises(InvalidArgumentError, match="c is 'top', but must be a number or 'peak' or 'unit'"):
        Unit.parse("ada(c=top)")
