"""What a study directory holds, as plain values: rows, their settings, their trials; `read` and `status` fill them.

Importing this needs no torch: a report is made where nothing was ever trained.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apical import files, imports, train
from apical.errors import ApicalError, StudyError
from apical.nn import Unit
from apical.study.directory import RESULT, STUDY, Store
from apical.study.model import FINISHED, Part, Row, State, Study
from apical.study.plan import Plan, Planned, fields_of, plan
from apical.study.selection import best_trial
from apical.study.state import Progress, StudyState, count_states, measure, scores, snapshot, state_of
from apical.train.result import check_outputs
from apical.trust import decide, grant

if TYPE_CHECKING:
    from apical.train import Execution, TrialResult, TrialSpec

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
    `history` and `timings` have one entry for each epoch (see `apical.train.TrialResult`).
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
    timings: list[dict[str, float]] = field(default_factory=list)
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
        value = self.validation.get(self.metric)
        return nan if value is None else value

    @property
    def seconds(self) -> list[float]:
        """The training time of each epoch."""
        return [t["train"] for t in self.timings]

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
        arrays = files.read_npz(path, what="outputs", follow=False)
        check_outputs(arrays)
        return Outputs(*(arrays[name] for name in Outputs._fields))
    except ValueError as error:
        raise StudyError(f"{path} is missing or damaged ({error})") from error


@dataclass(frozen=True, kw_only=True)
class SettingResults:
    """One setting of a row's tuned parameters, with its tuning trials."""

    setting: str
    alpha: float | str | None = None
    c: float | str | None = None
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

    row: Row
    part: Part
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

    study: Study
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
        raise StudyError(f"unknown row {key!r}; available: {', '.join(r.row.key for r in self.rows)}")

    def dataframe(self) -> Any:
        """A pandas data frame with a line for each trial, as `apical.study.export` writes them."""
        from apical.study.maintenance import gather  # noqa: PLC0415  it reads what is defined here

        return imports.optional("pandas", extra="pandas").DataFrame(gather(self))

    def plot(self, part: str | None = None) -> Any:
        """The first picture of the report as a matplotlib figure: means, intervals and gains of a part."""
        return import_module("apical.report.draw").plot(self, part)

    def _repr_html_(self) -> str:
        """For notebooks: the sentence of the report, and the rows."""
        return str(import_module("apical.report.conclusion").notebook(self))


# A study directory as it stands, whatever lies in it.


def opened(directory: str | Path, *, trust: bool = False) -> tuple[Store, Plan]:
    """The directory, and the plan of the study in it."""
    store = Store.open(directory)
    study = store.study
    decide(store.directory / STUDY, study.modules(networks=False, loaded=False), trust=trust)
    return store, plan(study, tune_trials=store.header.tune_trials)


def frozen(directory: str | Path, *, trust: bool = False) -> Study:
    """The study that a directory was made for; `trust` allows the modules that it names, see `load`."""
    store = Store.open(directory)
    study = store.study
    if trust:
        grant(*study.modules())
    return study


def status(directory: str | Path, *, trust: bool = False) -> Progress:
    """Counts, what runs now and where, and the time left at the present number of workers."""
    store, planned = opened(directory, trust=trust)
    study_state = snapshot(planned, store)
    with files.using(store.directory):
        running = store.leases.running(study_state.keys_left)
        return measure(study_state, store, running)


def read(directory: str | Path, *, trust: bool = False) -> StudyResults:
    """Everything that a study directory holds; `trust` allows the modules that its study names, see `load`."""
    store, planned = opened(directory, trust=trust)
    with files.using(store.directory):
        return _Reader(store, planned).results()


