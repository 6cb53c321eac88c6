"""Which neuron: the vocabulary of `apical.Unit`, read without torch.

`Unit.parse("pynada(alpha=0.3,c=1)")` reads what `apical.Unit` writes; `activation` makes a layer of what names one.
"""

import re
from dataclasses import dataclass, fields
from typing import Any

import keras

from apical.errors import InvalidArgumentError
from apical.keras.activations import ADA, RBF, LeakyADA, Swish
from apical.keras.functional import check_leak, number

# Each standard kind and its settings; each pyramidal kind and its two branches, basal and apical.
STANDARD: dict[str, tuple[str, ...]] = {
    "relu": (), "leaky_relu": ("leak",), "tanh": (), "rbf": (), "swish": (),
    "ada": ("alpha", "c"), "leaky_ada": ("alpha", "c", "leak"),
}  # fmt: skip
PYRAMIDAL = {
    "pynrelu": ("relu", "relu"), "pynrbf": ("relu", "rbf"), "pynswish": ("relu", "swish"),
    "pynada": ("relu", "ada"), "leaky_pynada": ("leaky_relu", "leaky_ada"),
}  # fmt: skip
KINDS = (*STANDARD, *PYRAMIDAL)
SCOPES = ("network", "layer", "channel")
DEFAULTS = {"alpha": 1.0, "c": 0.0, "leak": 0.01}


@dataclass(frozen=True)
class Unit:
    """One neuron: its kind, and the settings of its activations; None for those that the kind does not have.

    `alpha="learn"` learns it from `alpha_init` on, and `scope` says what shares one value: the whole network, a layer,
    or a channel; `swish` and `pynswish` learn their beta so, from 1 on.
    """

    kind: str
    alpha: float | str | None = None
    c: float | None = None
    leak: float | None = None
    scope: str = "network"
    alpha_init: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidArgumentError(f"{self.kind!r} is no kind of unit: there are {', '.join(KINDS)}")
        for name, value in self._completed().items():
            object.__setattr__(self, name, value)

    @property
    def branches(self) -> tuple[str, str] | None:
        """The kinds of the basal and the apical branch, or None where the unit is standard."""
        return PYRAMIDAL.get(self.kind)

    @property
    def learns(self) -> bool:
        """True where a value is learned: alpha, or the beta of swish."""
        return self.alpha == "learn" or "swish" in (self.kind, *(self.branches or ()))

    def _allowed(self) -> list[str]:
        own = {name for kind in self.branches or (self.kind,) for name in STANDARD[kind]}
        learned = (["alpha_init"] if self.alpha == "learn" else []) + (["scope"] if self.learns else [])
        return [*(name for name in DEFAULTS if name in own), *learned]

    def _completed(self) -> dict[str, Any]:
        """Every setting, checked, those not given at their defaults."""
        allowed = self._allowed()
        for field in fields(self)[1:]:
            if getattr(self, field.name) not in (None, field.default) and field.name not in allowed:
                takes = f"it takes {', '.join(allowed)}" if allowed else "it takes no settings"
                raise InvalidArgumentError(f"unit {self.kind!r} has no setting {field.name!r} here: {takes}")
        if self.scope not in SCOPES:
            raise InvalidArgumentError(f"scope is {self.scope!r}, but must be one of {', '.join(SCOPES)}")
        done: dict[str, Any] = {}
        for name in allowed[: len(allowed) - self.learns]:
            value = getattr(self, name)
            value = DEFAULTS[name.removesuffix("_init")] if value is None else value
            done[name] = value if value == "learn" else number(name, value, positive=name.startswith("alpha"))
        if "leak" in done:
            check_leak(done["leak"])
        return done

    @classmethod
    def parse(cls, text: "str | Unit") -> "Unit":
        """The unit that `text` names: a kind, and in brackets what differs from the defaults."""
        if isinstance(text, cls):
            return text
        match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", str(text))
        if match is None:
            raise InvalidArgumentError(
                f"{text!r} is no unit: write a kind and its settings, e.g. pynada(alpha=0.3,c=1)"
            )
        parts = match[2].split(",") if (match[2] or "").strip() else []
        settings: dict[str, Any] = {}
        for part in parts:
            name, value = _setting(str(text), part, settings)
            settings[name] = value
        return cls(match[1], **settings)

    def __str__(self) -> str:
        shown = []
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value not in (None, field.default, DEFAULTS.get(field.name.removesuffix("_init"))):
                shown.append(f"{field.name}={value if isinstance(value, str) else repr(value).removesuffix('.0')}")
        return f"{self.kind}({','.join(shown)})" if shown else self.kind

    def layer(self, kind: str, *, channels: int | None = None, axis: int = -1, dtype: Any = None) -> Any:
        """A new Keras layer for the standard `kind`, one of this unit's, with the settings of this unit."""
        if kind == "leaky_relu":
            return keras.layers.LeakyReLU(negative_slope=self.leak, dtype=dtype)
        if kind in ("relu", "tanh"):
            return keras.layers.Activation(kind, dtype=dtype)
        if kind == "rbf":
            return RBF(dtype=dtype)
        learned = {"num_parameters": self._count(channels), "axis": axis, "dtype": dtype}
        if kind == "swish":
            return Swish(**learned)
        learnable = self.alpha == "learn"
        settings = {
            **learned,
            "alpha": self.alpha_init if learnable else self.alpha,
            "c": self.c,
            "learnable": learnable,
        }
        return ADA(**settings) if kind == "ada" else LeakyADA(**(settings | {"leak": self.leak}))

    def _count(self, channels: int | None) -> int:
        if self.scope != "channel" or not self.learns:
            return 1
        if channels is None:
            raise InvalidArgumentError(
                f"unit {str(self)!r} learns one value per channel, but their number is not known"
            )
        return channels


def _setting(text: str, part: str, known: dict[str, Any]) -> tuple[str, Any]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals or not value or name in known or name not in (*DEFAULTS, "alpha_init", "scope"):
        raise InvalidArgumentError(
            f"{part.strip()!r} in {text!r} is no setting: write each of alpha, alpha_init, c, leak, scope "
            "at most once, as name=value"
        )
    return name, value if name == "scope" or value == "learn" else number(name, value)


def activation(spec: Any, *, channels: int | None = None, axis: int = -1, dtype: Any = None) -> Any:
    """A callable for `spec`: a unit's name with settings, a name that Keras knows, a layer, a function, a config."""
    if isinstance(spec, dict):
        spec = keras.saving.deserialize_keras_object(spec)
    if callable(spec):
        return spec
    if isinstance(spec, Unit) or (isinstance(spec, str) and re.split(r"\W", spec.strip(), maxsplit=1)[0] in KINDS):
        unit = Unit.parse(spec)
        if unit.branches is not None:
            raise InvalidArgumentError(
                f"{str(unit)!r} is pyramidal, not an activation: choose one of {', '.join(STANDARD)}"
            )
        return unit.layer(unit.kind, channels=channels, axis=axis, dtype=dtype)
    try:
        return keras.activations.get(spec)
    except (ValueError, TypeError):
        raise InvalidArgumentError(
            f"{spec!r} is no activation: give one of {', '.join(STANDARD)}, a name of Keras' own, a layer or a function"
        ) from None
