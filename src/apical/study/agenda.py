"""What is left to do: a function of the plan and of what the study directory holds."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from apical.study import files
from apical.study.facts import DAMAGED, Facts, read
from apical.study.index import Index
from apical.study.job import Job
from apical.study.plan import Plan, Planned
from apical.study.selection import choose
from apical.study.store import SCORES, TEST, Store


@dataclass(frozen=True)
class Standing:
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
        return choose(self.plan, known, settings.keys() - unsettled - single.keys()) | single

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
        found: dict[str, list[Planned]] = {row.key: [] for row in self.plan.study.rows}
        for trial in self.plan.tuning:
            found[trial.row].append(trial)
        return found

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
        """What can be claimed."""
        return [digest if not self.settled(digest) else digest + TEST for digest in self.left]

    @property
    def finished(self) -> bool:
        """True where nothing is left to do."""
        return not (self.tuning_left or self.finals_left or self.tests_left)

    def jobs(self, busy: Collection[str] = ()) -> list[Job]:
        """What can be done now, but for the trials in `busy`: tests first, so that rows are complete early."""
        found = [Job("test", trials) for trials in _without(self.tests_left.values(), busy)]
        left = {trial.digest: trial for trial in (*self.finals_left, *self.tuning_left)}
        groups = self._stacks(left) if self.plan.study.stack > 1 else [(trial,) for trial in left.values()]
        return found + [Job("train", trials) for trials in _without(groups, busy)]

    def _stacks(self, left: Mapping[str, Planned]) -> list[tuple[Planned, ...]]:
        """What is left, in stacks that do not depend on what is done: who takes one over finds its checkpoint.

        The chosen settings of a part are stacked once all its rows have chosen; what is trained alone need not wait.
        """
        tuning = {trial.digest for trial in self.plan.tuning}
        groups = list(self.plan.tuning_stacks)
        for part in self.plan.study.parts:
            rows = [row.key for row in self.plan.study.trained if row.part == part.name]
            finals = [t for row in rows for t in self.finals.get(row, ()) if t.digest not in tuning]
            complete = all(row in self.finals for row in rows)
            groups += [g for g in self.plan.stacks(_distinct(finals)) if complete or self.plan.alone(g[0])]
        kept = (tuple(trial for trial in group if trial.digest in left) for group in groups)
        return [group for group in kept if group]


def look(plan: Plan, store: Store, *, trust: bool = True) -> Standing:
    """Where the study in a directory stands now; without `trust`, every trial is read again."""
    index = Index(store.directory)
    found = index.facts(store.finished(), lambda digest: read(store.trial(digest)), trust=trust)
    damaged = {digest for digest, known in found.items() if known.state == DAMAGED}
    standing = Standing(plan, found, store.failed() | damaged, damaged)
    finals = {t.digest for trials in standing.finals.values() for t in trials}
    there = (lambda path: path.exists()) if trust else (lambda path: files.read(path) is not None)
    tested = {d for d in finals if d in found and there(store.trial(d) / SCORES)}
    return replace(standing, tested=tested)


def count_states(standing: Standing, running: Collection[str]) -> Counter[str]:
    """How many planned trials are in which state; those of rows without a choice yet count as planned."""
    states = Counter(state_of(standing, digest, running) for digest in {t.digest for t in standing.known})
    unknown = len(standing.plan.study.trained) - len(standing.finals)
    states["planned"] += unknown * max(0, standing.plan.study.trials - standing.plan.tune_trials)
    return states


def state_of(standing: Standing, digest: str, running: Collection[str]) -> str:
    """The state of one trial."""
    if digest in standing.failed:
        return "failed"
    if digest in standing.facts:
        return standing.facts[digest].state
    return "running" if digest in running else "planned"


def _distinct(trials: Iterable[Planned]) -> tuple[Planned, ...]:
    return tuple({trial.digest: trial for trial in trials}.values())


def _without(groups: Iterable[tuple[Planned, ...]], busy: Collection[str]) -> Iterator[tuple[Planned, ...]]:
    for group in groups:
        if left := tuple(trial for trial in group if trial.digest not in busy):
            yield left
