"""Kinds of units: what there is to know of each, in one place and free of torch.

First the descriptors (`Kind` and its `Parameter`s), then the kinds that come with apical, then the registry that finds
them by name and takes those of users.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from importlib import import_module
from math import erfc, exp, isfinite, log, pi, sqrt
from typing import Any, Literal

from apical import imports, notation, trust
from apical.errors import DtypeError, InvalidArgumentError, unknown

Scope = Literal["network", "layer", "channel"]
Form = Literal["module", "activation", "function"]
Stack = Literal["fused", "values", "module", "branches"]
Settings = Mapping[str, Any]

SCOPES: tuple[Scope, ...] = ("network", "layer", "channel")
LEARN = "learn"


@dataclass(frozen=True)
class Parameter:
    """A setting of a kind: its default, what is allowed, whether training may find it, what a study tries.

    `above`, `minimum` and `maximum` bound a number; `choices` makes it one of several words instead. Where it is
    `learnable`, "learn" is allowed too, and training begins at `start` (None: at the default). `tune` holds the values
    that a study tries where its file names none (None: only those that the file names). `argument` is what the
    activation calls it, where that is another name. `words` stand for numbers that follow from the other settings.
    `stacks`: trials can be computed as one stack also where it has not its default.
    """

    default: float | str
    _: KW_ONLY
    name: str = ""
    above: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    learnable: bool = False
    start: float | None = None
    tune: Sequence[float | str] | None = None
    argument: str = ""
    stacks: bool = True
    words: "Mapping[str, Callable[[Settings], float]]" = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.tune is not None:
            if isinstance(self.tune, str) or not isinstance(self.tune, Iterable):
                raise InvalidArgumentError(f"tune is {self.tune!r}, but must list the values to try, e.g. (0.5, 1.0)")
            object.__setattr__(self, "tune", tuple(self.tune))

    def check(self, value: Any, name: str = "") -> float | str:
        """The value as a unit keeps it, or the sentence that says what is allowed; `name` stands in that sentence."""
        name = name or self.name
        if isinstance(value, str):
            return self._word(value, name)
        if self.choices:
            raise InvalidArgumentError(f"{name} is {value!r}, but must be one of {', '.join(self.choices)}")
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise DtypeError(f"{name} is {value!r}, but must be a number") from None
        low, high = self.minimum, self.maximum
        fits = (self.above is None or number > self.above) and (low is None or number >= low)
        if not isfinite(number) or not fits or (high is not None and number > high):
            raise InvalidArgumentError(f"{name} is {number}, but must {self.allowed}")
        return number

    def _word(self, value: str, name: str) -> str:
        own = name == self.name
        if value in self.choices or (own and (value in self.words or (value == LEARN and self.learnable))):
            return value
        if self.choices:
            raise InvalidArgumentError(f"{name} is {value!r}, but must be one of {', '.join(self.choices)}")
        also = [*self.words, *([LEARN] if self.learnable else [])] if own else []
        raise InvalidArgumentError(f"{name} is {value!r}, but must be {' or '.join(('a number', *map(repr, also)))}")

    @property
    def allowed(self) -> str:
        """In words, after "must": "be greater than 0 and finite", "lie in [0, 1]"."""
        if self.choices:
            return f"be one of {', '.join(self.choices)}"
        if self.minimum is not None and self.maximum is not None:
            return f"lie in [{self.minimum:g}, {self.maximum:g}]"
        low = f"greater than {self.above:g} and " if self.above is not None else ""
        low += f"at least {self.minimum:g} and " if self.minimum is not None else ""
        high = f"at most {self.maximum:g} and " if self.maximum is not None else ""
        return f"be {low}{high}finite"


@dataclass(frozen=True)
class Kind:
    """A kind of unit. `label` and `color` (on light and on dark pages; None: one is picked) are what reports show.

    `build` makes the activation: "module:name", so that reading this imports nothing, or the thing itself. `form` says
    how it is called: a "module" with the settings as keywords, an "activation" with `learnable`, `num_parameters` and
    `dim` too, a "function" as f(x, **settings). `scope` is what shares a learned value where the unit does not say.

    `stack` says how trials of the kind are computed as one stack: by the "fused" kernel of ADA with values for each
    channel; by a function with "values" for each channel; by one "module" for all trials of equal settings; a pyramidal
    kind by the stacks of its "branches"; None: not at all.

    `branches` are the units of the basal and the apical branch of a pyramidal kind. `group` is where tables put it.
    `conflict` says what is wrong with settings that are right one by one.
    """

    name: str
    label: str = ""
    color: tuple[str, str] | None = None
    parameters: tuple[Parameter, ...] = ()
    build: str | Callable[..., Any] | None = None
    form: Form = "module"
    stack: Stack | None = None
    scope: Scope = "network"
    group: str = "standard"
    branches: tuple[str, str] | None = None
    aliases: tuple[str, ...] = ()
    conflict: Callable[[Settings], str | None] | None = None

    @property
    def pyramidal(self) -> bool:
        """True where it has a basal and an apical branch."""
        return self.group == "pyramidal"

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return tuple(p.name for p in self.parameters)

    @property
    def learns(self) -> str | None:
        """The parameter that is learned unless the unit says otherwise."""
        return next((p.name for p in self.parameters if p.default == LEARN), None)

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of that name, if it has one."""
        return next((p for p in self.parameters if p.name == name), None)


