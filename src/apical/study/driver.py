"""`run`: tune a study's rows, choose settings by validation, train the chosen ones, then test each trial once.

The driver decides what is next and hands jobs to an engine. All its state is in the study directory, so it may be
killed and started again, and several drivers may share one study.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final

from torch import nn

from apical import files
from apical.data import DataSet, load
from apical.errors import DataError, InvalidArgumentError, StudyError
from apical.study.directory import HOME, STUDY, TEST, Store, open_for
from apical.study.engines.base import Context, Done, Engine, Job, Options, find, start
from apical.study.leases import Limits
from apical.study.model import Part, Study
from apical.study.plan import Plan, plan, spec_of
from apical.study.results import StudyResults, read
from apical.study.state import Progress, measure, snapshot
from apical.train import Execution, TrialSpec, devices, stack_bytes, why_alone
from apical.train.session import build, dims_for, evaluation_batch
from apical.train.trial import open_data
from apical.trust import allowed, decide, named, permits, remember

POLL: Final = 0.5
"""Seconds at most between two looks at the workers."""
REFRESH: Final = 2.0
"""Seconds between two looks at the study directory, where others may have done something too."""
REFRESH_FACTOR: Final = 20.0
"""The next look comes after this many times the duration of the last, so that it takes little of the driver's time."""
RESUBMIT_AFTER: Final = 30.0
"""Seconds after which a job that no worker has begun may be given to another."""
MAX_DEATHS = 5
"""Workers that may die over a trial before it counts as failed."""


def run(
    study: Study,
    directory: str | Path | None = None,
    *,
    engine: str = "local",
    options: Options | None = None,
    tune_trials: int | None = None,
    stack: bool = True,
    memory: float | None = None,
    execution: Execution | None = None,
    partial: bool = False,
    limits: Limits | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    trust: bool = False,
) -> StudyResults:
    """Train, choose and test all that a study plans and that its directory (studies/<name>) does not hold yet.

    `tune_trials` trials decide between the settings of a row, if not as many as the study says. `execution` says how
    trials run; by default each has one thread. `stack` lets small networks share a program, as many as fit into
    `memory` bytes of a worker, and numbers then agree with those of single trials up to rounding; without it, rows
    train in turn, so that their seconds can be compared. `partial` accepts subsets of the data, and marks them. `trust`
    allows the modules that the study names, see `load`. Ctrl-C and SIGTERM leave at the next batch; the same call goes
    on.
    """
    folder, options = Path(directory or Path(HOME) / study.name), options or Options()
    how = execution or Execution(threads=options.cpus)
    decide(folder / STUDY, study.modules(loaded=False), trust=trust)
    study = study.enable().described()
    find(engine).check(options)
    if partial:
        study = mark_partial(study, how)
    check_data(study, how)
    store = open_for(study, folder, tune_trials, limits=limits)
    with suppress(OSError):  # a home that cannot be written remembers nothing
        remember(folder / STUDY, filter(permits, study.modules()))
    store.record_command()
    size = stack_size(study, how, stack=stack, memory=memory)
    planned = plan(study.model_copy(update={"stack": size}), tune_trials=store.header.tune_trials)
    if not snapshot(planned, store).finished:
        context = Context(
            directory=folder.absolute(),
            execution=how,
            limits=limits or Limits(),
            imports=study.imports,
            trusted=(*allowed(), *named(*(row.unit for row in study.rows))),  # of what is imported here already, too
        )
        with _terminating(), _started(engine, context, options) as workers:
            Driver(planned, store, workers, progress=progress, in_turn=not stack).drive()
    return read(folder)


@contextmanager
def _started(name: str, context: Context, options: Options) -> Iterator[Engine]:
    workers = start(name, context, options)
    try:
        yield workers
    except BaseException:
        workers.close(stop=True)
        raise
    workers.close(stop=False)


