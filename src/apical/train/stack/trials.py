"""`run_many`: trials of small networks as one stacked computation."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any
from warnings import warn

from apical import env
from apical.errors import InvalidArgumentError
from apical.files import at_once, sweep
from apical.nn import Unit
from apical.train import devices
from apical.train.loop import Callback, Event, Reporter, Stop, listening
from apical.train.result import LAST, RESULT, STACK, TrialResult
from apical.train.spec import Execution, TrialSpec
from apical.train.stack import stack_key, unstackable_reason
from apical.train.stack.session import StackSession, stored_composition
from apical.train.trial import FOLDER, allow_spec, locked, run, threads, write_spec


def run_many(
    specs: Sequence[TrialSpec],
    execution: Execution | None = None,
    directories: Sequence[str | Path] | None = None,
    callbacks: Iterable[Callback] = (),
    *,
    trust: bool = False,
) -> list[TrialResult]:
    """Train trials, each in a folder of its own as `run` does it, those with the same `stack_key` as one stack.

    A stack is one network with the parameters of all its trials: each has the initial weights, the data order, the
    best epoch, the divergence, the folder and the result that it has alone, its numbers agree up to rounding, and its
    record says `stacked(k, place)`. What cannot be stacked is trained one by one, with a warning that says why.

    An interrupted stack continues where its checkpoint (`stack.safetensors` in the folder of the first of these trials)
    stands, bit-equal on the CPU for the same specs and folders in the same order and the same number of threads.
    Another composition starts anew. Trials with a result are left as they are; what `run` began is ended by `run`.

    One more trial adds to the peak of the memory, in bytes, as `stack_bytes` computes it,

        4 * (5 * P + 3 * outputs * validation + 2 * U * batch + max(8 * P, 2 * U * batch, 2 * U * evaluated))

    with P parameters and U values behind the affine parts of a network, `validation` samples in the validation split
    and `evaluated` of them in a batch (images: 64); `memory_of(spec)` is this number for a trial.

    A study groups its trials by `stack_key` (None: alone) into stacks of the size that its file says, and calls this
    once for each; `Event.trial` tells which of them an event is about. `trust` is that of `run`.
    """
    for spec in specs:
        allow_spec(spec, trust)
    how = execution or Execution()
    folders = _folders(specs, directories)
    if how.stacking != "alone":
        raise InvalidArgumentError(f"stacking is {how.stacking!r}, but run_many itself records how trials are stacked")
    many = _Many(tuple(specs), how, folders, tuple(callbacks))
    for group in _groups(specs, how):
        many.train(group)
    return [many.results[i] for i in range(len(specs))]


def _folders(specs: Sequence[TrialSpec], directories: Sequence[str | Path] | None) -> list[Path]:
    folders = [Path(FOLDER) / spec.name for spec in specs] if directories is None else list(map(Path, directories))
    if len(folders) != len(specs):
        raise InvalidArgumentError(f"{len(folders)} directories for {len(specs)} trials: give one for each")
    if len({f.absolute() for f in folders}) < len(folders) or len({spec.digest for spec in specs}) < len(specs):
        raise InvalidArgumentError("a trial or a folder is given twice: give each once")
    return folders


def _groups(specs: Sequence[TrialSpec], how: Execution) -> list[list[int]]:
    """The numbers of the trials that form a stack; of one, where a trial is alone."""
    groups: dict[object, list[int]] = {}
    reasons: dict[str, None] = {}
    for i, spec in enumerate(specs):
        reason = unstackable_reason(spec, how)
        if reason is None and type(devices.runtime(spec, how)) is not devices.SingleDevice:
            reason = "stacks are trained by one CPU process"
        if reason is not None and len(specs) > 1:
            reasons[reason] = None
        groups.setdefault(i if reason else stack_key(spec), []).append(i)
    for reason in reasons:
        warn(f"{reason}: such trials are trained one by one", stacklevel=3)
    return list(groups.values())


class _Many:
    """The trials of one call, and the results there are so far."""

    def __init__(
        self, specs: tuple[TrialSpec, ...], how: Execution, folders: list[Path], callbacks: tuple[Callback, ...]
    ) -> None:
        self.specs, self.how, self.folders, self.callbacks = specs, how, folders, callbacks
        self.results: dict[int, TrialResult] = {}
        self.stopped: str | None = None

    def train(self, group: list[int]) -> None:
        """Train the trials of a group, unless somebody asked to stop before."""
        path = self.folders[group[0]] / STACK
        members = [] if self.stopped else self._members(group, path)
        for i in group:
            if self.stopped:
                self.results[i] = self._untouched(i)
            elif i not in members:
                self._note(i, run(self.specs[i], self.how, self.folders[i], self._callbacks(i)))
        if members and not self.stopped:
            self.train_stack(members, path)
        elif members:
            self.results |= {i: self._untouched(i) for i in members}

    def _members(self, group: list[int], path: Path) -> list[int]:
        """The trials of the stack, in its order: that of the checkpoint, or neighbours of one kind; none if alone."""
        unfinished = [i for i in group if not any((self.folders[i] / name).exists() for name in (RESULT, LAST))]
        numbers = {self.specs[i].digest: i for i in group}
        stored = stored_composition(path)
        if set(stored) <= numbers.keys() and {self.specs[i].digest for i in unfinished} <= set(stored):
            return [numbers[digest] for digest in stored]
        return sorted(unfinished, key=lambda i: _kind(self.specs[i])) if len(unfinished) > 1 else []

    def train_stack(self, members: list[int], path: Path) -> None:
        """Train these trials as one, from the checkpoint in `path` if there is one."""
        with ExitStack() as held:
            specs, folders = [self.specs[i] for i in members], [self.folders[i] for i in members]
            for folder in folders:
                held.enter_context(locked(folder))
                sweep(folder)
            at_once(write_spec, folders, specs)
            held.enter_context(threads(self.how.threads))
            stop = held.enter_context(listening())
            s = StackSession(specs, self.how, folders, members, path)
            s.resume()
            _fit(s, stop, self._reporter(s))
            if stop and s.running:
                s.end("stopped", str(stop.reason))
            else:
                s.finish()
                path.unlink(missing_ok=True)
        for member in s.members:
            assert member.result is not None
            self._note(member.trial, member.result)

    def _note(self, i: int, result: TrialResult) -> None:
        self.results[i] = result
        if result.state == "stopped":
            self.stopped = result.reason

    def _untouched(self, i: int) -> TrialResult:
        """The result of a trial that was not begun in this call, because it was asked to stop before."""
        return TrialResult(
            directory=self.folders[i], spec=self.specs[i], execution=self.how, state="stopped",
            reason=str(self.stopped), validation={}, history=[], timings=[], parameters=0, environment=env.facts(),
            data={}, input={},
        )  # fmt: skip

    def _callbacks(self, i: int) -> tuple[Callback, ...]:
        def numbered(callback: Callback) -> Callable[[Event], None]:
            return lambda event: callback(replace(event, trial=i))

        return tuple(map(numbered, self.callbacks))

    def _reporter(self, s: StackSession) -> Reporter:
        samples = s.spec.passes * len(s.train.split) * len(s.members)
        trial = s.members[0].trial if len(s.members) == 1 else None
        return Reporter(self.callbacks, epochs=s.spec.epochs, batches=len(s.train), samples=samples, trial=trial)


def run_one(spec: TrialSpec, how: Execution, folder: Path, callbacks: tuple[Callback, ...]) -> TrialResult:
    """A single trial, as a stack of one."""
    many = _Many((spec,), how, [folder], callbacks)
    many.train_stack([0], folder / STACK)
    return many.results[0]


def _kind(spec: TrialSpec) -> tuple[Any, ...]:
    """Neighbours in this order share calls of their activations."""
    unit = Unit.parse(spec.unit)
    one_module = unit.descriptor.stack == "module" or unit.kind == "pyramidal"
    return unit.kind, unit.alpha == "learn", unit.scope, unit.leak or 0.0, str(unit) if one_module else ""


def _fit(s: StackSession, stop: Stop, report: Reporter) -> None:
    """Train and validate, epoch by epoch, until all trials ended or somebody asked to stop: then it is saved."""
    while s.running and s.epoch < s.spec.epochs:
        start = perf_counter() - s.seconds
        for inputs, labels in s.train.epoch(s.epoch, start=s.batch):
            step = s.watched_step if s.how.dynamics and s.batch == 0 else s.step
            step(inputs, labels)
            if report.callbacks:
                report.batch(s.epoch + 1, s.batch, s.loss)
            if stop:
                return s.leave(perf_counter() - start)
        s.seconds = perf_counter() - start
        s.check_weights()
        validated = s.validate(stop)
        if validated is None:
            return s.leave(s.seconds)
        records = s.end_epoch(*validated, perf_counter() - start - s.seconds)
        if s.due():
            s.save()
        for trial, record in records:
            report.epoch(s.epoch, record, trial)
    return None
