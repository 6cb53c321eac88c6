"""From a unit to the Keras layer of its activation; the vocabulary is `apical.Unit`, which needs no torch."""

import re
from typing import Any

import keras

from apical.errors import InvalidArgumentError, unknown
from apical.keras.activations import ADA, RBF, LeakyADA, Swish
from apical.nn.kinds import PAPER, WRITTEN_OUT
from apical.nn.unit import Unit

KINDS = tuple(PAPER)
"""The kinds of units that have Keras layers."""
STANDARD = tuple(name for name, kind in PAPER.items() if not kind.pyramidal)


def parse(text: str | Unit) -> Unit:
    """The unit that `text` names, if Keras layers can be made of it."""
    unit = Unit.parse(text)
    for branch in (unit.basal, unit.apical) if unit.pyramidal else (unit,):
        if branch.kind not in STANDARD:
            raise InvalidArgumentError(unknown("unit for Keras", branch.kind, KINDS))
        if branch.kind == "rbf" and branch.learned:
            raise InvalidArgumentError(
                f"unit {str(unit)!r} learns s, but RBF for Keras has a fixed one: write rbf(s=1)"
            )
        if branch.floor == "off":
            raise InvalidArgumentError(f"unit {str(unit)!r} has floor=off, which Keras layers lack: leave it out")
        if branch.noise:
            raise InvalidArgumentError(f"unit {str(unit)!r} has noise, which Keras layers lack: leave it out")
    return unit


def layer(unit: Unit, *, channels: int | None = None, axis: int = -1, dtype: Any = None) -> Any:
    """A new Keras layer for a standard unit."""
    settings = dict(unit.settings)
    scope = settings.pop("scope")
    settings.pop("floor", None)
    settings.pop("noise", None)
    settings.pop("noise_in", None)
    if unit.kind == "leaky_relu":
        return keras.layers.LeakyReLU(negative_slope=unit.leak, dtype=dtype)
    if unit.kind in ("relu", "tanh"):
        return keras.layers.Activation(unit.kind, dtype=dtype)
    if unit.kind == "rbf":
        return RBF(s=unit.s, dtype=dtype)
    for parameter in unit.parameters:
        if settings.get(parameter.name) == "learn":
            start = settings.pop(f"{parameter.name}_init", parameter.start)
            settings[parameter.name] = parameter.default if start is None else start
        elif settings.get(parameter.name) in parameter.words:
            settings[parameter.name] = parameter.words[settings[parameter.name]](unit.settings)
    learned = {"learnable": bool(unit.learned), "num_parameters": _count(unit, scope, channels), "axis": axis}
    return {"swish": Swish, "ada": ADA, "leaky_ada": LeakyADA}[unit.kind](**settings, **learned, dtype=dtype)


def _count(unit: Unit, scope: str, channels: int | None) -> int:
    if scope != "channel" or not unit.learned:
        return 1
    if channels is None:
        raise InvalidArgumentError(f"unit {str(unit)!r} learns one value per channel, but their number is not known")
    return channels


def activation(spec: Any, *, channels: int | None = None, axis: int = -1, dtype: Any = None) -> Any:
    """A callable for `spec`: a unit's name with settings, a name that Keras knows, a layer, a function, a config."""
    if isinstance(spec, dict):
        spec = keras.saving.deserialize_keras_object(spec)
    if callable(spec):
        return spec
    word = re.split(r"\W", spec.strip(), maxsplit=1)[0] if isinstance(spec, str) else ""
    if isinstance(spec, Unit) or word in (*KINDS, WRITTEN_OUT.name):
        unit = parse(spec)
        if unit.pyramidal:
            raise InvalidArgumentError(
                f"{str(unit)!r} is pyramidal, not an activation: choose one of {', '.join(STANDARD)}"
            )
        return layer(unit, channels=channels, axis=axis, dtype=dtype)
    try:
        return keras.activations.get(spec)
    except (ValueError, TypeError):
        more = "a name of Keras' own, a layer or a function works too"
        raise InvalidArgumentError(unknown("activation", spec, STANDARD, more)) from None
