"""Where a study stands, for people: counts, what runs now, and the time that is left."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apical.study.agenda import Standing, count_states
from apical.study.plan import Planned
from apical.study.store import TEST, Store


@dataclass(frozen=True, kw_only=True)
class Running:
    """A trial in somebody's hands; `done` is the share of it that is trained."""

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


Claims = Mapping[str, Mapping[str, Any]]


def workers_of(claims: Claims, *, idle: int = 1) -> int:
    """The processes that hold claims, each once whatever the size of its stack; `idle` where there are none."""
    names = ("machine", "host", "pid", "started")
    return len({tuple(said.get(name) for name in names) for said in claims.values()}) or idle


def measure(standing: Standing, store: Store, claims: Claims, *, idle: int = 1) -> Progress:
    """The progress of a study; `claims` are those of living processes by key, `idle` the workers before they claim.

    A driver and whoever looks from outside count the same claims, so that both tell the same time.
    """
    workers = workers_of(claims, idle=idle)
    running = tuple(_running(standing, store, key, said) for key, said in claims.items())
    training = {r.trial.digest for r in running if not r.testing}
    return Progress(
        states=count_states(standing, training),
        tested=len(standing.tested),
        tests=len(standing.plan.study.trained) * standing.plan.study.trials,
        running=running,
        workers=workers,
        seconds_left=seconds_left(standing, {r.trial.digest: r.done for r in running}, workers),
    )


def _running(standing: Standing, store: Store, key: str, said: Mapping[str, Any]) -> Running:
    digest = key.removesuffix(TEST)
    note = store.progress(digest, str(said.get("token")))
    done, epoch, epochs = (note.get(name, 0) for name in ("done", "epoch", "epochs"))
    return Running(
        trial=standing.left[digest], host=str(said.get("host", "?")), testing=key.endswith(TEST),
        done=done if isinstance(done, float) else 0.0, epoch=epoch, epochs=epochs,
    )  # fmt: skip


def seconds_left(standing: Standing, done: Mapping[str, float], workers: int) -> float | None:
    """Mean seconds of the part's finished trials, for every trial that is left, over the workers."""
    study = standing.plan.study
    seen: dict[str, list[float]] = defaultdict(list)
    for trial in standing.known:
        if trial.digest in standing.facts:
            seen[study.row(trial.row).part].append(standing.facts[trial.digest].seconds)
    everywhere = [s for found in seen.values() for s in found]
    if not everywhere:
        return None
    mean = {part: sum(s) / len(s) for part, s in seen.items()}
    default = sum(everywhere) / len(everywhere)
    left = sum(
        mean.get(study.row(t.row).part, default) * (1 - done.get(t.digest, 0.0))
        for t in standing.left.values()
        if not standing.settled(t.digest)
    )
    undecided = [row for row in study.trained if row.key not in standing.finals]
    more = max(0, study.trials - standing.plan.tune_trials)
    left += sum(more * mean.get(row.part, default) for row in undecided)
    return left / max(1, workers)
