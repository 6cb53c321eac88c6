"""Which machine this is, and whether one of its processes lives."""

import os
import socket
import uuid
from functools import cache
from pathlib import Path


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
