"""Unit: the vocabulary of neurons, and what shares a learned value."""

import copy
import io
import math
import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import apical
from apical import Unit
from apical.errors import ApicalError, InvalidArgumentError
from apical.nn import Parameter, kinds
from apical.nn.kinds import OTHERS, PAPER

STANDARD = ("relu", "leaky_relu", "tanh", "rbf", "swish", "ada", "leaky_ada")
PYRAMIDAL = {
    "pynrelu": ("relu", "relu"),
    "pynrbf": ("relu", "rbf"),
    "pynswish": ("relu", "swish"),
    "pynada": ("relu", "ada"),
    "leaky_pynada": ("leaky_relu", "leaky_ada"),
}
LEARNED = (
    "ada(alpha=learn)", "leaky_ada(alpha=learn)", "swish", "pynada(alpha=learn)", "pynswish", "rbf(s=learn)",
    "sine(omega=learn)", "pyramidal(basal=gelu,apical=ada(alpha=learn))",
)  # fmt: skip
NAMES = ("alpha", "beta", ".s", ".omega")


def test_the_papers_twelve_kinds_come_first() -> None:
    assert Unit.kinds()[:12] == (*STANDARD, *PYRAMIDAL)
    assert [kind for kind in Unit.kinds() if Unit(kind).pyramidal] == list(PYRAMIDAL)


@pytest.mark.parametrize("kind", PYRAMIDAL)
def test_a_pyramidal_unit_names_the_units_of_its_branches(kind: str) -> None:
    unit = Unit(kind)
    assert (str(unit.basal), str(unit.apical)) == PYRAMIDAL[kind]
    assert unit.basal.basal == unit.basal


def test_branches_inherit_the_settings_they_know() -> None:
    unit = Unit("leaky_pynada", alpha="learn", alpha_init=0.5, c=1, leak=0.2, scope="layer")
    assert unit.basal == Unit("leaky_relu", leak=0.2)
    assert unit.apical == Unit("leaky_ada", alpha="learn", alpha_init=0.5, c=1, leak=0.2, scope="layer")


def numbers(parameter: Parameter) -> st.SearchStrategy[float]:
    """What the parameter allows."""
    low = parameter.above if parameter.minimum is None else parameter.minimum
    open_below = parameter.above is not None and parameter.minimum is None
    limits = {"min_value": low, "max_value": parameter.maximum, "exclude_min": open_below}
    return st.floats(**limits, allow_infinity=False, allow_nan=False)


@st.composite
def standard_or_named(draw: st.DrawFn) -> Unit:
    """Any kind with any settings."""
    kind = kinds.find(draw(st.sampled_from((*PAPER, *OTHERS))))
    settings: dict[str, object] = {}
    for p in kind.parameters:
        if draw(st.booleans()):
            settings[p.name] = draw(st.sampled_from(p.choices) if p.choices else numbers(p))
        elif p.learnable and draw(st.booleans()):
            settings[p.name] = "learn"
        if settings.get(p.name, p.default) == "learn" and draw(st.booleans()):
            settings[f"{p.name}_init"] = draw(numbers(p))
    if any(settings.get(p.name, p.default) == "learn" for p in kind.parameters):
        settings["scope"] = draw(st.sampled_from(kinds.SCOPES))
    assume(kind.conflict is None or not kind.conflict({p.name: p.default for p in kind.parameters} | settings))
    return Unit(kind.name, **settings)


standard = standard_or_named().filter(lambda unit: not unit.pyramidal)
written_out = st.builds(lambda basal, apical: Unit("pyramidal", basal=basal, apical=apical), standard, standard)
units = standard_or_named() | written_out


@given(units)
@settings(max_examples=300, deadline=None)
def test_parse_and_str_are_inverse(unit: Unit) -> None:
    again = Unit.parse(str(unit))
    assert again == unit
    assert hash(again) == hash(unit)
    assert str(again) == str(unit)
    assert Unit.parse(str(unit).replace(",", " , ").replace("=", " = ").replace("(", " ( ")) == unit