# The kinds of units that come with apical: those of the paper, and torch's activations. Free of torch.

ALPHA = Parameter(1.0, above=0.0, learnable=True)


def peak_c(settings: Settings) -> float:
    """The c with which ADA's peak, at 1/alpha, is 1 high."""
    return 1.0 + log(settings["alpha"])


def unit_c(settings: Settings) -> float:
    """The c with which ADA keeps the second moment of a standard normal input as ReLU does, at 1/2.

    E[z^2 exp(-b z); z > 0] = exp(b^2 / 2) * ((1 + b^2) Phi(-b) - b phi(b)) with b = 2 alpha. For large b the difference
    cancels, and its series 2/b^3 - 12/b^5 + 90/b^7 takes its place, times 1/sqrt(2 pi).
    """
    b = 2.0 * settings["alpha"]
    if b > 20.0:
        moment = (2.0 / b**3 - 12.0 / b**5 + 90.0 / b**7) / sqrt(2.0 * pi)
    else:
        moment = exp(b * b / 2.0) * (1.0 + b * b) * erfc(b / sqrt(2.0)) / 2.0 - b / sqrt(2.0 * pi)
    return -0.5 * log(2.0 * moment)


def _fixed_alpha(settings: Settings) -> str | None:
    if settings["alpha"] == LEARN and isinstance(settings["c"], str):
        return f"c is {settings['c']!r}, which follows from alpha, but alpha is learned: give c or alpha a number"
    return None


C = Parameter(0.0, words={"peak": peak_c, "unit": unit_c})
LEAK = Parameter(0.01, minimum=0.0, maximum=1.0)
FLOOR = Parameter("on", choices=("on", "off"))
NOISE = Parameter(0.0, minimum=0.0, stacks=False)  # drawn anew in every call while training
NOISE_IN = Parameter("alpha", choices=("alpha", "input", "output", "mask"))
NOISY: dict[str, Parameter] = {"noise": NOISE, "noise_in": NOISE_IN}


def named(**parameters: Parameter | float | str) -> tuple[Parameter, ...]:
    """Parameters by name, in that order; a number or a word is a default without conditions."""
    return tuple(
        replace(p, name=name) if isinstance(p, Parameter) else Parameter(p, name=name) for name, p in parameters.items()
    )


