"""What a trial leaves behind: a folder, and TrialResult, which reads it."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from apical import files
from apical.errors import ApicalError, CheckpointError
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
            if trust:
                grant(*named(values["spec"].get("model"), values["spec"].get("unit")))
            return cls.of(folder, values, TrialSpec.from_dict(values["spec"]))
        except ApicalError:
            raise
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
    return CheckpointError(f"{path} is damaged ({type(error).__name__}: {error})")


def stored_spec(directory: str | Path) -> TrialSpec:
    """The spec that a trial's folder was made for."""
    path = Path(directory) / SPEC
    if not path.is_file():
        raise CheckpointError(f"{directory} is not the folder of a trial: it has no {SPEC}")
    return TrialSpec.from_json(files.read_text(path))
