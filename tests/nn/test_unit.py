"""Unit: the vocabulary of neurons, and what shares a learned value."""

import copy
import io
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import apical
from apical import Unit
from apical.errors import ApicalError, InvalidArgumentError
from apical.nn import kinds

STANDARD = ("relu", "leaky_relu", "tanh", "rbf", "swish", "ada", "leaky_ada")
PYRAMIDAL = {
    "pynrelu": ("relu", "relu"),
    "pynrbf": ("relu", "rbf"),
    "pynswish": ("relu", "swish"),
    "pynada": ("relu", "ada"),
    "leaky_pynada": ("leaky_relu", "leaky_ada"),
}
LEARNED = ("ada(alpha=learn)", "leaky_ada(alpha=learn)", "swish", "pynada(alpha=learn)", "pynswish")


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


positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
finite = st.floats(allow_infinity=False, allow_nan=False)


@st.composite
def units(draw: st.DrawFn) -> Unit:
    kind = draw(st.sampled_from((*STANDARD, *PYRAMIDAL)))
    settings: dict[str, object] = {}
    for name, values in {"alpha": positive | st.just("learn"), "c": finite, "leak": st.floats(0, 1)}.items():
        if name in kinds.find(kind).settings and draw(st.booleans()):
            settings[name] = draw(values)
    if settings.get("alpha") == "learn" and draw(st.booleans()):
        settings["alpha_init"] = draw(positive)
    if settings.get("alpha") == "learn" or kinds.find(kind).learns:
        settings["scope"] = draw(st.sampled_from(kinds.SCOPES))
    return Unit(kind, **settings)


@given(units())
def test_parse_and_str_are_inverse(unit: Unit) -> None:
    assert Unit.parse(str(unit)) == unit
    assert hash(Unit.parse(str(unit))) == hash(unit)
    assert str(Unit.parse(str(unit))) == str(unit)


@given(st.text(alphabet="adpynrelu(),=0.1 c_-\n", max_size=40))
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
    ],
)
def test_the_short_form_leaves_defaults_out(text: str, short: str) -> None:
    assert str(Unit.parse(text)) == short


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
        (lambda: Unit("ada", alpha="learn", scope="world"), "scope is 'world', but must be one of network, layer"),
        (lambda: Unit.parse("ada(alpha)"), "invalid setting 'alpha' in 'ada\\(alpha\\)'"),
        (lambda: Unit.parse("ada(alpha=1,alpha=2)"), "at most once"),
        (lambda: Unit.parse("ada(beta=1)"), "unit 'ada': unknown setting 'beta'; available: alpha, c"),
        (lambda: Unit.parse("ada(alfa=0.3)"), "unknown setting 'alfa'; did you mean 'alpha'\\? available: alpha, c"),
        (lambda: Unit.parse("ada("), "write a kind and its settings"),
        (lambda: Unit.parse(3), "invalid unit 3; give its kind"),  # type: ignore[arg-type]
        (lambda: Unit("ada").apical, "'ada' is standard and has no apical branch"),
        (lambda: Unit("ada", alpha="learn", scope="channel").layers().activation(), "say how many with channels="),
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
    return {name: p for name, p in model.named_parameters() if name.endswith(("alpha", "beta"))}


@pytest.mark.parametrize("unit", LEARNED)
@pytest.mark.parametrize(("scope", "sizes"), [("network", [1]), ("layer", [1, 1, 1]), ("channel", [3, 4, 2])])
def test_scopes(unit: str, scope: str, sizes: list[int]) -> None:
    parsed = Unit.parse(unit)
    text = str(Unit(parsed.kind, alpha=parsed.alpha, scope=scope))
    model = network(text)
    assert [p.numel() for p in learned(model).values()] == sizes
    assert sum(name.endswith(("alpha", "beta")) for name in model.state_dict()) == len(sizes)
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
