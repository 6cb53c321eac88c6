"""Asked to stop: the signal sets a flag, the loop saves and leaves within a batch."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

NAMES = ("SIGTERM", "SIGINT", "SIGUSR1")


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
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    before = {}
    try:
        if current_thread() is main_thread():
            before = {number: signal.signal(number, stop._handle) for number in numbers}
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
