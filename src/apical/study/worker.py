"""What a worker does with a job, wherever an engine placed it: take leases, train or test, publish."""

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import TypeVar

from apical import files, trust
from apical.errors import AlreadyEvaluatedError, ApicalError, CheckpointError, DataError, StudyError
from apical.study.directory import CHECKPOINT, PROGRESS, SCORES, STACK, Store
from apical.study.engines.base import Context, Job, Outcome, Status
from apical.study.leases import Heartbeat, Lease
from apical.study.model import import_all
from apical.study.plan import Planned
from apical.train import Event, TestResult, TrialResult, evaluate, run, run_many
from apical.train.evaluation import OUTPUTS

Trained = TypeVar("Trained")
TELL_EVERY = 0.5
"""Seconds between two notes of a trial's progress."""
_WORKING = Lock()


class LeaseLostError(Exception):
    """Another process has taken the trial over: this one leaves it alone."""


@dataclass(frozen=True)
class Held:
    """A trial whose lease this process holds."""

    trial: Planned
    lease: Lease
    heartbeat: Heartbeat
    store: Store
    context: Context

    @property
    def digest(self) -> str:
        return self.trial.digest

    def check(self) -> None:
        """Raise where the lease went to somebody else."""
        if self.lease.key in self.heartbeat.lost:
            raise LeaseLostError(self.lease.key)


def work(job: Job, context: Context) -> list[Outcome]:
    """Do a job; trials that are finished, or leased by others, are skipped. An exception becomes an outcome."""
    if not _WORKING.acquire(blocking=False):
        raise StudyError(
            "this process runs another job, and both would share torch's global random state: an engine runs "
            "one job at a time per process, so give each worker a process of its own"
        )
    try:
        trust.grant(*context.imports, *context.trusted)
        import_all(context.imports)
        try:
            store = Store.open(context.directory, limits=context.limits)
        except StudyError as error:  # moved away, perhaps
            return [Outcome(trial.digest, "fatal", str(error)) for trial in job.trials]
        if job.kind == "train":
            return _with_leases(_train_all, job.trials, store, context)
        return [outcome for trial in job.trials for outcome in _with_leases(_test_all, (trial,), store, context)]
    finally:
        _WORKING.release()


def _with_leases(
    do: "Callable[[list[Held]], list[Outcome]]", trials: tuple[Planned, ...], store: Store, context: Context
) -> list[Outcome]:
    """Take all leases first, so that nobody else begins a trial of a stack, and do what is to be done."""
    keys = {store.key(trial.digest, test=do is _test_all): trial for trial in trials}
    try:
        free = [key for key in keys if not store.settled(key)]
        with _leased(store, free) as heartbeat:
            mine = [key for key in heartbeat.leases if not store.settled(key)]
            done = do([Held(keys[key], heartbeat.leases[key], heartbeat, store, context) for key in mine])
    except OSError as error:
        said = str(files.cannot_use(store.directory, error))
        return [Outcome(trial.digest, "fatal", said) for trial in trials]
    others = {trial.digest for trial in trials} - {outcome.digest for outcome in done}
    return [*done, *(Outcome(digest, "taken") for digest in others)]


@contextmanager
def _leased(store: Store, keys: list[str]) -> Iterator[Heartbeat]:
    """Leases of all keys, kept alive, or none: a part of a stack would round otherwise than the whole does."""
    leases: list[Lease] = []
    try:
        for key in keys:
            lease = store.leases.acquire(key)
            if lease is None:
                break
            leases.append(lease)
        whole = len(leases) == len(keys)
        with Heartbeat(leases if whole else (), store.leases.limits.beat) as heartbeat:
            yield heartbeat
    finally:
        for lease in leases:
            with suppress(OSError):
                store.leave(lease)


def _outcome(do: Callable[[Held], Status], held: Held) -> Outcome:
    """Do it; an exception becomes an outcome of the trial."""
    try:
        return Outcome(held.digest, do(held))
    except Exception as error:
        return _fault(held, error)


