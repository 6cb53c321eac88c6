"""Faults by schedule: whatever a disk, a machine or a clock does to a study, it ends as if nothing had happened.

`Disk` stands under every file operation in a folder. A schedule says after how many operations which fault comes:
errors, kills, power cuts that undo what was not synced, an hour's jump of the clock, or ten minutes of sleep in which
another machine does the work. Nothing waits: time passes by making leases older.
"""

# These are the calls that pathlib makes.
# ruff: noqa: PTH100, PTH113, PTH115, PTH118, PTH119, PTH120

import errno
import io
import os
import re
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apical import files, study
from apical.errors import ApicalError
from apical.study import Part, Row, Study, driver, leases, worker
from apical.study.engines.base import ENGINES, Context, Done, EngineDescriptor, Job
from apical.study.leases import Limits
from apical.train import Execution, evaluation
from apical.train.trial import dataset_cache

CHANGES = ("replace", "rename", "link", "unlink", "mkdir", "rmdir", "utime", "fsync", "write", "create")
ADDS = ("link", "mkdir", "write", "create", "fsync")
READS = ("stat", "scandir", "listdir", "read")
ANY = (*CHANGES, *READS)
ERRORS = {
    "EIO": (errno.EIO, ANY),
    "ENOSPC": (errno.ENOSPC, ADDS),
    "EROFS": (errno.EROFS, CHANGES),
    "ESTALE": (errno.ESTALE, ANY),
    "EMFILE": (errno.EMFILE, ("create", "read", "scandir", "listdir")),
    "EIO of fsync": (errno.EIO, ("fsync",)),
    "EIO though done": (errno.EIO, CHANGES),
}
STAY = ("ENOSPC", "EROFS")
"""A disk that is full, or only to be read, stays so as long as the process lives."""
OTHERS = {
    "kill": ANY,
    "kill after": CHANGES,
    "kill in a write": ("write",),
    "power cut": ANY,
    "short write": ("write",),
    "sleep": ANY,
    "clock forward": ANY,
    "clock back": ANY,
}
FAULTS = (*ERRORS, *OTHERS)
HOUR = 3600.0
Fault = tuple[int, str] | tuple[int, str, str]
"""After how many operations, what; the third says of which: a pattern of the operation and its path."""


class Killed(BaseException):
    """The process is gone: nothing catches this, and nothing it does on its way out reaches the disk."""


@dataclass
class Process:
    pid: int
    machine: str
    dead: bool = False


