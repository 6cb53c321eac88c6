"""What a trial leaves behind: a folder, and TrialResult, which reads it."""

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apical import files
from apical.errors import CheckpointError, InvalidArgumentError, UntrustedError
from apical.nn import kinds
from apical.train import losses, metrics
from apical.train.spec import Execution, TrialSpec
from apical.trust import grant, named

if TYPE_CHECKING:
    from torch import nn

State = Literal["done", "diverged", "stopped"]

SPEC, RESULT = "spec.json", "result.json"
LAST, BEST, FINITE = "last.safetensors", "best.safetensors", "finite.safetensors"
STACK = "stack.safetensors"


def timing(train: float, validate: float) -> dict[str, float]:
    """Of an epoch that ends now: its seconds, the time, and the load of the machine in the last minute if it is known.

    With these a report tells whether trials ran alone and in turn, and only then compares their seconds.
    """
    load = {"load": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {}
    return {"train": train, "validate": validate, "ended": time.time(), **load}


# What files of trials must hold. Their checksums may be right and their values still anything.


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


Scores = dict[str, float | None]
Whole = Annotated[int, Field(ge=0)]
Time = Annotated[float, Field(ge=0, le=1e12)]


class _Timing(_Checked):
    train: Time
    validate_: Time = Field(alias="validate")


class _Epoch(_Checked):
    epoch: Annotated[int, Field(ge=1)]
    learning_rate: float | None = None
    loss: float
    validation: Scores
    learned: Scores | None = None
    dynamics: dict[str, Scores] | None = None


class _Best(_Checked):
    epoch: Whole
    value: float | None


class Position(_Checked):
    """Where a checkpoint stands."""

    epoch: Whole
    batch: Whole
    samples: Whole
    seconds: Time
    history: list[_Epoch]
    timings: list[_Timing]
    best: _Best
    loss_sum: float
    dynamics: dict[str, Scores]
    precision: dict[str, Any]


class _Input(_Checked):
    classes: list[str] | None = None


class _Result(_Checked):
    state: Literal["done", "diverged", "stopped"]
    reason: str = ""
    best_epoch: Whole = 0
    validation: Scores
    history: list[_Epoch]
    timings: list[_Timing]
    parameters: Whole
    environment: dict[str, str]
    data: dict[str, Any]
    input: _Input


def check(schema: type[BaseModel], values: Any, epochs: int) -> None:
    """ValueError where the values of a result or checkpoint are not what a trial of so many epochs writes."""
    try:
        made: Any = schema.model_validate(values)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))[:80]}: {fault['msg']}") from None
    best = made.best_epoch if isinstance(made, _Result) else max(made.best.epoch, made.epoch)
    if max(best, len(made.history), len(made.timings)) > epochs:
        raise ValueError(f"it has more epochs than the {epochs:,} of its spec")
    if [entry.epoch for entry in made.history] != [*range(1, len(made.history) + 1)]:
        raise ValueError("its history does not count the epochs from 1 on")


def check_result(values: Mapping[str, Any]) -> None:
    """ValueError where the table of a result.json is not what a trial writes; its spec is checked apart."""
    spec = values.get("spec")
    epochs = spec.get("epochs") if isinstance(spec, dict) else None
    if type(epochs) is not int:
        raise ValueError("its spec has no epochs")
    check(_Result, values, epochs)


def check_outputs(arrays: Mapping[str, Any]) -> None:
    """ValueError where arrays are not the ids, labels and outputs of test samples, one of each for every sample."""
    missing = [name for name in ("ids", "labels", "outputs") if name not in arrays]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    ids, labels, outputs = (arrays[name] for name in ("ids", "labels", "outputs"))
    kinds = (ids.dtype.kind, labels.dtype.kind, outputs.dtype.kind)
    if kinds[0] != "U" or kinds[1] not in "iuf" or kinds[2] != "f" or ids.ndim != 1 or outputs.ndim not in (1, 2):
        raise ValueError(f"ids, labels and outputs are of the types {', '.join(str(arrays[n].dtype) for n in arrays)}")
    if labels.ndim < 1 or not 0 < len(ids) == len(labels) == len(outputs):
        raise ValueError(f"it has {ids.shape} ids, {labels.shape} labels and {outputs.shape} outputs")
    if kinds[1] in "iu" and (labels.ndim != 1 or outputs.ndim != 2 or not _within(labels, outputs.shape[1])):
        raise ValueError(f"its labels are not classes of outputs of shape {outputs.shape}")
    if kinds[1] == "f" and labels.size != outputs.size:
        raise ValueError(f"it has {labels.shape} labels for {outputs.shape} outputs")