def _fault(held: Held, error: Exception) -> Outcome:
    if not held.lease.held():
        return Outcome(held.digest, "lost")
    if isinstance(error, LeaseLostError):  # of another trial of its stack
        return Outcome(held.digest, "stopped")
    if place := files.fatal(error):
        return Outcome(held.digest, "fatal", str(files.cannot_use(held.store.directory, place)))
    if isinstance(error, DataError):
        return Outcome(held.digest, "fatal", str(error))
    reason = str(error) if isinstance(error, ApicalError) else f"{type(error).__name__}: {error}"
    held.store.fail(held.digest, reason, traceback.format_exc())
    return Outcome(held.digest, "failed", reason)


# --- training ----------------------------------------------------------------------------------------------------


def _train_all(trials: list[Held]) -> list[Outcome]:
    """As one stack, if there are several; where that cannot be, one by one, so that a fault is that of one trial."""
    if len(trials) > 1:
        try:
            return _train_stack(trials)
        except (LeaseLostError, DataError) as error:
            return [_fault(held, error) for held in trials]
        except Exception as error:
            if files.fatal(error) or not all(held.lease.held() for held in trials):
                return [_fault(held, error) for held in trials]
    return [_outcome(_train, held) for held in trials]


def _train(held: Held) -> Status:
    attempt = held.store.begin(held.lease)
    spec, how, watch = held.trial.spec, held.context.execution, _Watch([held], [attempt])
    return _published(held, attempt, _from_checkpoint_or_anew(lambda: run(spec, how, attempt, [watch]), watch))


def _train_stack(trials: list[Held]) -> list[Outcome]:
    attempts = [held.store.begin(held.lease) for held in trials]
    specs, how, watch = [held.trial.spec for held in trials], trials[0].context.execution, _Watch(trials, attempts)
    results = _from_checkpoint_or_anew(lambda: run_many(specs, how, attempts, [watch]), watch)
    done = zip(trials, attempts, results, strict=True)
    return [Outcome(held.digest, _published(held, attempt, result)) for held, attempt, result in done]


def _published(held: Held, attempt: Path, result: TrialResult) -> Status:
    if result.state == "stopped":
        return "stopped"
    return result.state if held.store.publish(held.lease, attempt) else "lost"


def _from_checkpoint_or_anew(train: Callable[[], Trained], watch: "_Watch") -> Trained:
    """Train; a checkpoint that a dead process left damaged is not worth more than the time to do it again."""
    try:
        return train()
    except CheckpointError as error:
        checkpoints = [attempt / name for attempt in watch.attempts for name in (CHECKPOINT, STACK)]
        if files.fatal(error) or watch.told or not any(path.exists() for path in checkpoints):
            raise
        for path in [path for attempt in watch.attempts for path in attempt.iterdir()]:
            files.remove(path)
        return train()


class _Watch:
    """The callback of trials: notes where they stand, and ends them where a lease is lost."""

    def __init__(self, trials: list[Held], attempts: list[Path]) -> None:
        self.trials, self.attempts = trials, attempts
        self.told = 0.0

    def __call__(self, event: Event) -> None:
        for held in self.trials:
            held.check()
        if time.monotonic() - self.told >= TELL_EVERY:
            self.told = time.monotonic()
            done = (event.epoch - 1 + event.batch / event.batches) / event.epochs
            for attempt in self.attempts:
                with suppress(OSError):
                    files.write_json(
                        attempt / PROGRESS, {"done": done, "epoch": event.epoch, "epochs": event.epochs}, durable=False
                    )


# --- testing -----------------------------------------------------------------------------------------------------


def _test_all(trials: list[Held]) -> list[Outcome]:
    return [_outcome(_test, held) for held in trials]


def _test(held: Held) -> Status:
    """Open the test split, once; who was killed between the answers and the scores left only the scores to do."""
    folder = held.store.trial(held.digest)
    files.sync(held.store.trials)  # who published it may have died before that
    if (folder / OUTPUTS).exists():
        tested = TestResult.load(folder)
    else:
        result = replace(TrialResult.load(folder), execution=held.context.execution)
        try:
            tested = evaluate(result)
        except AlreadyEvaluatedError:
            if not (folder / OUTPUTS).exists():
                raise
            tested = TestResult.load(folder)
    scores = {name: value if isfinite(value) else None for name, value in tested.scores.items()}
    files.write_json(folder / SCORES, scores)
    return "done"