@given(units)
@settings(deadline=None)
def test_copies_and_pickles_are_equal(unit: Unit) -> None:
    for other in (copy.copy(unit), copy.deepcopy(unit), pickle.loads(pickle.dumps(unit)), unit.with_()):
        assert other == unit
        assert str(other) == str(unit)
    assert eval(repr(unit), {"Unit": Unit}) == unit


@given(units, st.data())
@settings(deadline=None)
def test_a_unit_with_another_value_differs_in_that_alone(unit: Unit, data: st.DataObject) -> None:
    numeric = [p for p in unit.parameters if not p.choices]
    assume(numeric)
    p = data.draw(st.sampled_from(numeric))
    value = data.draw(numbers(p))
    try:
        other = unit.with_(**{p.name: value, f"{p.name}_init": None, **({} if unit.learned else {"scope": None})})
    except InvalidArgumentError as error:
        assert "learns nothing" in str(error) or "must not be above" in str(error)  # noqa: PT017
        return
    assert getattr(other, p.name) == value
    assert unit.learned or replace(unit, **{p.name: value}) == other
    for q in unit.parameters:
        if q.name != p.name:
            assert getattr(other, q.name) == getattr(unit, q.name)


@given(st.text(alphabet="adpynrelu(),=0.1 c_-:\n", max_size=40))
@settings(deadline=None)
def test_any_text_is_a_unit_or_one_sentence(text: str) -> None:
    try:
        unit = Unit.parse(text)
    except ApicalError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert Unit.parse(str(unit)) == unit


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (" pynada ( alpha = 0.30 , c = 1 ) ", "pynada(alpha=0.3,c=1)"),
        ("ada(alpha=1.0,c=0)", "ada"),
        ("ada(alpha=learn,scope=network)", "ada(alpha=learn)"),
        ("ada(alpha=learn,alpha_init=1)", "ada(alpha=learn,alpha_init=1)"),
        ("leaky_ada(leak=0.01)", "leaky_ada"),
        ("swish(scope=channel)", "swish(scope=channel)"),
        ("relu()", "relu"),
        ("swish(beta=learn)", "swish"),
        ("swish(beta=1)", "swish(beta=1)"),
        ("swish(beta=learn,beta_init=0.1)", "swish(beta_init=0.1)"),
        ("rbf(s=learn,s_init=0.1)", "rbf(s=learn,s_init=0.1)"),
        ("elu(alpha=0.5)", "elu(alpha=0.5)"),
        ("gelu(approximate=none)", "gelu"),
        ("gelu(approximate=tanh)", "gelu(approximate=tanh)"),
        ("prelu(scope=layer)", "prelu"),
        ("GELU", "gelu"),
        ("nn.Mish", "mish"),
        ("torch.nn.ELU(alpha=2)", "elu(alpha=2)"),
        ("LeakyADA(leak=0.2)", "leaky_ada(leak=0.2)"),
        ("pyramidal( basal = gelu , apical = ada( alpha=0.5 , c=0 ) )", "pyramidal(basal=gelu,apical=ada(alpha=0.5))"),
    ],
)
def test_the_short_form_leaves_defaults_out(text: str, short: str) -> None:
    assert str(Unit.parse(text)) == short


def test_settings_of_other_kinds_are_none_and_of_no_kind_an_error() -> None:
    unit = Unit("ada")
    assert (unit.alpha, unit.beta, unit.beta_init, unit.leak, unit.lambd) == (1.0, None, None, None, None)
    with pytest.raises(
        AttributeError, match="unit 'ada' has no 'gamma'; it has alpha, c, floor, noise, noise_in, scope"
    ):
        unit.gamma  # noqa: B018


def test_a_unit_that_is_written_out_sets_the_branch_that_has_the_setting() -> None:
    unit = Unit.parse("pyramidal(basal=leaky_relu,apical=ada)")
    assert str(unit.with_(alpha=0.5, leak=0.2)) == "pyramidal(basal=leaky_relu(leak=0.2),apical=ada(alpha=0.5))"
    assert (unit.alpha, unit.leak, unit.scope, unit.alpha_init) == (1.0, 0.01, "network", None)
    learned = unit.with_(alpha="learn", alpha_init=0.3, scope="layer")
    assert str(learned) == "pyramidal(basal=leaky_relu,apical=ada(alpha=learn,scope=layer,alpha_init=0.3))"
    assert (learned.alpha, learned.scope, learned.learned) == ("learn", "layer", ("alpha",))
    both = Unit.parse("pyramidal(basal=elu(alpha=0.5),apical=ada)")
    assert str(both.with_(alpha=2)) == "pyramidal(basal=elu(alpha=0.5),apical=ada(alpha=2))"


