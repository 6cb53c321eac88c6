"""What a worker does with a job, wherever an engine placed it: claim, train or test, publish."""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path

from apical.errors import AlreadyEvaluatedError, ApicalError, CheckpointError, DataError
from apical.study import files
from apical.study.heartbeat import Heart
from apical.study.imports import import_all
from apical.study.job import Context, Ending, Job, Outcome
from apical.study.leases import Lease
from apical.study.plan import Planned
from apical.study.store import CHECKPOINT, PROGRESS, SCORES, Store
from apical.train import Event, TestResult, TrialResult, evaluate, run
from apical.train.evaluation import OUTPUTS

TELL_EVERY = 0.5
"""Seconds between two notes of a trial's progress."""


class ClaimLostError(Exception):
    """Another process has taken the trial over: this one leaves it alone."""


def work(job: Job, context: Context) -> list[Outcome]:
    """Do a job; trials that are finished, or in other hands, are left alone. What is raised becomes an outcome."""
    import_all(context.imports)
    store = Store.open(context.directory, limits=context.limits)
    if job.kind == "train":
        return _claim_and(_train, job.trials, store, context)
    return [outcome for trial in job.trials for outcome in _claim_and(_test, (trial,), store, context)]


Do = Callable[[Planned, Lease, Heart, Store, Context], Ending]


def _claim_and(do: Do, trials: tuple[Planned, ...], store: Store, context: Context) -> list[Outcome]:
    """Claim the trials together, so that nobody else begins one of a stack, and do what is to be done with each."""
    keys = {trial.digest: store.key(trial.digest, test=do is _test) for trial in trials}
    try:
        free = [key for key in keys.values() if not store.settled(key)]
        with _claimed(store, free) as heart:
            mine = {t.digest for t in trials if keys[t.digest] in heart.leases and not store.settled(keys[t.digest])}
            return [
                _outcome(do, trial, heart.leases[keys[trial.digest]], heart, store, context)
                if trial.digest in mine
                else Outcome(trial.digest, "taken")
                for trial in trials
            ]
    except OSError as error:
        said = str(files.cannot_use(store.directory, error))
        return [Outcome(trial.digest, "hopeless", said) for trial in trials]


@contextmanager
def _claimed(store: Store, keys: Iterable[str]) -> Iterator[Heart]:
    """Claims on those keys that are free, with a heart that beats; what is not finished at the end is given back."""
    leases: list[Lease] = []
    try:
        for key in keys:
            lease = store.leases.acquire(key)
            leases += [lease] if lease else []
        with Heart(leases, store.leases.limits.beat) as heart:
            yield heart
    finally:
        for lease in leases:
            with suppress(OSError):
                if not store.settled(lease.key):
                    lease.release()


def _outcome(do: Do, trial: Planned, lease: Lease, heart: Heart, store: Store, context: Context) -> Outcome:
    """Do it; what is raised is a fact about the trial, or about the place."""
    try:
        return Outcome(trial.digest, do(trial, lease, heart, store, context))
    except ClaimLostError:
        return Outcome(trial.digest, "lost")
    except Exception as error:
        if not lease.held():
            return Outcome(trial.digest, "lost")
        if place := files.hopeless(error):
            return Outcome(trial.digest, "hopeless", str(files.cannot_use(store.directory, place)))
        if isinstance(error, DataError):
            return Outcome(trial.digest, "hopeless", str(error))
        reason = str(error) if isinstance(error, ApicalError) else f"{type(error).__name__}: {error}"
        store.fail(trial.digest, reason, traceback.format_exc())
        return Outcome(trial.digest, "failed", reason)


# --- training ----------------------------------------------------------------------------------------------------


def _train(trial: Planned, lease: Lease, heart: Heart, store: Store, context: Context) -> Ending:
    attempt = store.begin(lease)
    result = _run(trial, context, attempt, _Watch(attempt, lease, heart))
    if result.state == "stopped":
        return "stopped"
    return result.state if store.publish(lease, attempt) else "lost"


def _run(trial: Planned, context: Context, attempt: Path, watch: "_Watch") -> TrialResult:
    """Train; a checkpoint that a dead process left damaged is not worth more than the time to do it again."""
    try:
        return run(trial.spec, context.execution, attempt, [watch])
    except CheckpointError as error:
        if files.hopeless(error) or watch.told or not (attempt / CHECKPOINT).exists():
            raise
        for path in attempt.iterdir():
            files.remove(path)
        return run(trial.spec, context.execution, attempt, [watch])


class _Watch:
    """The callback of a trial: notes where it stands, and ends it where its claim is lost."""

    def __init__(self, attempt: Path, lease: Lease, heart: Heart) -> None:
        self.attempt, self.lease, self.heart = attempt, lease, heart
        self.told = 0.0

    def __call__(self, event: Event) -> None:
        if self.lease.key in self.heart.lost:
            raise ClaimLostError(self.lease.key)
        if time.monotonic() - self.told >= TELL_EVERY:
            self.told = time.monotonic()
            done = (event.epoch - 1 + event.batch / event.batches) / event.epochs
            with suppress(OSError):
                files.write(self.attempt / PROGRESS, {"done": done, "epoch": event.epoch, "epochs": event.epochs})


# --- testing -----------------------------------------------------------------------------------------------------


def _test(trial: Planned, lease: Lease, heart: Heart, store: Store, context: Context) -> Ending:
    """Open the test split, once; who was killed between the answers and the scores left only the scores to do."""
    folder = store.trial(trial.digest)
    if (folder / OUTPUTS).exists():
        found = TestResult.load(folder)
    else:
        result = replace(TrialResult.load(folder), execution=context.execution)
        try:
            found = evaluate(result)
        except AlreadyEvaluatedError:
            if not (folder / OUTPUTS).exists():
                raise
            found = TestResult.load(folder)
    files.replace(folder / SCORES, {name: value if isfinite(value) else None for name, value in found.scores.items()})
    return "done"
