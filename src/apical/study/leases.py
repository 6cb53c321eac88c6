"""Leases: which process works on which trial. A lease is a file that its holder must keep touching.

The idea. A network file system guarantees two things: only one process can create a file exclusively, and the server
sets the modification time when a file is touched. So a lease of a key is the file `claims/<key>.<number>.json`, created
exclusively, and its modification time is the holder's last heartbeat. The highest number holds the key. A lease expires
after `Limits.stale` seconds without a heartbeat, or, on the same machine, when its process is gone. Then any process
may create the next number, and only one succeeds. Releasing a lease sets its time to 1970.

Invariants. Numbers only grow and are never reused, so an expired lease cannot be mistaken for its successor. A holder
that was suspended may resume: it must call `held` before it publishes, and the trial's folder has the token of its
lease in its name, so late writes go nowhere. Times are compared with the file server's clock only, never with ours.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Self

from apical import files

RELEASED = 10**9
"""A lease whose file is older than this (the year 2001) was given back."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds between two heartbeats, and without one until a lease on another machine counts as dead."""

    beat: float = 5.0
    stale: float = 20.0


@dataclass(frozen=True)
class Lease:
    """A lease that this process took."""

    key: str
    number: int
    token: str
    path: Path

    def held(self) -> bool:
        """True until another process has taken the next one."""
        return self.path.exists() and not _path(self.path.parent, self.key, self.number + 1).exists()

    def beat(self) -> bool:
        """Say that the holder lives; False where the lease is lost. The file server puts the time."""
        if not self.held():
            return False
        os.utime(self.path)
        return True

    def release(self) -> None:
        """Give the key back, to whoever comes next."""
        if self.held():
            os.utime(self.path, (0, 0))


class Leases:
    """All leases of a study directory."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.folder, self.limits = folder, limits or Limits()

    def acquire(self, key: str) -> Lease | None:
        """The lease of a key, or None where somebody has it."""
        last = self._last(key)
        if last and self.alive(key, last, self.now()):
            return None
        lease = Lease(key, last + 1, token_hex(8), _path(self.folder, key, last + 1))
        return lease if files.create(lease.path, _holder(lease.token)) else None

    def clear(self, key: str) -> None:
        """Give a key back for whoever held it last, who must have finished with it."""
        if last := self._last(key):
            os.utime(_path(self.folder, key, last), (0, 0))

    def numbers(self) -> dict[str, int]:
        """The highest lease of every key that ever had one: one listing."""
        highest: dict[str, int] = {}
        for name in files.names(self.folder):
            key, number = _parsed(name)
            if number > highest.get(key, 0):
                highest[key] = number
        return highest

    def running(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Of these keys those that a living process holds, with what it says of itself."""
        numbers, now = self.numbers(), self.now()
        held = [(key, numbers[key]) for key in keys if key in numbers]
        return {key: self.holder(key, n) for key, n in held if self.alive(key, n, now)}

    def holder(self, key: str, number: int) -> dict[str, Any]:
        """What a lease says of its holder; nothing where it is damaged."""
        return files.read_json(_path(self.folder, key, number)) or {}

    def alive(self, key: str, number: int, now: float) -> bool:
        """True while a lease has not expired: by its file's time, or by its process if that runs on this machine."""
        try:
            beaten = _path(self.folder, key, number).stat().st_mtime
        except FileNotFoundError:
            return False
        if beaten < RELEASED or abs(now - beaten) > self.limits.stale:  # also where the clock was put back
            return False
        said = self.holder(key, number)
        if said.get("machine") != identity() or not isinstance(said.get("pid"), int):
            return True
        return started(said["pid"]) == said.get("started")

    def now(self) -> float:
        """The file server's clock: the time it puts on a file that is touched now. Clocks of machines may differ."""
        path = self.folder / f".clock-{socket.gethostname()}"
        try:
            files.append(path, b"")
            os.utime(path)
            return path.stat().st_mtime
        except OSError:  # a directory that can only be read
            return time.time()

    def _last(self, key: str) -> int:
        number = 0
        while _path(self.folder, key, number + 1).exists():
            number += 1
        return number


def _path(folder: Path, key: str, number: int) -> Path:
    return folder / f"{key}.{number}.json"


def _parsed(name: str) -> tuple[str, int]:
    key, _, number = name.removesuffix(".json").rpartition(".")
    valid = name.endswith(".json") and number.isascii() and number.isdigit() and not name.startswith(".")
    return (key, int(number)) if valid else (name, 0)


def _holder(token: str) -> dict[str, Any]:
    pid = os.getpid()
    return {
        "token": token,
        "host": socket.gethostname(),
        "machine": identity(),
        "pid": pid,
        "started": started(pid),
    }


# The heartbeat: a thread that keeps the leases of this process alive while it works.


class Heartbeat:
    """Beats for its leases until the block ends. `lost` names the keys that went to somebody else."""

    def __init__(self, leases: Iterable[Lease], seconds: float) -> None:
        self.leases = {lease.key: lease for lease in leases}
        self.lost: set[str] = set()
        self._seconds = seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def _beat(self) -> None:
        while not self._end.wait(self._seconds):
            self.once()

    def once(self) -> None:
        """One beat for every lease that is still ours; a file server that does not answer is asked again next time."""
        for key, lease in self.leases.items():
            with suppress(OSError):
                if key not in self.lost and not lease.beat():
                    self.lost.add(key)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()


# Which machine this is, and whether one of its processes lives.


@cache
def identity() -> str:
    """The same for all processes that see each other's process numbers, another after each start of the machine."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot, space = f"{uuid.getnode():x}", ""
    return f"{socket.gethostname()}/{boot}/{space}"


def started(pid: int) -> str | None:
    """What tells a process from a later one of the same number; None where it is gone, "" where nobody can tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None if Path("/proc/self/stat").exists() or not _answers(pid) else ""
    fields = stat.rpartition(")")[2].split()  # the name of a program may hold spaces and brackets
    return None if fields[0] in "ZX" else fields[19]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