@contextmanager
def _terminating() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C, where this is the main thread."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class Driver:
    """The loop around an engine."""

    plan: Plan
    store: Store
    engine: Engine
    progress: Callable[[Progress], None] = lambda _: None
    in_turn: bool = False
    _jobs: list[Job] = field(default_factory=list)
    _submitted: dict[str, float] = field(default_factory=dict)
    _deaths: Counter[str] = field(default_factory=Counter)
    _next_refresh: float = 0.0
    _changed: bool = True

    def drive(self) -> None:
        """Until nothing is left to do, for this driver or another."""
        self._refresh()
        while not self.state.finished:
            self._submit()
            for done in self.engine.wait(POLL):
                self._take(done)
            if time.monotonic() >= self._next_refresh or (self._changed and not self._jobs):
                self._refresh()

    def _refresh(self) -> None:
        """See where the study stands, and what of it is free: what nobody holds and was not given to a worker just now.

        After RESUBMIT_AFTER seconds in the queue of a worker, which may hang, a job may go to another worker too: the
        first to begin it gets the lease. Refreshing takes at most a twentieth of the driver's time.
        """
        start = time.monotonic()
        self.state = snapshot(self.plan, self.store)
        with files.using(self.store.directory):
            running = self.store.leases.running(self.state.keys_left)
        waiting = {digest for digest, when in self._submitted.items() if start - when < RESUBMIT_AFTER}
        busy = waiting | {key.removesuffix(TEST) for key in running}
        self._jobs = self.state.jobs(busy, in_turn=self.in_turn)
        self.progress(measure(self.state, self.store, running, idle=self.engine.workers))
        self._next_refresh, self._changed = start + max(REFRESH, REFRESH_FACTOR * (time.monotonic() - start)), False

    def _submit(self) -> None:
        for _ in range(min(self.engine.room, len(self._jobs))):
            job = self._jobs.pop(0)
            self._submitted |= dict.fromkeys((trial.digest for trial in job.trials), time.monotonic())
            self.engine.submit(job)

    def _take(self, done: Done) -> None:
        self._changed = True
        for trial in done.job.trials:
            self._submitted.pop(trial.digest, None)
            if done.died:
                self._record_death(trial.digest)
        for outcome in done.outcomes:
            if outcome.status == "fatal":
                raise StudyError(outcome.reason)

    def _record_death(self, digest: str) -> None:
        """A worker died over a trial; one that takes too many with it has failed."""
        self._deaths[digest] += 1
        with files.using(self.store.directory):
            lease = self.store.leases.acquire(digest) if self._deaths[digest] >= MAX_DEATHS else None
            if lease is not None:
                if not self.store.settled(digest):
                    self.store.fail(digest, f"{MAX_DEATHS} workers died while they ran it, perhaps out of memory", "")
                lease.release()


# Data of a study: opened before anything runs, so that what is missing is said at once.


def check_data(study: Study, how: Execution) -> None:
    """Open the data of every part that is trained, which prepares what is not ready."""
    for part in _trained(study):
        try:
            open_data(spec_of(part), how)
        except DataError as error:
            raise type(error)(f"the data of part {part.name!r}: {error}") from error


def mark_partial(study: Study, how: Execution) -> Study:
    """The study with the mark of each part whose data is a subset."""
    marks = {}
    for part in _trained(study):
        spec = spec_of(part)
        marks[part.name] = load(part.data, how.root, True, split=spec.split, size=spec.size).partial
    parts = tuple(part.model_copy(update={"partial": marks.get(part.name)}) for part in study.parts)
    return study.model_copy(update={"parts": parts})


def _trained(study: Study) -> list[Part]:
    return [part for part in study.parts if any(row.part == part.name for row in study.trained)]


# How many trials may share a program: what the study says, and what fits into memory.


def stack_size(study: Study, how: Execution, *, stack: bool, memory: float | None) -> int:
    """Trials in a stack: 1 where none is wanted or nothing can be stacked here; `memory` is in bytes, of one worker."""
    specs = [spec_of(part, "pynrelu") for part in study.parts]
    able = [spec for spec in specs if devices.on_one_cpu(spec, how) and why_alone(spec, how) is None]
    if not stack or study.stack == 1 or not able:
        return 1
    if memory is None:
        return study.stack
    need = max(trial_bytes(spec, open_data(spec, how)) for spec in able)
    if memory < need:
        raise InvalidArgumentError(
            f"--memory allows {memory / 1e9:.3g} GB for a worker, but one trial needs {need / 1e9:.3g} GB"
        )
    return min(study.stack, int(memory // need))


def trial_bytes(spec: TrialSpec, data: DataSet) -> int:
    """Bytes that a trial adds to a stack."""
    network = build(spec, dims_for(spec, data))
    shapes: list[tuple[int, ...]] = []

    def note(_: nn.Module, __: Any, output: Any) -> None:
        shapes.append(tuple(output.shape[1:]))

    hooks = [m.register_forward_hook(note) for m in network.modules() if not list(m.children())]
    outputs = network.eval()(data.validation.inputs([0, 1]))
    for hook in hooks:
        hook.remove()
    return stack_bytes(
        parameters=sum(p.numel() for p in network.parameters()), units=sum(map(prod, shapes)),
        outputs=outputs.shape[1], batch=spec.batch, evaluated=evaluation_batch(data.validation, spec.batch),
        validation=len(data.validation),
    )  # fmt: skip