class Disk:
    """All file operations below `root`, with faults after so many of them."""

    def __init__(self, root: Path, schedule: list[Fault]) -> None:
        self.root, self.schedule = str(root), list(schedule)
        self.count, self.machine = 0, 0
        self.running: list[Process] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.stays: str | None = None
        self.undo: list[tuple[str, Callable[[], None]]] = []
        self.unsynced: dict[int, str] = {}
        self.real = {name: getattr(os, name) for name in (*CHANGES, *READS, "open") if hasattr(os, name)}
        self.real["open file"] = io.open
        self.happened: list[str] = []
        self.ours = False

    # --- processes and time ----------------------------------------------------------------------------------------

    @contextmanager
    def process(self, machine: str = "") -> Iterator[Process]:
        pid = 100_000 + self.count + len(self.running)
        self.running.append(Process(pid, machine or f"machine {self.machine}"))
        stays, self.stays = self.stays, None
        try:
            yield self.running[-1]
        finally:
            self.running.pop()
            self.stays = stays

    def started(self, pid: int) -> str | None:
        return str(pid) if any(p.pid == pid and not p.dead for p in self.running) else None

    def holder(self) -> dict[str, Any]:
        return {"pid": self.running[-1].pid, "started": str(self.running[-1].pid)}

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What this does to files is no operation of a process."""
        before, self.ours = self.ours, True
        try:
            yield
        finally:
            self.ours = before

    def pass_time(self, seconds: float) -> None:
        """As if the clock had moved: the times of leases that were not given back move the other way."""
        with self.aside():
            self._pass_time(seconds)

    def _pass_time(self, seconds: float) -> None:
        for folder, _, names in os.walk(self.root):
            for name in names if folder.endswith("claims") else ():
                path = Path(folder) / name
                with suppress(OSError):
                    if (then := path.stat().st_mtime) > leases.RELEASED:
                        os.utime(path, (then - seconds,) * 2)

    # --- faults ----------------------------------------------------------------------------------------------------

    def at(self, kind: str, path: str, do: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Do an operation, or what the schedule says instead."""
        if self.ours or not self.running or not self.inside(path):
            return do()
        if self.running[-1].dead:
            raise Killed
        self.count += 1
        if self.stays and kind in ERRORS[self.stays][1]:
            raise self.error(self.stays)
        if not self.schedule:
            return do()
        gap, fault, *where = self.schedule[0]
        fits = kind in (ERRORS[fault][1] if fault in ERRORS else OTHERS[fault])
        if where:
            fits = re.search(where[0], f"{kind} {path.removeprefix(self.root)}") is not None
        if gap > 0 or not fits:
            self.schedule[0] = (gap - (fits or not where), fault, *where)
            return do()
        del self.schedule[0]
        self.happened.append(f"{fault} at {kind} {path.removeprefix(self.root)}")
        if fault in ERRORS:
            if fault == "EIO though done":
                drop(do())
            self.stays = fault if fault in STAY else None
            raise self.error(fault)
        return self.other(fault, do, half)

    def error(self, fault: str) -> OSError:
        number = ERRORS[fault][0]
        return OSError(number, os.strerror(number))

    def other(self, fault: str, do: Callable[[], Any], half: Callable[[], Any] | None) -> Any:
        if fault == "short write" and half:
            return half()
        if fault == "sleep":
            self.pass_time(HOUR / 6)
            self.meanwhile()
        elif fault == "clock forward":
            self.pass_time(HOUR)
        elif fault == "clock back":
            self.pass_time(-HOUR)
        elif fault == "power cut":
            self.cut_power()
        else:
            if fault == "kill after":
                drop(do())
            elif fault == "kill in a write" and half:
                half()
            self.running[-1].dead = True
            raise Killed
        return do()

    def cut_power(self) -> None:
        """All processes of the machine die; names that were not synced are as before, files that were not are empty."""
        for process in self.running:
            process.dead = True
        self.machine += 1  # after it has started again, nobody knows the processes it had
        with self.aside():
            for _, undo in reversed(self.undo):
                with suppress(OSError):
                    undo()
            for number, path in self.unsynced.items():
                with suppress(OSError):
                    if Path(path).stat().st_ino == number:
                        os.truncate(path, 0)
        self.undo, self.unsynced = [], {}
        raise Killed

    # --- operations ------------------------------------------------------------------------------------------------

    def inside(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + os.sep)

    def path(self, given: Any, dir_fd: int | None = None) -> str:
        if isinstance(given, int):
            return os.readlink(f"/proc/self/fd/{given}")
        name = os.fsdecode(given)
        return os.path.join(self.path(dir_fd), name) if dir_fd is not None else os.path.abspath(name)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("replace", "rename", "link"):
            monkeypatch.setattr(os, name, self.moving(name))
        for name in ("unlink", "mkdir", "rmdir", "utime", "stat"):
            monkeypatch.setattr(os, name, self.simple(name))
        for name in ("scandir", "listdir"):
            monkeypatch.setattr(os, name, self.simple(name))
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(io, "open", self.open_file)
        monkeypatch.setattr(leases, "started", self.started)
        monkeypatch.setattr(leases, "identity", lambda: self.running[-1].machine)
        holder = leases._holder
        monkeypatch.setattr(leases, "_holder", lambda token: holder(token) | self.holder())

    def simple(self, name: str) -> Callable[..., Any]:
        real = self.real[name]

        def call(path: Any = ".", *arguments: Any, dir_fd: int | None = None, **how: Any) -> Any:
            own = {"dir_fd": dir_fd} if dir_fd is not None else {}
            where = self.path(path, dir_fd)

            def do() -> Any:
                done = real(path, *arguments, **own, **how)
                if name == "mkdir":
                    self.undo.append((os.path.dirname(where), lambda: shutil.rmtree(where)))
                return done

            return self.at(name, where, do)

        return call

    def moving(self, name: str) -> Callable[..., Any]:
        real = self.real[name]

        def call(source: Any, target: Any) -> None:
            old, new = self.path(source), self.path(target)

            def do() -> None:
                backup = io.BytesIO()
                with self.aside():
                    if there := name == "replace" and os.path.isfile(new):
                        backup.write(Path(new).read_bytes())
                real(source, target)

                def undo() -> None:
                    if name == "link":
                        self.real["unlink"](new)
                        return
                    self.real["rename"](new, old)
                    if there:  # as it was synced, so not one of the files that a power cut empties
                        with self.real["open file"](new, "wb") as file:
                            file.write(backup.getvalue())

                if self.inside(new):
                    self.undo.append((os.path.dirname(new), undo))

            self.at(name, new, do)

        return call

    def fsync(self, descriptor: int) -> None:
        path = self.path(descriptor)

        def do() -> None:
            self.unsynced.pop(os.fstat(descriptor).st_ino, None)
            self.undo = [(folder, undo) for folder, undo in self.undo if folder != path]

        self.at("fsync", path, do)

    def open(self, path: Any, flags: int, *arguments: Any, dir_fd: int | None = None, **how: Any) -> int:
        own = {"dir_fd": dir_fd} if dir_fd is not None else {}
        kind = "create" if flags & os.O_CREAT else "read"

        def do() -> int:
            return Descriptor(self.real["open"](path, flags, *arguments, **own, **how))

        return self.at(kind, self.path(path, dir_fd), do)

    def open_file(self, path: Any, mode: str = "r", *arguments: Any, **how: Any) -> Any:
        real = self.real["open file"]
        if isinstance(path, int) or not (self.running and self.inside(self.path(path))):
            return real(path, mode, *arguments, **how)
        if "r" in mode:
            return self.at("read", self.path(path), lambda: real(path, mode, *arguments, **how))
        return self.at("create", self.path(path), lambda: Writing(self, self.path(path), mode.replace("b", "")))