def pyramidal(
    name: str,
    basal: Kind,
    apical: Kind,
    *,
    branches: tuple[str, str] | None = None,
    label: str = "",
    color: tuple[str, str] | None = None,
) -> Kind:
    """A pyramidal kind of two standard ones; a parameter that both have is one, with the apical branch's default.

    `branches` are their units, where these fix some of the settings.
    """
    merged = {p.name: p for p in (*basal.parameters, *apical.parameters)}
    return Kind(
        name=name,
        label=label or name,
        color=color,
        parameters=tuple(merged[key] for key in sorted(merged)),
        stack="branches" if basal.stack and apical.stack else None,
        scope=apical.scope if apical.learns or not basal.learns else basal.scope,
        group="pyramidal",
        branches=branches or (basal.name, apical.name),
        conflict=apical.conflict if not branches else None,
    )


_STANDARD = (
    Kind("relu", "ReLU", ("#3f74b3", "#6fa3e0"), build="torch.nn:ReLU", stack="module"),
    Kind(
        "leaky_relu", "leaky ReLU", ("#5b8fc9", "#a9cbf2"), named(leak=replace(LEAK, argument="negative_slope")),
        build="torch.nn:LeakyReLU", stack="module", group="leaky",
    ),
    Kind("tanh", "tanh", ("#7d7a2e", "#c2c26a"), build="torch.nn:Tanh", stack="module"),
    Kind(
        "rbf", "RBF", ("#8e5ea8", "#c09adb"), named(s=Parameter(1.0, above=0.0, learnable=True), floor=FLOOR),
        build="apical.nn.activations:RBF", form="activation", stack="values",
    ),
    Kind(
        "swish", "Swish", ("#2a8c82", "#4fc0b5"), named(beta=Parameter(LEARN, learnable=True, start=1.0)),
        build="apical.nn.activations:Swish", form="activation", stack="values",
    ),
    Kind(
        "ada", "ADA", ("#d1452b", "#ff8066"), named(alpha=ALPHA, c=C, floor=FLOOR, **NOISY),
        build="apical.nn.activations:ADA", form="activation", stack="fused", conflict=_fixed_alpha,
    ),
    Kind(
        "leaky_ada", "leaky ADA", ("#c97a12", "#f7b267"), named(alpha=ALPHA, c=C, leak=LEAK, floor=FLOOR, **NOISY),
        build="apical.nn.activations:LeakyADA", form="activation", stack="fused", group="leaky",
        conflict=_fixed_alpha,
    ),
)  # fmt: skip
_BY_NAME = {kind.name: kind for kind in _STANDARD}
_PYRAMIDAL = tuple(
    pyramidal(name, _BY_NAME[basal], _BY_NAME[apical], label=label, color=color)
    for name, label, color, basal, apical in (
        ("pynrelu", "PyNReLU", ("#1d3f73", "#4d86f0"), "relu", "relu"),
        ("pynrbf", "PyNRBF", ("#54306b", "#9a6ed6"), "relu", "rbf"),
        ("pynswish", "PyNSwish", ("#14544e", "#2fa57c"), "relu", "swish"),
        ("pynada", "PyNADA", ("#8f1d3f", "#f2608c"), "relu", "ada"),
        ("leaky_pynada", "leaky PyNADA", ("#7a4a10", "#c98a45"), "leaky_relu", "leaky_ada"),
    )
)
PAPER: dict[str, Kind] = {kind.name: kind for kind in (*_STANDARD, *_PYRAMIDAL)}
"""The paper's kinds; nobody can redefine them."""

WRITTEN_OUT = Kind("pyramidal", "pyramidal", group="pyramidal")
"""`pyramidal(basal=..., apical=...)`: its settings are two units."""


def _ordered(low: str, high: str, settings: Settings) -> str | None:
    if settings[low] > settings[high]:
        return f"{low} is {settings[low]}, but must not be above {high}, which is {settings[high]}"
    return None


def _torch(
    name: str,
    attribute: str,
    color: tuple[str, str] | None = None,
    *,
    stack: Stack | None = "module",
    **parameters: Parameter | float | str,
) -> Kind:
    return Kind(name, attribute, color, named(**parameters), build=f"torch.nn:{attribute}", stack=stack)


