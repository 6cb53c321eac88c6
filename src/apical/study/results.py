"""What a study directory holds, as plain values: rows, their settings, their trials. `apical.study.read` fills them.

Nothing here needs torch: a report is made where nothing was ever trained.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apical.errors import StudyError

if TYPE_CHECKING:
    from apical.study.model import Part, Row, Study
    from apical.train import Execution, TrialSpec

State = Literal["planned", "running", "done", "diverged", "failed"]
STATES: tuple[State, ...] = ("planned", "running", "done", "diverged", "failed")
FINISHED: tuple[State, ...] = ("done", "diverged")
OUTPUTS = "test.npz"


class Outputs(NamedTuple):
    """Of every test sample its id, its label and the network's answer: log-probabilities (n, classes), or values."""

    ids: NDArray[np.str_]
    labels: NDArray[Any]
    outputs: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One trial. Only a finished one (done, diverged) has numbers; a failed one has its `reason`.

    `validation` and `test` hold every metric by name, `test` is None until the test split was opened for this trial.
    `classes` are the names of the classes, none where a value is predicted.
    `history` has one entry for each epoch (see `apical.train.TrialResult`), `seconds` the training time of each.
    """

    digest: str
    directory: Path | None
    spec: "TrialSpec"
    state: State
    reason: str = ""
    seed: int
    metric: str
    validation: Mapping[str, float | None] = field(default_factory=dict)
    best_epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    parameters: int = 0
    classes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    execution: "Execution | None" = None
    test: Mapping[str, float] | None = None

    def __repr__(self) -> str:
        test = "" if self.test is None else f", test {self.metric} {self.test.get(self.metric, nan):.4g}"
        return f"<trial {self.digest[:8]}: seed {self.seed}, {self.state}, validation {self.value:.4g}{test}>"

    @property
    def value(self) -> float:
        """The validation metric that the trial is judged by; NaN where there is none."""
        found = self.validation.get(self.metric)
        return nan if found is None else found

    @property
    def finished(self) -> bool:
        """True where the trial came to its end."""
        return self.state in FINISHED

    def outputs(self) -> Outputs:
        """The answers on the test split, read from the trial's folder now."""
        if self.directory is None or self.test is None:
            raise StudyError(f"trial {self.digest[:8]} was not tested yet: run the study to its end")
        return read_outputs(self.directory / OUTPUTS)


def read_outputs(path: Path) -> Outputs:
    """The arrays that `apical.train.evaluate` stored."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return Outputs(*(arrays[name] for name in Outputs._fields))
    except Exception as error:  # numpy and zipfile raise a dozen kinds for a damaged file
        raise StudyError(f"{path} is missing or damaged ({type(error).__name__}: {error})") from error


@dataclass(frozen=True, kw_only=True)
class SettingResults:
    """One setting of a row's tuned parameters, with its tuning trials."""

    setting: str
    alpha: float | str | None = None
    c: float | None = None
    trials: tuple[TrialRecord, ...] = ()

    @property
    def validation(self) -> float:
        """Mean over the tuning trials of the metric they are judged by; NaN where none of them has it."""
        values = [t.value for t in self.trials if isfinite(t.value)]
        return sum(values) / len(values) if values else nan


@dataclass(frozen=True, kw_only=True)
class RowResults:
    """One row: the setting that validation chose (None until it can), and the trials of that setting that exist.

    `best` is the best of these trials by validation: it gives the number that compares with the paper's.
    """

    row: "Row"
    part: "Part"
    chosen: str | None = None
    settings: tuple[SettingResults, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    best: TrialRecord | None = None

    def __repr__(self) -> str:
        return f"<row {self.row.key}: {self.chosen or 'nothing chosen yet'}, {len(self.trials)} trials>"

    def tests(self, metric: str) -> list[float]:
        """The test values of the trials that were tested, in the order of their seeds."""
        return [t.test[metric] for t in self.trials if t.test is not None and metric in t.test]


@dataclass(frozen=True, kw_only=True)
class StudyResults:
    """A study directory as it stands. `missing` says in sentences what is not there yet; `finished`: nothing is."""

    study: "Study"
    directory: Path
    rows: tuple[RowResults, ...]
    states: Counter[str]
    created: str = ""
    commands: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    finished: bool = False
    seconds_left: float | None = None

    def __repr__(self) -> str:
        trials = ", ".join(f"{count} {state}" for state, count in self.states.items() if count)
        return f"<results of {self.study.title!r}: {len(self.rows)} rows, trials: {trials or 'none'}>"

    def row(self, key: str) -> RowResults:
        """The row of that key."""
        for row in self.rows:
            if row.row.key == key:
                return row
        raise StudyError(f"there is no row {key!r}; there are {', '.join(r.row.key for r in self.rows)}")