class Descriptor(int):
    """An open file's number, not the count of bytes that a write gives."""


def drop(result: Any) -> None:
    """Close what an operation opened for a process that does not get it."""
    if isinstance(result, io.FileIO):
        result.close()
    elif isinstance(result, Descriptor):
        os.close(result)


class Writing(io.FileIO):
    """A file that is written through the disk."""

    def __init__(self, disk: Disk, path: str, mode: str) -> None:
        super().__init__(path, mode)
        self.disk, self.where = disk, path
        disk.unsynced[os.fstat(self.fileno()).st_ino] = path

    def write(self, data: Any) -> int:
        view, real = memoryview(data).cast("B"), super().write
        written: int = self.disk.at("write", self.where, lambda: real(view), lambda: real(view[: (len(view) + 1) // 2]))
        return written


# --- a study under a disk ---------------------------------------------------------------------------------------------


def tiny(stack: int) -> Study:
    part = Part(name="p", title="p", data="xor", model="mlp-1", dims={"hidden": 2}, training={"epochs": 2})
    rows = (
        Row(key="p/relu", part="p", label="ReLU", unit="relu"),
        Row(key="p/ada", part="p", label="ADA", unit="ada", tune={"alpha": (0.3, 1.0)}),
    )
    return Study(name="tiny", title="tiny", parts=(part,), rows=rows, trials=2, stack=stack)


class Here:
    """Jobs are done in this process; where there are none, time passes until leases have expired."""

    workers = 1

    def __init__(self, context: Context, disk: Disk) -> None:
        self.context, self.disk, self.jobs, self.room, self.idle = context, disk, list[Job](), 1, 0

    def submit(self, job: Job) -> None:
        self.jobs, self.room, self.idle = [*self.jobs, job], 0, 0

    def wait(self, seconds: float) -> list[Done]:
        jobs, self.jobs, self.room = self.jobs, [], 1
        if not jobs:
            self.idle += 1
            if self.idle > 10:
                pytest.fail("the study waits for nobody")
            self.disk.pass_time(30.0)
        return [Done(job, tuple(worker.work(job, self.context))) for job in jobs]

    def close(self, *, stop: bool) -> None:
        pass


class Trial:
    """One schedule: a study that is run, in a folder of its own, until it is finished, and what was seen of it."""

    def __init__(self, folder: Path, schedule: list[Fault], stack: int, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.study = folder / "s", tiny(stack)
        folder.mkdir()
        self.disk = Disk(folder, schedule)
        self.results: dict[str, bytes] = {}
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.weights: dict[str, set[str]] = defaultdict(set)
        self.sentences: list[str] = []
        self.finished = False
        self.disk.meanwhile = self.another_machine
        self.disk.install(patch)
        patch.setitem(ENGINES, "here", EngineDescriptor("here", lambda context, options: Here(context, self.disk)))
        patch.setattr(driver, "REFRESH", 0.0)
        patch.setattr(driver, "REFRESH_FACTOR", 0.0)
        patch.setattr(worker, "TELL_EVERY", 0.0)
        patch.setattr(files, "THREADS", 1)
        real = evaluation._evaluate

        def opened(runtime: Any, result: Any, *how: Any) -> Any:
            self.weights[result.spec.digest].add(files.sha256(result.weights))
            return real(runtime, result, *how)

        patch.setattr(evaluation, "_evaluate", opened)

    def run(self, machine: str = "") -> None:
        """A process from its start to its end, whichever that is."""
        with self.disk.process(machine) as process:
            try:
                how = Execution(threads=1, checkpoint_every=0.0)
                limits = Limits(beat=1e6, stale=20.0)
                done = study.run(self.study, self.folder, engine="here", execution=how, limits=limits)
                self.finished = done.finished
            except Killed:
                assert process.dead
            except ApicalError as error:
                self.sentences.append(str(error))
            process.dead = True

    def another_machine(self) -> None:
        lock, worker._WORKING = worker._WORKING, threading.Lock()
        try:
            self.run(f"another {self.disk.count}")
        finally:
            worker._WORKING = lock

    def look(self) -> None:
        """What was finished is as it was, and what went wrong was said in one sentence."""
        assert not [said for said in self.sentences if "\n" in said or "Error" in said or "Traceback" in said]
        pending = {os.path.basename(folder) for folder, _ in self.disk.undo}
        if "trials" in pending:  # published by a process that died before it could sync
            return
        for path in self.folder.glob("trials/*/result.json"):
            assert self.results.setdefault(path.parent.name, path.read_bytes()) == path.read_bytes(), "run twice"
        assert self.results.keys() == {p.parent.name for p in self.folder.glob("trials/*/result.json")}, "lost"
        for path in self.folder.glob("trials/*/test.npz"):
            if path.parent.name in pending:
                continue
            stored = (path.stat().st_ino, path.read_bytes())
            assert self.answers.setdefault(path.parent.name, stored) == stored, "tested twice"
        assert all(len(weights) <= 1 for weights in self.weights.values())


def check(folder: Path, schedule: list[Fault], stack: int, numbers: Callable[[Path], Any]) -> Any:
    """Run a study under a schedule to its end; its numbers, and what happened."""
    with pytest.MonkeyPatch.context() as patch, dataset_cache():
        trial = Trial(folder, schedule, stack, patch)
        for _ in range(len(schedule) + 2):
            trial.run()
            trial.look()
            if trial.finished:
                break
    assert trial.finished, trial.disk.happened
    faults = {fault for _, fault, *_ in schedule}
    if faults == {"sleep"} or "sleep" not in faults:  # who is killed after it woke leaves its attempt
        assert files.names(trial.folder / "attempts") == []
    return numbers(trial.folder), trial.disk


SCHEDULES = st.lists(st.tuples(st.integers(0, 400) | st.integers(0, 60), st.sampled_from(FAULTS)), max_size=6)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, numbers):
    """The numbers of the study by the size of its stacks, without faults."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APICAL_HOME", str(tmp_path_factory.mktemp("home")))
        return {stack: check(tmp_path_factory.mktemp("whole") / "s", [], stack, numbers)[0] for stack in (1, 4)}


# Moments at which an invariant broke once, or could have by reading the code.
FOUND: dict[str, tuple[int, list[Fault]]] = {
    "a trial counted as failed, because too many files were open": (1, [(0, "EMFILE", r"read /s/trials/\w+$")]),
    "an error of the disk while the study was opened was no sentence": (1, [(0, "EIO", "stat /s/study.json")]),
    "an error of the disk while scores were looked for was no sentence": (1, [(0, "EIO", "stat .*/scores.json")]),
    "a trial that could not be read was damaged, and another setting chosen": (1, [(2, "EIO", "read .*/result.json")]),
    "trials that could not be listed were not there": (1, [(6, "EIO", "scandir /s/trials$")]),
    "a part of a stack was trained, and rounded otherwise": (4, [(1, "power cut", "fsync /s/claims$")]),
    "who slept while a stack was leased had it trained in part": (
        4,
        [(1, "sleep", r"link /s/claims/\w+\.1\.json"), (0, "kill", "mkdir /s/attempts/")],
    ),
    "a tested trial was lost with the folder of its study": (
        1,
        [(0, "kill after", "replace .*/scores.json"), (0, "power cut", "scandir /s/trials$")],
    ),
    "a tested stack was lost with the folder of its study": (
        4,
        [(0, "kill after", "replace .*/scores.json"), (0, "power cut", "scandir /s/trials$")],
    ),
    "a stack lost its checkpoint with the folder of a trial": (4, [(1, "power cut", r"create .*/\.result.json")]),
    "who slept left an attempt at a published trial": (1, [(0, "sleep", "mkdir /s/attempts/")]),
    "a clock that was put back kept a dead lease for an hour": (
        1,
        [(0, "clock back", "replace .*/last.safetensors"), (0, "power cut")],
    ),
}


@pytest.mark.parametrize(("stack", "schedule"), FOUND.values(), ids=FOUND)
def test_a_schedule_at_a_weak_moment(tmp_path, undisturbed, numbers, stack, schedule):
    outcome, disk = check(tmp_path / "s", schedule, stack, numbers)
    assert outcome == undisturbed[stack]
    assert disk.happened


@pytest.mark.parametrize("stack", [1, 4])
def test_a_damaged_checkpoint_is_trained_anew_as_it_was_begun(tmp_path, undisturbed, numbers, stack):
    """A stack as a stack: one by one, its trials would round otherwise."""
    with pytest.MonkeyPatch.context() as patch, dataset_cache():
        trial = Trial(tmp_path / "s", [(0, "kill after", r"replace .*/(stack|last)\.safetensors")], stack, patch)
        trial.run()
        (left,) = trial.folder.glob("attempts/*/*.safetensors")
        left.write_bytes(b"")
        trial.run()
    assert trial.finished
    assert numbers(trial.folder) == undisturbed[stack]


@pytest.mark.slow
@settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=SCHEDULES, stack=st.sampled_from([1, 4]))
def test_a_study_ends_as_if_nothing_had_happened_whatever_the_disk_does(
    tmp_path_factory, undisturbed, numbers, schedule, stack
):
    folder = tmp_path_factory.mktemp("s")
    outcome, disk = check(folder / "s", schedule, stack, numbers)
    assert outcome == undisturbed[stack], disk.happened
    shutil.rmtree(folder)