OTHERS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        _torch("gelu", "GELU", ("#3a8f2f", "#86d678"), approximate=Parameter("none", choices=("none", "tanh"))),
        _torch("silu", "SiLU", ("#b547b0", "#f08fec")),
        _torch("mish", "Mish", ("#6450d6", "#a79bff")),
        _torch("elu", "ELU", ("#8d6552", "#cfa692"), alpha=1.0),
        _torch("celu", "CELU", alpha=Parameter(1.0, above=0.0)),
        _torch("selu", "SELU", ("#cf4f86", "#ff9cc4")),
        Kind(
            "prelu", "PReLU", ("#4b5d57", "#9fb5ad"), named(weight=Parameter(LEARN, learnable=True, start=0.25)),
            build="apical.nn.activations:prelu", form="function", stack="values", scope="layer", aliases=("PReLU",),
        ),
        replace(
            _torch("rrelu", "RReLU", stack=None, lower=1 / 8, upper=1 / 3),  # draws anew in every call while training
            conflict=lambda settings: _ordered("lower", "upper", settings),
        ),
        _torch("relu6", "ReLU6"),
        replace(
            _torch("hardtanh", "Hardtanh", min_val=-1.0, max_val=1.0),
            conflict=lambda settings: _ordered("min_val", "max_val", settings),
        ),
        _torch("hardswish", "Hardswish"),
        _torch("hardsigmoid", "Hardsigmoid"),
        _torch("sigmoid", "Sigmoid"),
        _torch("logsigmoid", "LogSigmoid"),
        _torch("softplus", "Softplus", beta=Parameter(1.0, above=0.0), threshold=20.0),
        _torch("softsign", "Softsign"),
        _torch("softshrink", "Softshrink", lambd=Parameter(0.5, minimum=0.0)),
        _torch("hardshrink", "Hardshrink", lambd=Parameter(0.5, minimum=0.0)),
        _torch("tanhshrink", "Tanhshrink"),
        _torch("threshold", "Threshold", threshold=0.0, value=0.0),
        Kind("sign", "sign", build="apical.nn.activations:sign", form="function", stack="values"),
        Kind("gcu", "GCU", build="apical.nn.activations:gcu", form="function", stack="values"),
        Kind(
            "gaussian", "Gaussian", parameters=named(sigma=Parameter(1.0, above=0.0, learnable=True)),
            build="apical.nn.activations:gaussian", form="function", stack="values",
        ),
        Kind(
            "sine", "sine", parameters=named(omega=Parameter(1.0, learnable=True)),
            build="apical.nn.activations:sine", form="function", stack="values",
        ),
        Kind(
            "wavelet", "wavelet",
            parameters=named(
                omega=Parameter(5.0, learnable=True), sigma=Parameter(1.0, above=0.0, learnable=True)
            ),
            build="apical.nn.activations:wavelet", form="function", stack="values",
        ),
    )
}  # fmt: skip
"""Torch's activations by their names there, and some others that papers compare with; a user may redefine them."""


# The kinds of units by name, built in and registered. Reading it imports no torch, so that studies and reports can.

__all__ = [
    "LEARN",
    "SCOPES",
    "Kind",
    "Parameter",
    "color",
    "family",
    "find",
    "foreign",
    "get",
    "label",
    "names",
    "open_parameters",
    "parse",
    "register_unit",
    "stackable",
    "unregistered",
]

_REGISTERED: dict[str, Kind] = {}
_LOCAL: dict[str, Kind] = {}  # made by Unit.of of what has no name: known to this process alone
_EXAMPLE = "pynada(alpha=0.3,c=1)"


def names() -> tuple[str, ...]:
    """Every kind: the paper's, torch's, then the registered ones."""
    return (*PAPER, *(name for name in OTHERS if name not in _REGISTERED), *_REGISTERED)


def get(name: str) -> Kind | None:
    """The kind of that name, or of that class of torch; None where it is not known. Nothing is imported for it.

    `torch.nn:Mish` is the kind mish, so that trials of both are the same, unless somebody has redefined mish.
    """
    if name == WRITTEN_OUT.name:
        return WRITTEN_OUT
    kind = _REGISTERED.get(name) or PAPER.get(name) or OTHERS.get(name) or _LOCAL.get(name)
    if kind is None and (own := _places().get(name)) not in _REGISTERED:
        kind = PAPER.get(own or "") or OTHERS.get(own or "")
    if kind is None and (alias := _aliases().get(str(name).removeprefix("torch.").removeprefix("nn."))):
        kind = get(alias)
    return kind


