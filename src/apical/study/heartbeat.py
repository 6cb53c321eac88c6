"""The heartbeat: a thread that keeps the claims of this process alive while it works."""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

from apical.study.leases import Lease


class Heart:
    """Beats for its claims until the block ends. `lost` names the keys that went to somebody else."""

    def __init__(self, leases: Iterable[Lease], seconds: float, each: Callable[[], None] = lambda: None) -> None:
        self.leases = {lease.key: lease for lease in leases}
        self.lost: set[str] = set()
        self._seconds, self._each = seconds, each
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def _beat(self) -> None:
        while not self._end.wait(self._seconds):
            self.once()

    def once(self) -> None:
        """One beat for every claim that is still ours; a file server that does not answer is asked again next time."""
        for key, lease in self.leases.items():
            with suppress(OSError):
                if key not in self.lost and not lease.beat():
                    self.lost.add(key)
        with suppress(OSError):
            self._each()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
