"""`read` and `status`: a study directory as it stands, whatever lies in it."""

from collections.abc import Mapping
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

from apical import files
from apical.errors import ApicalError
from apical.nn import Unit
from apical.study.directory import SCORES, Store
from apical.study.model import Row, Study
from apical.study.plan import Plan, Planned, plan
from apical.study.results import RowResults, SettingResults, StudyResults, TrialRecord
from apical.study.selection import best_trial
from apical.study.state import Progress, Standing, count_states, look, measure, state_of
from apical.train import TrialResult


def opened(directory: str | Path) -> tuple[Store, Plan]:
    """The directory, and the plan of the study in it."""
    store = Store.open(directory)
    return store, plan(Study.from_dict(store.header.study), tune_trials=store.header.tune_trials)


def frozen(directory: str | Path) -> Study:
    """The study that a directory was made for."""
    return Study.from_dict(Store.open(directory).header.study)


def status(directory: str | Path) -> Progress:
    """Counts, what runs now and where, and the time left at the present number of workers."""
    store, planned = opened(directory)
    standing = look(planned, store)
    running = store.leases.running(standing.keys_left)
    return measure(standing, store, running)


def read(directory: str | Path) -> StudyResults:
    """Everything that a study directory holds."""
    store, planned = opened(directory)
    return _Reader(store, planned).results()


class _Reader:
    """Trials are read once each, though rows may share them."""

    def __init__(self, store: Store, planned: Plan) -> None:
        self.store, self.plan, self.study = store, planned, planned.study
        self.standing = look(planned, store, trust=False)
        self.running = store.leases.running(self.standing.keys_left)
        self._records: dict[str, TrialRecord] = {}

    def results(self) -> StudyResults:
        rows = tuple(self.row(row) for row in self.study.rows)
        environments = [r.environment for r in self._records.values() if r.environment]
        return StudyResults(
            study=self.study,
            directory=self.store.directory,
            rows=rows,
            states=count_states(self.standing, self.running),
            created=self.store.header.created,
            commands=self.store.commands(),
            environment=environments[-1] if environments else {},
            missing=tuple(missing(self.standing)),
            finished=self.standing.finished,
            seconds_left=measure(self.standing, self.store, self.running).seconds_left,
        )

    def row(self, row: Row) -> RowResults:
        part = self.study.part(row.part)
        if row.quoted:
            return RowResults(row=row, part=part)
        trials = tuple(self.record(t) for t in self.standing.finals.get(row.key, ()))
        trials = tuple(t for t in trials if t.state != "planned")
        best = best_trial(self.study.metric(part.metric), [t.value for t in trials])
        return RowResults(
            row=row,
            part=part,
            chosen=self.standing.chosen.get(row.key),
            settings=tuple(self.setting(row, setting) for setting in self.plan.settings(row)),
            trials=trials,
            best=None if best is None else trials[best],
        )

    def setting(self, row: Row, setting: str) -> SettingResults:
        unit = Unit.parse(setting)
        trials = [t for t in self.standing.tuning[row.key] if t.setting == setting]
        return SettingResults(setting=setting, alpha=unit.alpha, c=unit.c, trials=tuple(self.record(t) for t in trials))

    def record(self, trial: Planned) -> TrialRecord:
        if trial.digest not in self._records:
            self._records[trial.digest] = self._read(trial)
        return self._records[trial.digest]

    def _read(self, trial: Planned) -> TrialRecord:
        state: Any = state_of(self.standing, trial.digest, self.running)
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
        if trial.digest not in self.standing.facts:
            return bare
        try:
            return filled(bare, TrialResult.load(folder), scores(folder))
        except ApicalError as error:
            return replace(bare, state="failed", reason=str(error))

    def reason(self, digest: str) -> str:
        if digest in self.standing.damaged:
            return f"{self.store.trial(digest)} is damaged: apical study retry runs it again"
        return str(self.store.failure(digest).get("reason", ""))


def filled(bare: TrialRecord, result: TrialResult, test: Mapping[str, float] | None) -> TrialRecord:
    """A record with the numbers of a finished trial."""
    return replace(
        bare, directory=result.directory, reason=result.reason, validation=result.validation,
        best_epoch=result.best_epoch, history=result.history, seconds=[t["train"] for t in result.timings],
        parameters=result.parameters, classes=tuple(result.input.get("classes") or ()),
        environment=result.environment, execution=result.execution, test=test,
    )  # fmt: skip


def scores(folder: Path) -> dict[str, float] | None:
    """The test scores of a trial, NaN where one is not finite; None where it was not tested."""
    values = files.read_json(folder / SCORES)
    if not values or not all(v is None or isinstance(v, int | float) for v in values.values()):
        return None
    return {name: nan if value is None else float(value) for name, value in values.items()}


def missing(standing: Standing) -> list[str]:
    """What is not there, in sentences."""
    said = []
    if standing.tuning_left:
        said.append(f"{len(standing.tuning_left)} tuning trials are not finished")
    if standing.finals_left:
        said.append(f"{len(standing.finals_left)} trials of chosen settings are not finished")
    if tests := sum(map(len, standing.tests_left.values())):
        said.append(f"{tests} trials are not tested")
    failed = [t for t in standing.known if t.digest in standing.failed]
    if failed:
        said.append(f"{len({t.digest for t in failed})} trials failed: apical study retry runs them again")
    return said
