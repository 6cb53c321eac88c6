"""The state of a study: which trials are finished, failed or left, what to do next, and its progress for people."""

import hashlib
import json
import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any, Self

from apical import files
from apical.files import home
from apical.study.directory import RESULT, SCORES, TEST, Store
from apical.study.engines.base import Job
from apical.study.model import FINISHED
from apical.study.plan import Plan, Planned, stack_keys
from apical.study.selection import choose
from apical.train.result import check_result
from apical.train.spec import digest

DAMAGED = "damaged"


@dataclass(frozen=True)
class Facts:
    """`value` is the validation metric that judges the trial, None where it is not finite; `state` may be damaged."""

    state: str
    value: float | None
    seconds: float

    def to_json(self) -> str:
        """One line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        values = files.parse_json(text)
        value = values["value"]
        return cls(str(values["state"]), None if value is None else float(value), float(values["seconds"]))


ReadJson = Callable[[Path], dict[str, Any] | None]


def read_facts(folder: Path, read: ReadJson = files.read_json) -> Facts:
    """The facts of a published trial; a folder whose result cannot be understood, or is another's, is damaged."""
    values = {} if folder.is_symlink() else read(folder / RESULT) or {}
    try:
        state, value = values["state"], values["validation"].get(values["spec"]["metric"])
        if state not in FINISHED or digest(values["spec"]) != folder.name:
            raise ValueError(state)
        check_result(values)
        seconds = sum(float(t["train"]) + float(t["validate"]) for t in values["timings"])
        return Facts(state, None if value is None else float(value), seconds)
    except (KeyError, TypeError, ValueError, AttributeError):
        return Facts(DAMAGED, None, 0.0)


def scores(folder: Path, read: ReadJson = files.read_json) -> dict[str, float] | None:
    """The test scores of a trial, NaN where one is not finite; None where it was not tested, or they are damaged."""
    values = read(folder / SCORES)
    if not values or not all(v is None or type(v) in (int, float) for v in values.values()):
        return None
    return {name: nan if value is None else float(value) for name, value in values.items()}


# What this machine has read of a study directory before: a cache, outside of it, that can be deleted at any time.
#
# Published trials do not change, so that what was read once stays true as long as the folder is the same. Whatever goes
# wrong here costs time and nothing else.


_UNUSABLE = (sqlite3.Error, OSError, MemoryError, OverflowError)
"""What SQLite says of a file that is damaged: out of memory, for one."""


class Index:
    """Facts about published trials by digest."""

    def __init__(self, directory: Path, path: Path | None = None) -> None:
        name = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:24]
        self.path = path or home() / "index" / f"{name}.sqlite"

    def facts(self, folders: Mapping[str, int], read: Callable[[str], Facts], *, trust: bool) -> dict[str, Facts]:
        """The facts of every published trial, given with its folder's number; `read` gets those that are not known.

        Without `trust`, everything is read again: a file inside a folder may have been damaged.
        """
        stored = self._stored() if trust else {}
        known = {digest: stored[digest, inode] for digest, inode in folders.items() if (digest, inode) in stored}
        new = {digest: read(digest) for digest in folders.keys() - known.keys()}
        sound = [(d, folders[d], facts.to_json()) for d, facts in new.items() if facts.state != DAMAGED]
        if sound:  # a damaged folder may be replaced by a sound one of the same number
            self._store(sound)
        return known | new

    def _stored(self) -> dict[tuple[str, int], Facts]:
        try:
            with closing(self._open()) as base:
                rows = base.execute("SELECT digest, inode, facts FROM trials").fetchall()
            return {(digest, inode): Facts.from_json(str(text)) for digest, inode, text in rows}
        except (*_UNUSABLE, ValueError, TypeError, KeyError):
            files.remove(self.path)
            return {}

    def _store(self, rows: list[tuple[str, int, str]]) -> None:
        try:
            with closing(self._open()) as base, base:
                base.executemany("INSERT OR REPLACE INTO trials VALUES (?, ?, ?)", rows)
        except _UNUSABLE:
            files.remove(self.path)

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        base = sqlite3.connect(self.path, timeout=5.0)
        try:
            base.execute("CREATE TABLE IF NOT EXISTS trials (digest TEXT PRIMARY KEY, inode INTEGER, facts TEXT)")
        except _UNUSABLE:
            base.close()
            raise
        return base


# What is left to do: a function of the plan and of what the study directory holds.


