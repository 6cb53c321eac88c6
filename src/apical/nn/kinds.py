"""The kinds of neurons by name: their settings, and the activation modules they stand for.

A standard kind names an activation, a pyramidal kind names the standard kinds of its basal and its apical branch.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from torch import nn

from apical.errors import InvalidArgumentError
from apical.functional import check_leak, check_number
from apical.nn.activations import ADA, RBF, LeakyADA, Swish

Settings = Mapping[str, Any]

SCOPES = ("network", "layer", "channel")
_START = {"alpha": 1.0, "c": 0.0, "leak": 0.01}


@dataclass(frozen=True)
class Standard:
    """An activation: `build(settings, count, dim)` makes the module; `learns` names a parameter learned by default."""

    build: Callable[[Settings, int, int], nn.Module]
    settings: tuple[str, ...] = ()
    learns: str | None = None


@dataclass(frozen=True)
class Pyramidal:
    """Two branches, each named by its standard kind."""

    basal: str
    apical: str

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(name for name in _START if name in (*find(self.basal).settings, *find(self.apical).settings))

    @property
    def learns(self) -> str | None:
        return find(self.basal).learns or find(self.apical).learns


def _ada(module: type[ADA]) -> Callable[[Settings, int, int], nn.Module]:
    def build(settings: Settings, count: int, dim: int) -> nn.Module:
        learn = settings["alpha"] == "learn"
        alpha = settings.get("alpha_init", _START["alpha"]) if learn else settings["alpha"]
        own = {name: settings[name] for name in ("c", "leak") if name in settings}
        return module(alpha=alpha, learnable=learn, num_parameters=count, dim=dim, **own)

    return build


_BUILT_IN: dict[str, Standard | Pyramidal] = {
    "relu": Standard(lambda settings, count, dim: nn.ReLU()),
    "leaky_relu": Standard(lambda settings, count, dim: nn.LeakyReLU(settings["leak"]), ("leak",)),
    "tanh": Standard(lambda settings, count, dim: nn.Tanh()),
    "rbf": Standard(lambda settings, count, dim: RBF()),
    "swish": Standard(lambda settings, count, dim: Swish(num_parameters=count, dim=dim), learns="beta"),
    "ada": Standard(_ada(ADA), ("alpha", "c")),
    "leaky_ada": Standard(_ada(LeakyADA), ("alpha", "c", "leak")),
    "pynrelu": Pyramidal("relu", "relu"),
    "pynrbf": Pyramidal("relu", "rbf"),
    "pynswish": Pyramidal("relu", "swish"),
    "pynada": Pyramidal("relu", "ada"),
    "leaky_pynada": Pyramidal("leaky_relu", "leaky_ada"),
}
_REGISTERED: dict[str, Standard | Pyramidal] = {}


def names() -> tuple[str, ...]:
    """Every kind, the built-in ones first."""
    return (*_BUILT_IN, *_REGISTERED)


def find(name: str) -> Standard | Pyramidal:
    """The kind of that name, or the sentence that lists them all."""
    kind = _BUILT_IN.get(name) or _REGISTERED.get(name)
    if kind is None:
        close = get_close_matches(str(name).lower(), names(), n=1)
        hint = f"did you mean {close[0]!r}? T" if close else "t"
        raise InvalidArgumentError(
            f"{name!r} is no kind of unit: {hint}here are {', '.join(names())}; apical.register_unit adds others"
        )
    return kind


def register_unit(
    name: str,
    *,
    activation: Callable[[], nn.Module] | None = None,
    basal: str | None = None,
    apical: str | None = None,
) -> None:
    """Add a kind: a standard one by a factory of its activation, or a pyramidal one by the kinds of its branches.

    Examples:
        >>> register_unit("gelu", activation=nn.GELU)
        >>> register_unit("pyngelu", basal="relu", apical="gelu")
    """
    if not (isinstance(name, str) and name.isidentifier()):
        raise InvalidArgumentError(f"{name!r} cannot name a unit: use letters, digits and _, not starting with a digit")
    if name in names():
        raise InvalidArgumentError(f"there is a unit {name!r} already: register yours under another name")
    if (activation is None) == (basal is None and apical is None):
        raise InvalidArgumentError(
            f"unit {name!r} needs either activation= (a factory of its module) or basal= and apical= (names of kinds)"
        )
    if activation is not None:
        make = activation
        _check_factory(name, make)
        _REGISTERED[name] = Standard(lambda settings, count, dim: make())
        return
    for branch, kind in (("basal", basal), ("apical", apical)):
        if kind is None or isinstance(find(kind), Pyramidal):
            raise InvalidArgumentError(f"{branch} of unit {name!r} is {kind!r}, but must name a standard kind")
    _REGISTERED[name] = Pyramidal(str(basal), str(apical))


def _check_factory(name: str, make: Any) -> None:
    """Refuse what does not give a module when it is called without arguments, before a network is half built."""
    try:
        made = None if isinstance(make, nn.Module) else make()
    except Exception:  # whatever it is, the sentence below says what to give instead
        made = None
    if not isinstance(made, nn.Module):
        raise InvalidArgumentError(
            f"activation of unit {name!r} is {make!r}, but must be a factory: called without arguments, it returns a "
            "module, e.g. nn.GELU or lambda: MyActivation(2.0)"
        )


def complete(name: str, given: Settings) -> dict[str, Any]:
    """All settings of a unit, checked, the ones not given (None) at their defaults."""
    kind = find(name)
    settings = {key: value for key, value in given.items() if value is not None}
    learn = settings.get("alpha") == "learn"
    allowed = [*kind.settings, *(["alpha_init"] if learn else []), *(["scope"] if learn or kind.learns else [])]
    for key, value in settings.items():
        if key not in allowed and (key, value) != ("scope", "network"):
            raise InvalidArgumentError(_refusal(name, key, kind, allowed))
    done = {key: settings.get(key, _START[key]) for key in kind.settings}
    if "alpha_init" in settings:  # else the network says where alpha starts, or it starts at 1
        done["alpha_init"] = settings["alpha_init"]
    done = {key: _value(key, value) for key, value in done.items()}
    done["scope"] = settings.get("scope", "network")
    if done["scope"] not in SCOPES:
        raise InvalidArgumentError(f"scope is {done['scope']!r}, but must be one of {', '.join(SCOPES)}")
    return done


def _refusal(name: str, key: str, kind: Standard | Pyramidal, allowed: list[str]) -> str:
    takes = f"it takes {', '.join(allowed)}" if allowed else "it takes no settings"
    if key in ("scope", "alpha_init") and "alpha" in kind.settings:
        return f"unit {name!r} has {key}= but learns nothing: add alpha='learn', or leave {key} out"
    return f"unit {name!r} has no setting {key!r}: {takes}"


def _value(key: str, value: Any) -> Any:
    if key == "alpha" and value == "learn":
        return value
    if isinstance(value, str):
        also = " or 'learn'" if key == "alpha" else ""
        raise InvalidArgumentError(f"{key} is {value!r}, but must be a number{also}")
    number = check_number(key, value, above=0.0 if key.startswith("alpha") else float("-inf"))
    if key == "leak":
        check_leak("leak", number)
    return number


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """The kind and the settings in a text like `pynada(alpha=0.3,c=1)`."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text)
    if match is None:
        raise InvalidArgumentError(f"{text!r} is no unit: write a kind and its settings, e.g. pynada(alpha=0.3,c=1)")
    settings: dict[str, Any] = {}
    known = (*_START, "alpha_init", "scope")
    for part in (match[2] or "").split(",") if (match[2] or "").strip() else []:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value or key not in known or key in settings:
            close = get_close_matches(key.lower(), known, n=1) if key not in known else []
            hint = f"did you mean {close[0]!r}? W" if close else "w"
            raise InvalidArgumentError(
                f"{part.strip()!r} in {text!r} is no setting: {hint}rite each of alpha, alpha_init, c, leak, scope "
                "at most once, as name=value"
            )
        settings[key] = _number_or_word(value)
    return match[1], settings


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def write(name: str, settings: Settings) -> str:
    """The text that `parse` reads back; settings at their defaults are left out."""
    defaults = complete(name, {"alpha": "learn"} if settings.get("alpha") == "learn" else {})
    shown = [
        f"{key}={value if isinstance(value, str) else repr(value).removesuffix('.0')}"
        for key, value in settings.items()
        if value is not None and (value != defaults.get(key) or value == "learn")
    ]
    return f"{name}({','.join(shown)})" if shown else name


def build(name: str, settings: Settings, channels: int | None, dim: int) -> nn.Module:
    """The activation module of a standard kind, with one learned value per channel where the scope says so."""
    kind = find(name)
    if isinstance(kind, Pyramidal):
        raise InvalidArgumentError(
            f"{name!r} is pyramidal: it has two activations, {kind.basal!r} and {kind.apical!r}, "
            "and comes with its affine layer; ask for a linear or convolution layer, or name a standard kind"
        )
    count = 1
    if settings["scope"] == "channel" and (settings.get("alpha") == "learn" or kind.learns):
        if channels is None:
            raise InvalidArgumentError(f"unit {name!r} learns one value per channel: say how many with channels=")
        count = channels
    return kind.build(settings, count, dim)


def activation(which: object, channels: int | None, dim: int) -> nn.Module:
    """`which` itself if it is a module; else the module that its text names (`"ada"`, `"ada(alpha=0.3)"`, a Unit)."""
    if isinstance(which, nn.Module):
        return which
    name, given = parse(str(which))
    return build(name, complete(name, given), channels, dim)
