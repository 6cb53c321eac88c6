"""What the fields of a study file may hold, beyond their types. Each check is a sentence or the value itself."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from apical.errors import ApicalError, InvalidArgumentError

T = TypeVar("T")

FIXED = ("data", "model", "unit", "dims", "split", "partial", "corruptions", "seed", "results_version")
"""Fields of a TrialSpec that are no training settings: the part, the row and the plan give them."""


def unit(text: str) -> str:
    """A unit as `Unit.parse` reads it; kept as it is written, since `ada(alpha=1)` is not to be tuned and `ada` is."""
    from apical.nn import Unit  # noqa: PLC0415  torch

    Unit.parse(text)
    return text


def model(name: str) -> str:
    """A network that there is; a factory is imported."""
    from apical.models.registry import find  # noqa: PLC0415  torch

    try:
        find(name)
    except ApicalError:
        raise
    except Exception as error:  # a factory's module may raise anything
        raise InvalidArgumentError(f"network {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    return name


def corruption(text: str) -> str:
    """A corruption as `apical.data.corrupt` reads it, in its canonical form."""
    from apical.data import corruptions  # noqa: PLC0415  torch

    return str(corruptions.parse(text))


def distinct(values: list[T]) -> list[T]:
    """No value twice: it would be trained twice."""
    if len(set(values)) < len(values):
        raise ValueError(f"{values} holds a value twice")
    return values


def data(name: str, split: str) -> None:
    """A data set that there is, with that split; paths are looked at when the study runs."""
    from apical.data import registry  # noqa: PLC0415  most files name no data of their own

    own = any(sign in name for sign in "/\\") or name.endswith((".csv", ".npz"))
    splits = ("paper",) if own else registry.get(name).splits
    if split not in splits:
        raise InvalidArgumentError(f"{name} has no split {split!r}: it has {', '.join(map(repr, splits))}")


def dims(network: str, given: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with the arguments of a network, by name."""
    from apical.models.registry import find  # noqa: PLC0415  torch

    parameters = find(network).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return {}
    allowed = [name for name in parameters if name != "unit"]
    return {key: f"network {network!r} has {', '.join(allowed)} to set" for key in given if key not in allowed}


def training(given: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with training settings, by name."""
    found = {key: _training_fault(key, value) for key, value in given.items()}
    return {key: fault for key, fault in found.items() if fault}


def _training_fault(key: str, value: Any) -> str:
    from apical.train import TrialSpec  # noqa: PLC0415  torch

    if key in FIXED:
        return f"{key} is no training setting: it belongs to the part or the row"
    try:
        TrialSpec.from_dict({"data": "digits", "model": "mlp-1", key: value})
    except InvalidArgumentError as error:
        return str(error)
    return ""


def tunes(text: str, parameter: str) -> bool:
    """True where the unit has the parameter and does not fix it."""
    from apical.nn import kinds  # noqa: PLC0415  torch

    kind, given = kinds.parse(text)
    return parameter in kinds.find(kind).settings and parameter not in given


def tuning(text: str, parameter: str, values: Sequence[Any]) -> str:
    """What is wrong with trying these values of a parameter of a unit; "" if nothing is."""
    from apical.nn import Unit  # noqa: PLC0415  torch

    if not tunes(text, parameter):
        return f"unit {text!r} has no {parameter} to tune, or fixes it itself"
    try:
        for value in values:
            replace(Unit.parse(text), **{parameter: value})
    except InvalidArgumentError as error:
        return str(error)
    return ""