@dataclass(frozen=True)
class StudyState:
    """Where a study stands: facts of published trials (validation alone), failed, damaged and tested trials.

    A damaged trial is one whose folder cannot be read; it counts as failed.
    """

    plan: Plan
    facts: Mapping[str, Facts]
    failed: Collection[str]
    damaged: Collection[str] = field(default=())
    tested: Collection[str] = field(default=())

    def settled(self, digest: str) -> bool:
        """True where a trial needs no more training."""
        return digest in self.facts or digest in self.failed

    @cached_property
    def tuning_left(self) -> tuple[Planned, ...]:
        """The tuning trials that are not settled, each once."""
        return _distinct(t for t in self.plan.tuning if not self.settled(t.digest))

    @cached_property
    def chosen(self) -> dict[str, str]:
        """The setting of each row that has only one, or whose tuning is settled."""
        settings = {row.key: self.plan.settings(row) for row in self.plan.study.trained}
        single = {row: tried[0] for row, tried in settings.items() if len(tried) == 1}
        unsettled = {trial.row for trial in self.plan.tuning if not self.settled(trial.digest)}
        known = {d: f.value for d, f in self.facts.items() if f.value is not None and d not in self.failed}
        own = choose(self.plan, known, settings.keys() - unsettled - single.keys()) | single
        sources = {row.key: self.plan.tuned_by(row) for row in self.plan.study.trained}
        return {row: own[source] for row, source in sources.items() if source in own}

    @cached_property
    def finals(self) -> dict[str, tuple[Planned, ...]]:
        """The trials of the chosen setting of each row that has one."""
        return {row: self.plan.finals(row, setting) for row, setting in self.chosen.items()}

    @cached_property
    def finals_left(self) -> tuple[Planned, ...]:
        """The trials of chosen settings that are not settled, each once."""
        return _distinct(t for finals in self.finals.values() for t in finals if not self.settled(t.digest))

    @cached_property
    def tests_left(self) -> dict[str, tuple[Planned, ...]]:
        """By row, the trials to test: only once all trials of the row are settled."""
        ready = {row: finals for row, finals in self.finals.items() if all(self.settled(t.digest) for t in finals)}
        left = {row: tuple(t for t in finals if self._untested(t.digest)) for row, finals in ready.items()}
        return {row: trials for row, trials in left.items() if trials}

    def _untested(self, digest: str) -> bool:
        return digest in self.facts and digest not in self.failed and digest not in self.tested

    @cached_property
    def tuning(self) -> dict[str, list[Planned]]:
        """The tuning trials of each row."""
        by_row: dict[str, list[Planned]] = {row.key: [] for row in self.plan.study.rows}
        for trial in self.plan.tuning:
            by_row[trial.row].append(trial)
        return by_row

    @property
    def known(self) -> Iterator[Planned]:
        """All trials that are planned by now; trials of chosen settings come twice where they tuned too."""
        yield from self.plan.tuning
        for finals in self.finals.values():
            yield from finals

    @cached_property
    def left(self) -> dict[str, Planned]:
        """Trials with something to be done, by digest."""
        tests = [trial for trials in self.tests_left.values() for trial in trials]
        return {trial.digest: trial for trial in (*self.tuning_left, *self.finals_left, *tests)}

    @property
    def keys_left(self) -> list[str]:
        """What there may be a lease of."""
        return [digest if not self.settled(digest) else digest + TEST for digest in self.left]

    @property
    def finished(self) -> bool:
        """True where nothing is left to do."""
        return not (self.tuning_left or self.finals_left or self.tests_left)

    def jobs(self, busy: Collection[str] = (), *, in_turn: bool = False) -> list[Job]:
        """What can be done now, but for the trials in `busy`: tests first, so that rows are complete early.

        `in_turn`: the first trial of every row, then the second of every row, and so on; else row after row. A stack
        waits for the trials of it that are busy: a part of it would round otherwise than the whole does.
        """
        tests = [Job("test", trials) for trials in _without(self.tests_left.values(), busy)]
        left = {trial.digest: trial for trial in (*self.finals_left, *self.tuning_left)}
        groups = self._stacks(left) if self.plan.study.stack > 1 else [(trial,) for trial in left.values()]
        groups = sorted(groups, key=lambda group: group[0].trial) if in_turn else groups
        free = [group for group in groups if not any(trial.digest in busy for trial in group)]
        return tests + [Job("train", group) for group in free]

    def _stacks(self, left: Mapping[str, Planned]) -> list[tuple[Planned, ...]]:
        """What is left, in stacks that do not depend on what is done: who takes one over finds its checkpoint.

        Chosen settings are stacked once all rows of the part that may share their stacks have chosen.
        """
        tuning = {trial.digest for trial in self.plan.tuning}
        groups = list(self.plan.tuning_stacks)
        for part in self.plan.study.parts:
            rows = [row.key for row in self.plan.study.trained if row.part == part.name]
            finals = [t for row in rows for t in self.finals.get(row, ()) if t.digest not in tuning]
            open_ = stack_keys(t for row in rows if row not in self.finals for t in self.plan.possible(row))
            groups += [g for g in self.plan.stacks(_distinct(finals)) if stack_keys(g)[0] not in {*open_} - {None}]
        kept = (tuple(trial for trial in group if trial.digest in left) for group in groups)
        return [group for group in kept if group]