def test_a_unit_that_is_written_out_computes_both_branches() -> None:
    layer = Unit.parse("pyramidal(basal=gelu,apical=ada(alpha=0.5))").layers().linear(3, 2)
    x = torch.randn(4, 3)
    basal, apical_ = nn.functional.linear(x, layer.weight).chunk(2, -1)
    torch.testing.assert_close(layer(x), nn.functional.gelu(basal) + apical.functional.ada(apical_, 0.5))
    named = Unit.parse("pyramidal(basal=leaky_relu,apical=leaky_ada)")
    assert (named.basal, named.apical) == (Unit("leaky_pynada").basal, Unit("leaky_pynada").apical)


def test_a_unit_cannot_change() -> None:
    with pytest.raises(AttributeError):
        Unit("ada").alpha = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Unit("rleu"), "unknown unit 'rleu'; did you mean 'relu'\\? available: relu, leaky_relu, tanh"),
        (lambda: Unit("relu", alpha=1.0), "unit 'relu': unknown setting 'alpha'; available: none"),
        (lambda: Unit("ada", leak=0.1), "unit 'ada': unknown setting 'leak'; available: alpha, c"),
        (lambda: Unit("ada", alpha=-1), "alpha is -1.0, but must be greater than 0 and finite"),
        (lambda: Unit("ada", c=math.inf), "c is inf, but must be finite"),
        (lambda: Unit("ada", alpha="lern"), "alpha is 'lern', but must be a number or 'learn'"),
        (lambda: Unit("leaky_relu", leak=2), "leak is 2.0, but must lie in"),
        (lambda: Unit("ada", alpha_init=0.5), "alpha_init= but learns nothing: add alpha='learn'"),
        (lambda: Unit("ada", alpha=0.5, scope="layer"), "scope= but learns nothing"),
        (lambda: Unit("relu", scope="layer"), "unit 'relu': unknown setting 'scope'; available: none"),
        (lambda: Unit("swish", beta=1, beta_init=2), "beta_init= but learns nothing: add beta='learn'"),
        (lambda: Unit("elu", alpha="learn"), "alpha is 'learn', but must be a number"),
        (lambda: Unit("rbf", s="learn", s_init="learn"), "s_init is 'learn', but must be a number"),
        (lambda: Unit("gelu", approximate="fast"), "approximate is 'fast', but must be one of none, tanh"),
        (lambda: Unit("gelu", approximate=1), "approximate is 1, but must be one of none, tanh"),
        (lambda: Unit("softshrink", lambd=-1), "lambd is -1.0, but must be at least 0 and finite"),
        (lambda: Unit("hardtanh", min_val=2), "unit 'hardtanh': min_val is 2.0, but must not be above max_val"),
        (lambda: Unit("pyramidal"), "unit 'pyramidal' has no basal and no apical: write e.g. pyramidal\\(basal=relu"),
        (lambda: Unit("pyramidal", basal="relu", apical="pynada"), "apical branch is 'pynada', but must be a standard"),
        (lambda: Unit.parse("pyramidal(basal=relu,apical=ada,beta=1)"), "unknown setting 'beta'; available: alpha, c"),
        (lambda: Unit.parse("pyramidal(basal=relu,apical=ada(alpha=1)"), "invalid unit .* write a kind"),
        (lambda: Unit.parse("no_such_package:Act"), "'no_such_package:Act' cannot be imported .* package.module:activ"),
        (
            lambda: Unit.parse("torch.nn:NoSuch"),
            "names code in torch.nn, which .*: if you trust it, allow",
        ),
        (lambda: Unit.parse("torch.nn:Linear"), "must be a factory: called without arguments, it returns a module"),
        (lambda: Unit.of(3), "invalid unit 3; give its text"),
        (lambda: Unit("ada", alpha="learn", scope="world"), "scope is 'world', but must be one of network, layer"),
        (lambda: Unit.parse("ada(alpha)"), "invalid setting 'alpha' in 'ada\\(alpha\\)'"),
        (lambda: Unit.parse("ada(alpha=1,alpha=2)"), "at most once"),
        (lambda: Unit.parse("ada(beta=1)"), "unit 'ada': unknown setting 'beta'; available: alpha, c"),
        (lambda: Unit.parse("ada(alfa=0.3)"), "unknown setting 'alfa'; did you mean 'alpha'\\? available: alpha, c"),
        (lambda: Unit.parse("ada("), "write a kind and its settings"),
        (lambda: Unit.parse(3), "invalid unit 3; give its kind"),  # type: ignore[arg-type]
        (lambda: Unit("ada").apical, "'ada' is standard and has no apical branch"),
        (lambda: Unit("ada", alpha="learn", scope="channel").layers().activation(), "give the number as channels="),
    ],
)
def test_bad_input_is_one_sentence(call, sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def network(unit: str) -> nn.Sequential:
    layers = Unit.parse(unit).layers()
    return nn.Sequential(layers.conv(1, 2, 3, 3), nn.Flatten(), layers.linear(9, 4), layers.linear(4, 2))


def learned(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if name.endswith(NAMES)}


@pytest.mark.parametrize("unit", LEARNED)
@pytest.mark.parametrize(("scope", "sizes"), [("network", [1]), ("layer", [1, 1, 1]), ("channel", [3, 4, 2])])
def test_scopes(unit: str, scope: str, sizes: list[int]) -> None:
    model = network(str(Unit.parse(unit).with_(scope=scope)))
    assert [p.numel() for p in learned(model).values()] == sizes
    assert sum(name.endswith(NAMES) for name in model.state_dict()) == len(sizes)
    model(torch.randn(5, 2, 5)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def value_reaches_all_layers(model: nn.Module) -> bool:
    """True if the one learned value changes the output of the last layer."""
    (parameter,) = learned(model).values()
    x = 3 * torch.randn(32, 4, dtype=parameter.dtype)
    before = model[3](x)
    with torch.no_grad():
        parameter.mul_(3.0)
    return not torch.equal(before, model[3](x))


@pytest.mark.parametrize("unit", LEARNED)
@pytest.mark.parametrize("how", ["deepcopy", "pickle", "save", "to", "to_empty", "deepcopy of meta"])
def test_one_value_stays_shared(unit: str, how: str) -> None:
    torch.manual_seed(0)
    model = network(unit)
    if how == "deepcopy":
        copied = copy.deepcopy(model)
    elif how == "pickle":
        copied = pickle.loads(pickle.dumps(model))
    elif how == "save":
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        copied = torch.load(buffer, weights_only=False)
    elif how == "to":
        copied = model.to(torch.float64)
    else:
        state = model.state_dict()
        with torch.device("meta"):
            copied = network(unit)
        copied = (copy.deepcopy(copied) if "deepcopy" in how else copied).to_empty(device="cpu")
        copied.load_state_dict(state)
    assert list(copied.state_dict()) == list(model.state_dict())
    assert len(learned(copied)) == 1
    if how in ("deepcopy", "pickle", "save"):
        (original,) = (p.clone() for p in learned(model).values())
        assert value_reaches_all_layers(copied)
        assert torch.equal(next(iter(learned(model).values())), original)
    else:
        assert value_reaches_all_layers(copied)


@pytest.mark.parametrize("unit", LEARNED)
def test_a_shared_value_survives_compile_export_and_functional_call(unit: str) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    model, x = network(unit), torch.randn(2, 2, 5)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
    exported = torch.export.export(model, (x,))
    torch.testing.assert_close(exported.module()(x), model(x))
    assert set(exported.state_dict) == set(model.state_dict())
    state = dict(model.named_parameters())
    (name,) = learned(model)
    changed = torch.func.functional_call(model, {**state, name: state[name] * 2}, (x,))
    with torch.no_grad():
        state[name].mul_(2)
    torch.testing.assert_close(changed, model(x))
    torch.testing.assert_close(compiled(x), model(x))


def test_no_weight_decay_finds_the_shared_value_once() -> None:
    groups = apical.no_weight_decay(network("pynada(alpha=learn)"), weight_decay=0.1)
    assert [len(group["params"]) for group in groups] == [6, 1]


def test_a_learned_alpha_starts_at_alpha_init() -> None:
    (alpha,) = learned(network("pynada(alpha=learn,alpha_init=0.7)")).values()
    assert alpha.item() == pytest.approx(0.7)
    assert alpha.shape == (1,)


def test_a_learned_alpha_without_alpha_init_leaves_the_start_open_and_starts_at_one() -> None:
    unit = Unit.parse("pynada(alpha=learn)")
    assert unit.alpha_init is None
    assert unit != Unit.parse("pynada(alpha=learn,alpha_init=1)")
    (alpha,) = learned(network(str(unit))).values()
    assert alpha.item() == 1


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_REGISTERED", {})


@pytest.mark.usefixtures("registry")
def test_users_register_their_own_kinds() -> None:
    apical.register_unit("gelu", activation=nn.GELU)
    apical.register_unit("pyngelu", basal="leaky_relu", apical="gelu")
    assert Unit.kinds()[-2:] == ("gelu", "pyngelu")
    unit = Unit.parse("pyngelu(leak=0.2)")
    assert (unit.basal, unit.apical) == (Unit("leaky_relu", leak=0.2), Unit("gelu"))
    layer = unit.layers().linear(3, 2)
    x = torch.randn(4, 3)
    basal, apical_ = nn.functional.linear(x, layer.weight).chunk(2, -1)
    torch.testing.assert_close(layer(x), nn.functional.leaky_relu(basal, 0.2) + nn.functional.gelu(apical_))
    assert isinstance(Unit("gelu").layers().activation(), nn.GELU)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("relu", {"activation": nn.GELU}, "there is a unit 'relu' already: register yours under another name"),
        ("mine", {"activation": nn.GELU}, "there is a unit 'mine' already"),
        ("a-b", {"activation": nn.GELU}, "'a-b' cannot name a unit"),
        ("other", {}, "needs one of activation="),
        ("other", {"activation": nn.GELU, "basal": "relu", "apical": "ada"}, "needs one of activation="),
        ("other", {"basal": "relu"}, "apical of unit 'other' is None"),
        ("other", {"basal": "relu", "apical": "pynada"}, "must name a standard kind"),
        ("other", {"basal": "relu", "apical": "adda"}, "did you mean 'ada'"),
    ],
)
def test_a_bad_registration_is_one_sentence(name: str, settings: dict[str, object], sentence: str) -> None:
    apical.register_unit("mine", activation=nn.SiLU)
    with pytest.raises(InvalidArgumentError, match=sentence):
        apical.register_unit(name, **settings)  # type: ignore[arg-type]
    assert "other" not in Unit.kinds()


@pytest.mark.parametrize("wrong", [torch.sin, nn.GELU(), "gelu", lambda: 3])
def test_what_is_no_factory_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must be a factory: called without arguments, it returns a module"):
        apical.register_unit("half_built", activation=wrong)
    assert "half_built" not in apical.Unit.kinds()


def test_settings_may_have_the_names_of_torch() -> None:
    assert Unit.parse("LeakyReLU(negative_slope=0.2)") == Unit("leaky_relu", leak=0.2)
    with pytest.raises(InvalidArgumentError, match="unknown setting 'negative_slope'"):
        Unit.parse("leaky_relu(negative_slope=0.2,leak=0.1)")


def test_a_module_whose_channels_learned_different_values_is_no_unit() -> None:
    module = nn.PReLU(8)
    assert Unit.of(module) == Unit("prelu", scope="channel", weight="learn", weight_init=0.25)
    module.weight.data = torch.arange(8.0) / 8
    with pytest.raises(InvalidArgumentError, match=r"8 values of weight, from 0 to 0\.875"):
        Unit.of(module)
