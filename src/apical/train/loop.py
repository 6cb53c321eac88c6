"""The loop: a trial from where it stands to its end; what it tells while it runs, and how it is asked to stop."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from threading import current_thread, main_thread
from time import perf_counter
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor

from apical.train import losses, metrics
from apical.train.devices import SingleDevice
from apical.train.dynamics import watched_if
from apical.train.result import State
from apical.train.session import Feed, Session

INTERVAL = 0.1
"""Seconds between two events of kind "batch"."""


@dataclass(frozen=True)
class Event:
    """Where a run stands. `epoch` counts from 1; `record` is the finished epoch's entry of the history.

    `trial` is the place in the list that `run_many` got; None where an event is about a whole stack.
    """

    kind: Literal["batch", "epoch"]
    epoch: int
    epochs: int
    batch: int
    batches: int
    loss: float
    samples_per_second: float
    seconds_left: float
    record: dict[str, Any] | None = None
    trial: int | None = 0


Callback = Callable[[Event], None]


class Reporter:
    """Calls the callbacks, batches at most every INTERVAL seconds; measures what was done since it was made."""

    def __init__(
        self, callbacks: Iterable[Callback], *, epochs: int, batches: int, samples: int, trial: int | None = 0
    ) -> None:
        self.callbacks, self.trial = tuple(callbacks), trial
        self.epochs, self.batches, self.samples = epochs, batches, samples
        self._start = self._last = perf_counter()
        self._done = 0

    def batch(self, epoch: int, batch: int, loss: float) -> None:
        """A batch was trained."""
        self._done += 1
        if self.callbacks and (now := perf_counter()) - self._last >= INTERVAL:
            self._last = now
            self._tell("batch", epoch, batch, loss, None, self.trial)

    def epoch(self, epoch: int, record: dict[str, Any], trial: int = 0) -> None:
        """An epoch was trained and validated."""
        self._tell("epoch", epoch, self.batches, record["loss"], record, trial)

    def _tell(
        self, kind: Any, epoch: int, batch: int, loss: float, record: dict[str, Any] | None, trial: int | None
    ) -> None:
        rate = self._done / max(perf_counter() - self._start, 1e-9)
        left = (self.epochs - epoch) * self.batches + self.batches - batch
        event = Event(
            kind, epoch, self.epochs, batch, self.batches, loss,
            rate * self.samples / self.batches, left / rate if rate else 0.0, record, trial,
        )  # fmt: skip
        for callback in self.callbacks:
            callback(event)


def scalars(record: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a record by their path in it; what is not finite was stored as None and is left out."""
    numbers: dict[str, float] = {}
    for key, value in record.items():
        name = f"{prefix}/{key}" if prefix else key
        if isinstance(value, dict):
            numbers |= scalars(value, name)
        elif isinstance(value, int | float) and name != "epoch":
            numbers[name] = float(value)
    return numbers


# Asked to stop: the signal sets a flag, the loop saves and leaves within a batch.

SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1")


class Stop:
    """The flag; `reason` is None until someone asks to stop."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __bool__(self) -> bool:
        return self.reason is not None

    def ask(self, reason: str) -> None:
        """Stop at the next batch."""
        self.reason = reason

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self and number == signal.SIGINT:  # Ctrl-C twice: now
            raise KeyboardInterrupt
        self.ask(signal.Signals(number).name)


@contextmanager
def listening() -> Iterator[Stop]:
    """A Stop that signals set while the block runs; outside the main thread only `ask` sets it."""
    stop = Stop()
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    before = {}
    try:
        if current_thread() is main_thread():
            before = {number: signal.signal(number, stop._handle) for number in numbers}
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# The loop.


def fit(s: Session, *, stop: Stop, report: Reporter) -> State:
    """Train and validate, epoch by epoch; leave within a batch when asked to stop, and before a step that diverges."""
    runtime, model, optimiser, criterion, how = s.runtime, s.model, s.optimiser, s.criterion, s.execution
    while s.epoch < s.spec.epochs:
        s.begin_epoch()
        start = perf_counter() - s.seconds
        for inputs, labels in s.train.epoch(s.epoch, start=s.batch):
            with watched_if(how.dynamics and s.batch == 0, s.network, units=not how.compile) as seen:
                outputs = model(inputs)
                loss = criterion(outputs, labels) if len(labels) else 0.0 * outputs.sum()
                agreed = runtime.agree(loss.item(), len(labels), bool(stop))
                if not isfinite(agreed.loss):
                    return "diverged"
                optimiser.zero_grad()
                s.differentiate(loss, inputs, labels)
            s.dynamics = seen or s.dynamics
            if s.spec.clip is not None:
                runtime.clip(model, optimiser, s.spec.clip)
            optimiser.step()
            s.advance(agreed.loss)
            report.batch(s.epoch + 1, s.batch, s.loss)
            if agreed.stop:
                return s.leave(perf_counter() - start)
        runtime.wait()
        s.seconds = perf_counter() - start
        if not s.finite():
            return "diverged"
        validated = validate(s, stop)
        if validated is None:
            return s.leave(s.seconds)
        record = s.end_epoch(validated, perf_counter() - start - s.seconds)
        if s.due():
            s.save()
        report.epoch(s.epoch, record)
    return "done"


def validate(s: Session, stop: Stop | None = None) -> dict[str, float] | None:
    """Every metric of the task, and the loss, on the validation split; None where it was asked to stop."""
    s.network.eval()
    collected = collect(s.forward, s.validation, s.runtime, stop)
    if collected is None:
        return None
    return scores(s.spec.loss, *collected)


def scores(loss: str, outputs: Tensor, labels: Tensor) -> dict[str, float]:
    """Every metric of the task, and the loss, of a network's outputs (n, ...)."""
    how = losses.find(loss)
    own = metrics.scores(how.answer(outputs), labels, task=how.task)
    return own | {"loss": float(how.compute(outputs, labels))}


@torch.no_grad()
def collect(
    forward: Callable[[Tensor], Any], feed: Feed, runtime: SingleDevice, stop: Stop | None = None
) -> tuple[Tensor, Tensor] | None:
    """Outputs and labels of a whole split, in its order, on the CPU in float32; None where it was asked to stop."""
    pairs = []
    with runtime.autocast():
        for inputs, labels in feed.epoch():
            pairs.append((forward(inputs).float(), labels))
            if stop is not None and runtime.agree(0.0, 1, bool(stop)).stop:
                return None
    return torch.cat([o for o, _ in pairs]).cpu(), torch.cat([y for _, y in pairs]).cpu()