def snapshot(plan: Plan, store: Store, *, trust: bool = True, read: ReadJson = files.read_json) -> StudyState:
    """Where the study in a directory stands now; without `trust`, every trial is read again, by `read`."""
    index = Index(store.directory)
    with files.using(store.directory):
        facts = index.facts(store.finished(), lambda digest: read_facts(store.trial(digest), read), trust=trust)
        damaged = {digest for digest, known in facts.items() if known.state == DAMAGED}
        study_state = StudyState(plan, facts, store.failed() | damaged, damaged)
        finals = {t.digest for trials in study_state.finals.values() for t in trials}
        there = (lambda path: path.exists()) if trust else (lambda path: scores(path.parent, read) is not None)
        tested = {d for d in finals if d in facts and there(store.trial(d) / SCORES)}
    return replace(study_state, tested=tested)


def count_states(study_state: StudyState, running: Collection[str]) -> Counter[str]:
    """How many planned trials are in which state; those of rows without a choice yet count as planned."""
    states = Counter(state_of(study_state, digest, running) for digest in {t.digest for t in study_state.known})
    plan = study_state.plan
    states["planned"] += sum(plan.more(row) for row in plan.study.trained if row.key not in study_state.finals)
    return states


def state_of(study_state: StudyState, digest: str, running: Collection[str]) -> str:
    """The state of one trial."""
    if digest in study_state.failed:
        return "failed"
    if digest in study_state.facts:
        return study_state.facts[digest].state
    return "running" if digest in running else "planned"


def _distinct(trials: Iterable[Planned]) -> tuple[Planned, ...]:
    return tuple({trial.digest: trial for trial in trials}.values())


def _without(groups: Iterable[tuple[Planned, ...]], busy: Collection[str]) -> Iterator[tuple[Planned, ...]]:
    for group in groups:
        if left := tuple(trial for trial in group if trial.digest not in busy):
            yield left


# Where a study stands, for people: counts, what runs now, and the time that is left.


@dataclass(frozen=True, kw_only=True)
class Running:
    """A trial that a worker holds; `done` is the share of it that is trained."""

    trial: Planned
    host: str
    testing: bool
    done: float
    epoch: int
    epochs: int


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Counts of trials by state, tests that are made and that are planned, what runs, seconds left (None: unknown)."""

    states: Counter[str]
    tested: int
    tests: int
    running: tuple[Running, ...]
    workers: int
    seconds_left: float | None

    @property
    def trials(self) -> int:
        """All trials of the study."""
        return sum(self.states.values())

    @property
    def settled(self) -> int:
        """The trials that need no more training."""
        return self.trials - self.states["planned"] - self.states["running"]


Holders = Mapping[str, Mapping[str, Any]]


def workers_of(holders: Holders, *, idle: int = 1) -> int:
    """The processes that hold leases, each once whatever the size of its stack; `idle` where there are none."""
    names = ("machine", "host", "pid", "started")
    return len({tuple(said.get(name) for name in names) for said in holders.values()}) or idle


def measure(study_state: StudyState, store: Store, holders: Holders, *, idle: int = 1) -> Progress:
    """The progress of a study; `holders` of leases are living processes; `idle` counts workers that have none.

    A driver and whoever watches from outside count the same leases, so that both tell the same time.
    """
    workers = workers_of(holders, idle=idle)
    running = tuple(_running(study_state, store, key, said) for key, said in holders.items())
    training = {r.trial.digest for r in running if not r.testing}
    return Progress(
        states=count_states(study_state, training),
        tested=len(study_state.tested),
        tests=len(study_state.plan.study.trained) * study_state.plan.study.trials,
        running=running,
        workers=workers,
        seconds_left=seconds_left(study_state, {r.trial.digest: r.done for r in running}, workers),
    )


def _running(study_state: StudyState, store: Store, key: str, said: Mapping[str, Any]) -> Running:
    digest = key.removesuffix(TEST)
    note = store.progress(digest, str(said.get("token")))
    done, epoch, epochs = (note.get(name, 0) for name in ("done", "epoch", "epochs"))
    return Running(
        trial=study_state.left[digest], host=str(said.get("host", "?")), testing=key.endswith(TEST),
        done=done if isinstance(done, float) else 0.0, epoch=epoch, epochs=epochs,
    )  # fmt: skip


def seconds_left(study_state: StudyState, done: Mapping[str, float], workers: int) -> float | None:
    """Mean seconds of the part's finished trials, for every trial that is left, over the workers."""
    study = study_state.plan.study
    seen: dict[str, list[float]] = defaultdict(list)
    for trial in study_state.known:
        if trial.digest in study_state.facts:
            seen[study.row(trial.row).part].append(study_state.facts[trial.digest].seconds)
    everywhere = [s for seconds in seen.values() for s in seconds]
    if not everywhere:
        return None
    mean = {part: sum(s) / len(s) for part, s in seen.items()}
    default = sum(everywhere) / len(everywhere)
    left = sum(
        mean.get(study.row(t.row).part, default) * (1 - done.get(t.digest, 0.0))
        for t in study_state.left.values()
        if not study_state.settled(t.digest)
    )
    undecided = [row for row in study.trained if row.key not in study_state.finals]
    more = max(0, study.trials - study_state.plan.tune_trials)
    left += sum(more * mean.get(row.part, default) for row in undecided)
    return left / max(1, workers)
