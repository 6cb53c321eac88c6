"""What a run tells while it runs: events for callbacks, with the time that is left."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from apical import imports

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


# TensorBoard: losses, metrics, learned values and dynamics of each epoch as scalars.


@contextmanager
def board(folder: Path) -> Iterator[tuple[Callback, ...]]:
    """A callback that writes event files into folder/tensorboard."""
    imports.optional("tensorboard", extra="tensorboard")
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  it needs the package above

    writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def write(event: Event) -> None:
        if event.record is not None:
            for name, value in scalars(event.record).items():
                writer.add_scalar(name, value, event.epoch)

    try:
        yield (write,)
    finally:
        writer.close()


def scalars(record: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a record by their path in it; what is not finite was stored as None and is left out."""
    found: dict[str, float] = {}
    for key, value in record.items():
        name = f"{prefix}/{key}" if prefix else key
        if isinstance(value, dict):
            found |= scalars(value, name)
        elif isinstance(value, int | float) and name != "epoch":
            found[name] = float(value)
    return found