def find(name: str) -> Kind:
    """The kind of that name, or the one that `package.module:activation` points at, where that is allowed."""
    kind = get(name)
    if kind is None and re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", str(name)):
        from apical.nn import building  # noqa: PLC0415  torch

        if not building.is_loaded(name):
            trust.require("unit", name)
        kind = _imported(name)
    if kind is None:
        more = "pyramidal(basal=..., apical=...) joins two, 'package.module:activation' names one of yours, and "
        raise InvalidArgumentError(unknown("unit", name, names(), more + imports.adding("register_unit")))
    return kind


def unregistered(text: str) -> tuple[str, ...]:
    """The names in a unit's text that are no kind in this process; whoever registers them may not be imported yet."""
    name, given = parse(text)
    branches = [parse(str(given[branch]))[0] for branch in ("basal", "apical") if branch in given]
    used = branches if name == WRITTEN_OUT.name else [name]
    return tuple(own for own in used if ":" not in own and get(own) is None)


def foreign(*texts: str) -> tuple[str, ...]:
    """Each `package.module:name` in units that brings code: all but classes of modules that are imported already."""
    places = trust.named(*texts)
    if not places:
        return ()
    from apical.nn import building  # noqa: PLC0415  torch

    return tuple(place for place in places if not building.is_loaded(place))


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """The kind and the settings in a text like `pynada(alpha=0.3,c=1)`, as they are written there.

    A setting may have the name that torch's class has for it: `LeakyReLU(negative_slope=0.2)`.
    """
    name, settings = notation.read(text, what="unit", example=_EXAMPLE)
    kind = get(name)
    for p in kind.parameters if kind is not None else ():
        if p.argument in settings and p.name not in settings:
            settings = {p.name if key == p.argument else key: value for key, value in settings.items()}
    return name, settings


def open_parameters(text: str) -> dict[str, Parameter]:
    """The parameters that a unit has and does not fix in its text, by name: what a study may tune."""
    name, given = parse(text)
    if name == WRITTEN_OUT.name:
        branches = [open_parameters(str(given[branch])) for branch in ("basal", "apical") if branch in given]
        return {key: p for parameters in branches for key, p in parameters.items()}
    return {p.name: p for p in find(name).parameters if p.name not in given}


def stackable(text: str) -> bool:
    """True where trials of this unit can be computed as one stack."""
    name, given = parse(text)
    if name == WRITTEN_OUT.name:
        return all(stackable(str(given.get(branch))) for branch in ("basal", "apical"))
    kind = get(name)
    if kind is None or kind.stack is None:
        return False
    return all(p.stacks or given.get(p.name, p.default) == p.default for p in kind.parameters)


def family(text: str) -> str:
    """A unit without its settings: what units that differ in those alone have in common, as colour or stack."""
    name, given = parse(text)
    if name == WRITTEN_OUT.name:
        return notation.write(name, {branch: family(str(given[branch])) for branch in ("basal", "apical")})
    kind = get(name)
    return name if kind is None else kind.name


def label(text: str) -> str:
    """What tables call a unit: "PyNADA (alpha=0.3)", "GELU + ADA"; a kind that is not known here goes by its name."""
    name, settings = parse(text)
    if name == WRITTEN_OUT.name and {"basal", "apical"} <= {*settings}:
        return f"{label(str(settings['basal']))} + {label(str(settings['apical']))}"
    kind = get(name)
    shown = kind.label if kind is not None else name.rpartition(":")[2]
    _, bracket, rest = text.partition("(")
    return shown + (f" ({rest.rstrip(' )')})" if bracket else "")


