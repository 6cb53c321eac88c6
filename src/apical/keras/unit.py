"""Which neuron: the vocabulary of `apical.Unit`, read without torch.

`parse("pynada(alpha=0.3,c=1)")` gives a `Unit`; `activation(...)` makes a layer of whatever names an activation.
"""

import re
from dataclasses import dataclass, fields
from typing import Any, get_args

import keras

from apical.errors import InvalidArgumentError
from apical.keras.activations import ADA, RBF, LeakyADA, Swish
from apical.keras.functional import check_leak, number

STANDARD = ("relu", "leaky_relu", "tanh", "rbf", "swish", "ada", "leaky_ada")

# A pyramidal kind is its two branches, basal and apical.
PYRAMIDAL = {
    "pynrelu": ("relu", "relu"),
    "pynrbf": ("relu", "rbf"),
    "pynswish": ("relu", "swish"),
    "pynada": ("relu", "ada"),
    "leaky_pynada": ("leaky_relu", "leaky_ada"),
}
KINDS = (*STANDARD, *PYRAMIDAL)
SCOPES = ("network", "layer", "channel")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One neuron: its kind, and the settings of its activations.

    `alpha="learn"` learns it from `alpha_init`; `scope` says whether one alpha serves the network, a layer, a channel.
    """

    kind: str
    alpha: float | str = 1.0
    alpha_init: float = 1.0
    c: float = 0.0
    leak: float = 0.01
    scope: str = "network"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidArgumentError(f"{self.kind!r} is no kind of unit: choose one of {', '.join(KINDS)}")
        if self.scope not in SCOPES:
            raise InvalidArgumentError(f"scope is {self.scope!r}, but must be one of {', '.join(SCOPES)}")
        if self.alpha != "learn":
            number("alpha", self.alpha, positive=True)
        number("alpha_init", self.alpha_init, positive=True)
        number("c", self.c)
        check_leak(self.leak)

    @property
    def branches(self) -> tuple[str, str] | None:
        """The kinds of the basal and the apical branch, or None where the unit is not pyramidal."""
        return PYRAMIDAL.get(self.kind)

    def layer(self, kind: str, *, axis: int = -1, dtype: Any = None) -> Any:
        """A new Keras layer for the activation `kind`, with the settings of this unit."""
        shape = {"per_channel": self.scope == "channel", "axis": axis, "dtype": dtype}
        if kind in ("ada", "leaky_ada"):
            learnable = self.alpha == "learn"
            alpha = self.alpha_init if learnable else self.alpha
            settings = {**shape, "alpha": alpha, "c": self.c, "learnable": learnable}
            settings["per_channel"] = learnable and settings["per_channel"]
            return ADA(**settings) if kind == "ada" else LeakyADA(leak=self.leak, **settings)
        if kind == "leaky_relu":
            return keras.layers.LeakyReLU(negative_slope=self.leak, dtype=dtype)
        if kind == "swish":
            return Swish(**shape)
        return RBF(dtype=dtype) if kind == "rbf" else keras.layers.Activation(kind, dtype=dtype)

    def __str__(self) -> str:
        changed = [(f.name, getattr(self, f.name)) for f in fields(self) if f.name != "kind"]
        changed = [(n, v) for n, v in changed if v != getattr(Unit, n)]
        return self.kind + (f"({','.join(f'{n}={v}' for n, v in changed)})" if changed else "")


def parse(text: "str | Unit") -> Unit:
    """The unit that `text` names: a kind, and in brackets what differs from the defaults."""
    if isinstance(text, Unit):
        return text
    match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", str(text))
    if match is None:
        raise InvalidArgumentError(f"{text!r} is no unit: write a kind and its settings, e.g. 'pynada(alpha=0.3,c=1)'")
    kind, inside = match[1], (match[2] or "").strip()
    return Unit(kind=kind, **dict(_setting(text, item) for item in inside.split(",") if inside))


def _setting(text: str, item: str) -> tuple[str, Any]:
    allowed = {f.name: f.type for f in fields(Unit) if f.name != "kind"}
    name, equals, value = (part.strip() for part in item.partition("="))
    if not equals or name not in allowed:
        raise InvalidArgumentError(
            f"{text!r} has the setting {item.strip()!r}, but a unit takes {', '.join(allowed)}: write e.g. 'ada(alpha=0.3)'"
        )
    if str not in get_args(allowed[name]) and allowed[name] is not str:
        return name, number(name, value)
    return name, value if name == "scope" or value == "learn" else number(name, value)


def activation(spec: Any, *, axis: int = -1) -> Any:
    """A callable for `spec`: a unit's name with settings, a name that Keras knows, a layer, a function, a config."""
    if isinstance(spec, dict):
        spec = keras.saving.deserialize_keras_object(spec)
    if callable(spec):
        return spec
    if isinstance(spec, str) and re.split(r"\W", spec.strip(), maxsplit=1)[0] in KINDS:
        unit = parse(spec)
        if unit.branches is not None:
            raise InvalidArgumentError(f"{spec!r} is a pyramidal unit, not an activation: choose one of {', '.join(STANDARD)}")
        return unit.layer(unit.kind, axis=axis)
    try:
        return keras.activations.get(spec)
    except (ValueError, TypeError):
        raise InvalidArgumentError(
            f"{spec!r} is no activation: give one of {', '.join(STANDARD)}, a name that Keras knows, a layer or a function"
        ) from None