def _within(labels: Any, classes: int) -> bool:
    return bool(labels.min() >= 0 and labels.max() < classes)


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial that ran: `state` is done, diverged (see `reason`) or stopped, and then `run` continues it.

    `best_epoch` counts from 1 (0: the initial weights); `validation` holds every metric of that model on the validation
    split. Of a diverged trial, that model is the last one with finite weights. `history` has one entry for each epoch:
    learning rate, mean training loss (without the L2 penalty), validation metrics, learned values, dynamics. `timings`
    has the seconds of each epoch, when it ended, and the load of the machine. `data` says which data it was, `input`
    how samples become inputs.
    """

    directory: Path
    spec: TrialSpec
    execution: Execution
    state: State
    reason: str = ""
    best_epoch: int = 0
    validation: Mapping[str, float | None]
    history: list[dict[str, Any]]
    timings: list[dict[str, float]]
    parameters: int
    environment: Mapping[str, str]
    data: Mapping[str, Any]
    input: Mapping[str, Any]

    @property
    def metric(self) -> float:
        """The validation metric that the spec names, of the model that is kept."""
        value = self.validation.get(self.spec.metric)
        return float("nan") if value is None else value

    @property
    def weights(self) -> Path:
        """The file with the weights of the model that is kept."""
        return self.directory / (FINITE if self.state == "diverged" else BEST)

    def network(self) -> "nn.Module":
        """The model that is kept, on the CPU, in evaluation mode."""
        from apical.train.evaluation import network_of  # noqa: PLC0415  torch is not needed to read a result

        return network_of(self)

    def save(self) -> None:
        """Write result.json, which marks the trial as finished."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "directory"}
        values |= {"spec": self.spec.as_dict(), "execution": self.execution.as_dict()}
        files.save(self.directory / RESULT, (json.dumps(values, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, directory: str | Path, *, trust: bool = False) -> Self:
        """The result in a trial's folder; only finished trials have one. `trust` allows the code that it names."""
        folder = Path(directory)
        path = folder / RESULT
        if not path.is_file():
            raise CheckpointError(f"there is no finished trial in {folder}: run it, or continue it with --resume")
        try:
            values = files.parse_json(files.read_text(path))
            check_result(values)
            if trust:
                grant(*named(values["spec"].get("model"), values["spec"].get("unit")))
            given = values["spec"]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _damaged(path, error) from error
        require_registered(path, given, "unit", "loss", "metric")
        try:
            return cls.of(folder, values, TrialSpec.from_dict(given))
        except CheckpointError:
            raise
        except UntrustedError as error:
            raise UntrustedError(f"{path}: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _damaged(path, error) from error

    @classmethod
    def of(cls, folder: Path, values: Mapping[str, Any], spec: TrialSpec) -> Self:
        """The result that a parsed result.json holds, whose spec was read already."""
        try:
            execution = Execution.from_dict(values["execution"])
            return cls(**{**values, "directory": folder, "spec": spec, "execution": execution})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _damaged(folder / RESULT, error) from error


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path} is damaged ({shorten(str(error), 200, placeholder=' ...')})")


def require_registered(place: object, spec: Mapping[str, Any], *names: str) -> None:
    """Refuse a spec whose unit, loss, metric, model or data nothing in this process registers: it is not damaged.

    What is no name at all passes: the check of the spec itself says what is wrong with it.
    """
    for name in names:
        value = spec.get(name)
        for missing in _UNREGISTERED[name](value) if isinstance(value, str) else ():
            what = {"model": "network", "data": "data set or folder"}.get(name, name)
            raise InvalidArgumentError(
                f"{place} names the {what} {missing!r:.100}, which is not known here: if a module of yours registers "
                "it, name the module with --import MODULE (in Python: import it first)"
            )


def _no_kind(text: str) -> tuple[str, ...]:
    try:
        return kinds.unregistered(text)
    except InvalidArgumentError:
        return ()


def _no_network(name: str) -> tuple[str, ...]:
    from apical.models.registry import names  # noqa: PLC0415  torch

    return () if ":" in name or name in names() else (name,)


def _no_data(name: str) -> tuple[str, ...]:
    from apical.data.registry import RECIPES  # noqa: PLC0415  torch

    path = re.fullmatch(r"\w[\w-]*", name) is None or Path(name).exists()  # which `apical.data` looks at itself
    return () if path or name in RECIPES else (name,)


_UNREGISTERED: dict[str, Callable[[str], tuple[str, ...]]] = {
    "unit": _no_kind,
    "loss": lambda name: () if name in losses.names() else (name,),
    "metric": lambda name: () if name in metrics.names() else (name,),
    "model": _no_network,
    "data": _no_data,
}
"""By the field of a spec: the names in it that nobody has registered."""


def stored_spec(directory: str | Path) -> TrialSpec:
    """The spec that a trial's folder was made for."""
    path = Path(directory) / SPEC
    if not path.is_file():
        raise CheckpointError(f"{directory} is not the folder of a trial: it has no {SPEC}")
    text, given = files.read_text(path), None
    with suppress(ValueError):  # from_json says what is wrong
        given = files.parse_json(text)
    if isinstance(given, dict):
        require_registered(path, given, *_UNREGISTERED)
    try:
        return TrialSpec.from_json(text)
    except UntrustedError as error:
        raise UntrustedError(f"{path}: {error}") from error
    except InvalidArgumentError as error:
        raise CheckpointError(f"{path} is not the spec of a trial: {error}") from error