def built_in(name: str) -> bool:
    """True for a kind that comes with apical and that no user has redefined."""
    return name not in _REGISTERED and (name in PAPER or name in OTHERS)


def color(name: str) -> tuple[str, str] | None:
    """The colours of a kind on light and on dark pages; None where it has none of its own."""
    kind = get(name)
    return None if kind is None else kind.color


def register_unit(
    name: str,
    *,
    activation: str | Callable[..., Any] | None = None,
    function: str | Callable[..., Any] | None = None,
    basal: str | None = None,
    apical: str | None = None,
    parameters: Mapping[str, Parameter | float | str] | None = None,
    label: str | None = None,
    color: str | tuple[str, str] | None = None,
    stack: bool = False,
    scope: Scope = "network",
    group: str | None = None,
) -> None:
    """Add a kind: by a function of a tensor, by a factory of its module, or, pyramidal, by the kinds of its branches.

    `parameters` are its settings, each a `Parameter` or simply a default. A `function(x, **settings)` is called with
    numbers, or with tensors that fit x where they are learned; all of its numbers can be, unless a Parameter says
    otherwise. A factory is called `activation(**settings)`; where a Parameter is learnable, with `learnable`,
    `num_parameters` and `dim` too, as `apical.Swish` is.

    `label` and `color` ("#rrggbb", or one for light and one for dark pages) are for reports. `stack=True` promises that
    each output depends on its own input alone, so that studies may train several trials as one.

    Examples:
        >>> register_unit("bump", function=lambda x, width: torch.exp(-(x / width) ** 2), parameters={"width": 1.0})
        >>> layer = Unit.parse("bump(width=learn,width_init=2)").layers().linear(4, 3)
    """
    _check_name(name)
    if sum(given is not None for given in (activation, function, basal or apical)) != 1:
        raise InvalidArgumentError(
            f"unit {name!r} needs one of activation= (a factory of its module), function= (of a tensor and its "
            "settings), or both basal= and apical= (names of kinds)"
        )
    if isinstance(activation, str) and ":" not in activation:
        raise InvalidArgumentError(
            f"activation of unit {name!r} is {activation!r}, but must be a factory: called without arguments, it "
            "returns a module, e.g. nn.GELU; 'package.module:name' imports one"
        )
    shown, colors = label or name, _colors(name, color)
    if basal or apical:
        if parameters:
            raise InvalidArgumentError(f"unit {name!r} is pyramidal and has the parameters of its branches")
        kinds = [_branch(name, branch, text) for branch, text in (("basal", basal), ("apical", apical))]
        branches = str(basal), str(apical)
        _REGISTERED[name] = pyramidal(name, *kinds, branches=branches, label=shown, color=colors)
        return
    own = tuple(_parameter(name, key, given, function is not None) for key, given in (parameters or {}).items())
    learnable = any(p.learnable for p in own)
    kind = Kind(
        name,
        shown,
        colors,
        own,
        build=function or activation,
        form="function" if function is not None else "activation" if learnable else "module",
        stack=("values" if function is not None or learnable else "module") if stack else None,
        scope=scope,
        group=group or ("leaky" if name.startswith("leaky_") else "standard"),
    )
    from apical.nn import building  # noqa: PLC0415  torch, which whoever has an activation has loaded

    building.check_factory(kind)
    _REGISTERED[name] = kind


def _check_name(name: str) -> None:
    if not (isinstance(name, str) and name.isidentifier()):
        raise InvalidArgumentError(f"{name!r} cannot name a unit: use letters, digits and _, not starting with a digit")
    if name in (WRITTEN_OUT.name, *PAPER, *_REGISTERED):
        raise InvalidArgumentError(f"there is a unit {name!r} already: register yours under another name")


def _colors(name: str, color: str | tuple[str, str] | None) -> tuple[str, str] | None:
    pair = (color, color) if isinstance(color, str) else color
    if pair is not None and not (len(pair) == 2 and all(_is_color(c) for c in pair)):
        raise InvalidArgumentError(
            f"color of unit {name!r} is {color!r}, but must be '#rrggbb', or one for light and one for dark pages"
        )
    return None if pair is None else (pair[0].lower(), pair[1].lower())