class _Reader:
    """Trials are read once each, though rows may share them, and so is each of their files."""

    def __init__(self, store: Store, planned: Plan) -> None:
        self.store, self.plan, self.study = store, planned, planned.study
        self._parsed: dict[Path, dict[str, Any] | None] = {}
        self.state = snapshot(planned, store, trust=False, read=self.parsed)
        self.running = store.leases.running(self.state.keys_left)
        self._records: dict[str, TrialRecord] = {}

    def parsed(self, path: Path) -> dict[str, Any] | None:
        """The table in a JSON file of a trial: for the state of the study first, then for the trial's record."""
        if path not in self._parsed:
            self._parsed[path] = files.read_json(path)
        return self._parsed[path]

    def results(self) -> StudyResults:
        rows = tuple(self.row(row) for row in self.study.rows)
        environments = [r.environment for r in self._records.values() if r.environment]
        return StudyResults(
            study=self.study,
            directory=self.store.directory,
            rows=rows,
            states=count_states(self.state, self.running),
            created=self.store.header.created,
            commands=self.store.commands(),
            environment=environments[-1] if environments else {},
            missing=tuple(missing(self.state, self.store.directory)),
            finished=self.state.finished,
            seconds_left=measure(self.state, self.store, self.running).seconds_left,
        )

    def row(self, row: Row) -> RowResults:
        part = self.study.part(row.part)
        if row.quoted:
            return RowResults(row=row, part=part)
        trials = tuple(self.record(t) for t in self.state.finals.get(row.key, ()))
        trials = tuple(t for t in trials if t.state != "planned")
        best = best_trial(self.study.metric(part.metric), [t.value for t in trials])
        return RowResults(
            row=row,
            part=part,
            chosen=self.state.chosen.get(row.key),
            settings=tuple(self.setting(row, setting) for setting in self.plan.settings(row)),
            trials=trials,
            best=None if best is None else trials[best],
        )

    def setting(self, row: Row, setting: str) -> SettingResults:
        unit = Unit.parse(fields_of(setting)["unit"])
        trials = [t for t in self.state.tuning[row.key] if t.setting == setting]
        return SettingResults(setting=setting, alpha=unit.alpha, c=unit.c, trials=tuple(self.record(t) for t in trials))

    def record(self, trial: Planned) -> TrialRecord:
        if trial.digest not in self._records:
            self._records[trial.digest] = self._read(trial)
        return self._records[trial.digest]

    def _read(self, trial: Planned) -> TrialRecord:
        state: Any = state_of(self.state, trial.digest, self.running)
        bare = TrialRecord(
            digest=trial.digest,
            directory=None,
            spec=trial.spec,
            state=state,
            seed=trial.trial,
            metric=trial.spec.metric,
        )
        folder = self.store.trial(trial.digest)
        if state == "failed":
            return replace(bare, reason=self.reason(trial.digest))
        if trial.digest not in self.state.facts:
            return bare
        try:
            values = self.parsed(folder / RESULT) or {}
            result = train.TrialResult.of(folder, values, trial.spec)  # the snapshot compared their digests
            return filled(bare, result, scores(folder, self.parsed))
        except ApicalError as error:
            if place := files.fatal(error):
                raise place from error
            return replace(bare, state="failed", reason=str(error))

    def reason(self, digest: str) -> str:
        if digest in self.state.damaged:
            return f"{self.store.trial(digest)} is damaged: apical study retry {self.store.directory}, and run again"
        return str(self.store.failure(digest).get("reason", ""))


def filled(bare: TrialRecord, result: "TrialResult", test: Mapping[str, float] | None) -> TrialRecord:
    """A record with the numbers of a finished trial."""
    return replace(
        bare, directory=result.directory, reason=result.reason, validation=result.validation,
        best_epoch=result.best_epoch, history=result.history, timings=result.timings,
        parameters=result.parameters, classes=tuple(result.input.get("classes") or ()),
        environment=result.environment, execution=result.execution, test=test,
    )  # fmt: skip


def missing(study_state: StudyState, directory: Path) -> list[str]:
    """What is not there, in sentences."""
    said = []
    if study_state.tuning_left:
        said.append(f"{len(study_state.tuning_left)} tuning trials are not finished")
    if study_state.finals_left:
        said.append(f"{len(study_state.finals_left)} trials of chosen settings are not finished")
    if tests := sum(map(len, study_state.tests_left.values())):
        said.append(f"{tests} trials are not tested")
    failed = [t for t in study_state.known if t.digest in study_state.failed]
    if failed:
        count = len({t.digest for t in failed})
        said.append(f"{count} trials failed: fix the cause, then: apical study retry {directory}, and run again")
    return said
