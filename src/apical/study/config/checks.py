"""What the fields of a study file may hold, beyond their types. Each check is a sentence or the value itself."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
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


def value(given: Any) -> Any:
    """A finite number, or "learn"."""
    if given == "learn":
        return given
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given):
        raise ValueError(f"{given!r:.60} is neither a finite number nor 'learn'")
    return float(given)


def distinct(values: list[T]) -> list[T]:
    """No value twice: it would be trained twice."""
    if len(set(values)) < len(values):
        raise ValueError(f"{values} holds a value twice")
    return values


def data(name: str) -> str:
    """A data set that there is, or the user's own by its path; what is in it is seen when the study runs."""
    from apical.data import registry  # noqa: PLC0415

    if not _own(name):
        registry.get(name)
    elif not Path(name).expanduser().exists():
        raise InvalidArgumentError(
            f"there is no {name} in {Path.cwd()}: give a path from where you run apical, or a name"
        )
    return name


def _own(name: str) -> bool:
    """True for what `apical.data.load` takes for a path."""
    from apical.data import registry  # noqa: PLC0415

    path = any(sign in name for sign in "/\\") or name.endswith((".csv", ".npz"))
    return name not in registry.RECIPES and (path or Path(name).exists())


def split(name: str, wanted: str) -> str:
    """What is wrong with asking a data set for a split; "" if nothing is."""
    from apical.data import registry  # noqa: PLC0415

    splits = ("paper",) if _own(name) else registry.get(name).splits
    return "" if wanted in splits else f"{name} has no split {wanted!r}: it has {', '.join(map(repr, splits))}"


def dims(network: str, given: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with the arguments of a network, by name."""
    found = {key: _fault({"dims": {key: item}}) for key, item in given.items()}
    allowed = _arguments(network)
    if allowed is not None:
        unknown = [key for key in given if key not in allowed]
        found |= {key: f"network {network!r} has no such argument: it has {', '.join(allowed)}" for key in unknown}
    return {key: fault for key, fault in found.items() if fault}


def _arguments(network: str) -> list[str] | None:
    """The arguments of a network but its unit; None where it takes any, or does not say."""
    from apical.models.registry import find  # noqa: PLC0415  torch

    try:
        parameters = find(network).parameters
    except (TypeError, ValueError):  # some functions written in C do not say
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    return [name for name in parameters if name != "unit"]


def task(data_name: str, network: str, settings: Mapping[str, Any]) -> str:
    """What is wrong with loss and metric for a data set that apical knows; "" if nothing is."""
    from apical.data.registry import RECIPES  # noqa: PLC0415
    from apical.train import TrialSpec, losses, metrics  # noqa: PLC0415  torch

    if data_name not in RECIPES:
        return ""
    spec, kind = TrialSpec.paper(data_name, network, **settings), RECIPES[data_name].task
    classes = kind == "classification"
    for name, allowed in (
        ("loss", losses.CLASSIFICATION if classes else losses.REGRESSION),
        ("metric", (*(metrics.CLASSIFICATION if classes else metrics.REGRESSION),)),
    ):
        if getattr(spec, name) not in allowed:
            return f"{name} is {getattr(spec, name)!r}, but {data_name} is a {kind} task: use {' or '.join(allowed)}"
    return ""


def training(given: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with training settings, by name."""
    found = {key: _training_fault(key, value) for key, value in given.items()}
    return {key: fault for key, fault in found.items() if fault}


def _training_fault(key: str, given: Any) -> str:
    from apical.train import TrialSpec  # noqa: PLC0415  torch

    if key in FIXED:
        return "this is no training setting: it belongs to the part or the row"
    known = [field.name for field in fields(TrialSpec) if field.name not in FIXED]
    if key not in known:
        near = get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}? T" if near else "t"
        return f"there is no such training setting: {hint}here are {', '.join(known)}"
    return _fault({key: given})


def _fault(some: dict[str, Any]) -> str:
    """What a TrialSpec says of some of its fields; "" if nothing."""
    from apical.train import TrialSpec  # noqa: PLC0415  torch

    try:
        TrialSpec.from_dict({"data": "digits", "model": "mlp-1"} | some)
    except InvalidArgumentError as error:
        return str(error)
    except OverflowError:
        return "the number is too large"
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