def _is_color(text: Any) -> bool:
    return (
        isinstance(text, str)
        and len(text) == 7
        and text[0] == "#"
        and all(c in "0123456789abcdefABCDEF" for c in text[1:])
    )


def _branch(name: str, branch: str, text: str | None) -> Kind:
    """The kind of a branch, with the parameters that its text leaves open."""
    kind = None if text is None else find(parse(str(text))[0])
    if kind is None or kind.pyramidal:
        raise InvalidArgumentError(f"{branch} of unit {name!r} is {text!r}, but must name a standard kind")
    return replace(kind, parameters=tuple(open_parameters(str(text)).values()))


_TAKEN = ("kind", "settings", "scope", "basal", "apical", "pyramidal", "layers", "parse", "of", "kinds", "label", LEARN)
"""What a parameter cannot be called: `Unit` has these."""


def _parameter(unit: str, name: str, given: Parameter | float | str, learnable: bool) -> Parameter:
    if not name.isidentifier() or name in _TAKEN or name.endswith("_init") or name.startswith("_"):
        raise InvalidArgumentError(
            f"parameter {name!r} of unit {unit!r} cannot have this name: use a word other than {', '.join(_TAKEN)} "
            "that does not end in _init"
        )
    if isinstance(given, Parameter):
        parameter = replace(given, name=name)
    else:
        parameter = Parameter(given, name=name, learnable=learnable and not isinstance(given, str))
    if parameter.default == LEARN and parameter.start is None:
        raise InvalidArgumentError(
            f"parameter {name!r} of unit {unit!r} is learned, but has no initial value: give start="
        )
    parameter.check(parameter.default)
    for value in parameter.tune or ():
        parameter.check(value)
    return parameter


@cache
def _aliases() -> dict[str, str]:
    """The names of kinds by the class that they are: "GELU", "LeakyReLU", "ADA"."""
    known: dict[str, str] = {}
    for kind in (*PAPER.values(), *OTHERS.values()):
        own = [kind.build.partition(":")[2]] if isinstance(kind.build, str) and kind.form != "function" else []
        known |= dict.fromkeys((*own, *kind.aliases), kind.name)
    return known


@cache
def _places() -> dict[str, str]:
    """The names of kinds by the places of their classes, as people write torch's and as classes state them."""
    known: dict[str, str] = {}
    for kind in (*PAPER.values(), *OTHERS.values()):
        own = [kind.build] if isinstance(kind.build, str) and kind.form != "function" else []
        known |= dict.fromkeys((*own, *(f"torch.nn:{alias}" for alias in kind.aliases)), kind.name)
    return known | {place.replace("torch.nn:", "torch.nn.modules.activation:"): own for place, own in known.items()}


@cache
def _imported(name: str) -> Kind:
    """The kind of an activation that has a place of its own: `package.module:Activation`."""
    from apical.nn import building  # noqa: PLC0415  torch

    return building.kind_of(name, name.rpartition(":")[2], name)


def load(path: str) -> Any:
    """What `package.module:name` points at."""
    module, _, attribute = path.partition(":")
    try:
        thing: Any = import_module(module)
    except Exception as error:  # somebody's module may raise anything
        raise InvalidArgumentError(
            f"unit {path!r} cannot be imported ({type(error).__name__}: {error}): write package.module:activation, "
            "with the package installed or in a folder on PYTHONPATH"
        ) from error
    for part in attribute.split("."):
        thing = getattr(thing, part, None)
    if thing is None:
        raise InvalidArgumentError(f"unit {path!r} cannot be imported: module {module} has no {attribute!r}")
    home = str(getattr(thing, "__module__", None) or module)
    elsewhere = home.partition(".")[0] != module.partition(".")[0]
    if elsewhere and (inspect.isroutine(thing) or inspect.isclass(thing)):  # who allows a module allows it alone
        raise InvalidArgumentError(f"unit {path!r} is not defined there but in {home}: name it as it is there")
    return thing
