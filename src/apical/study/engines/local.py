"""The local engine: long-lived processes of this machine, each with torch imported and data mapped once."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Final

from apical.errors import StudyError
from apical.study.engines.base import Context, Done, Job, Options, Outcome

AHEAD: Final = 2
"""Jobs that a worker has: the one it does, and the next, so that it never waits for the driver."""
PATIENCE: Final = 60.0
"""Seconds that a worker gets to write its checkpoint when it is told to stop."""
MAX_STARTUP_FAILURES: Final = 3
"""Workers that may die before they can work, one after the other."""
THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def start(context: Context, options: Options) -> "LocalEngine":
    """One worker for each `options.cpus` cores, or as many as asked for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return LocalEngine(context, options.workers or max(1, cores // options.cpus), options.cpus)


class LocalEngine:
    """See `Engine`."""

    def __init__(self, context: Context, workers: int, threads: int) -> None:
        self.context, self.threads = context, threads
        self._startup_failures = 0
        self._workers = [self._spawn() for _ in range(workers)]

    @property
    def workers(self) -> int:
        return len(self._workers)

    @property
    def room(self) -> int:
        return sum(AHEAD - len(worker.jobs) for worker in self._workers)

    def submit(self, job: Job) -> None:
        min(self._workers, key=lambda worker: len(worker.jobs)).give(job)

    def wait(self, seconds: float) -> list[Done]:
        wait([end for worker in self._workers for end in (worker.connection, worker.process.sentinel)], seconds)
        back = [done for worker in self._workers for done in worker.take()]
        self._workers = [worker if worker.alive else self._replace(worker) for worker in self._workers]
        return back

    def close(self, *, stop: bool) -> None:
        for worker in self._workers:
            worker.leave(stop=stop)
        for worker in self._workers:
            worker.process.join(PATIENCE)
            worker.process.kill()
            worker.process.join()
            worker.connection.close()

    def _spawn(self) -> "_Worker":
        return _Worker(self.context, self.threads)

    def _replace(self, worker: "_Worker") -> "_Worker":
        self._startup_failures = 0 if worker.ready else self._startup_failures + 1
        if self._startup_failures >= MAX_STARTUP_FAILURES:
            raise StudyError(
                f"workers die at their start (exit code {worker.process.exitcode}): a script that runs a study must do "
                "so under `if __name__ == '__main__':`; where memory is short, use fewer --workers"
            )
        worker.process.join()
        worker.connection.close()
        return self._spawn()


class _Worker:
    """A process, the pipe to it, and the jobs that it has, the one it does first."""

    def __init__(self, context: Context, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(theirs, threads), name="apical-worker")
        self.process.start()
        theirs.close()
        with suppress(OSError):  # it died: `take` notices
            self.connection.send(context)  # read there once signals and threads are settled: it needs torch
        self.jobs: deque[Job] = deque()
        self.ready, self.alive = False, True

    def give(self, job: Job) -> None:
        self.jobs.append(job)
        with suppress(OSError):  # it died: `take` notices
            self.connection.send(job)

    def take(self) -> list[Done]:
        """What it has finished; where it died, also what it had not."""
        back = []
        try:
            while self.connection.poll():
                outcomes = self.connection.recv()
                if outcomes is None:
                    self.ready = True
                else:
                    back.append(Done(self.jobs.popleft(), tuple(outcomes)))
        except (EOFError, OSError):
            self.alive = False
            self.process.join()
            back += [
                Done(job) if self.process.exitcode and k == 0 else _given_back(job) for k, job in enumerate(self.jobs)
            ]
            self.jobs.clear()
        return back

    def leave(self, *, stop: bool) -> None:
        with suppress(OSError):
            self.connection.send(None)
        if stop:
            self.process.terminate()


def _given_back(job: Job) -> Done:
    """A job that was not begun, or whose worker left as it should."""
    return Done(job, tuple(Outcome(trial.digest, "stopped") for trial in job.trials))


# --- in the worker's process -------------------------------------------------------------------------------------


def serve(connection: Connection, threads: int) -> None:
    """Do jobs until there are no more, or until the driver is gone."""
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which says what is to be done
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    import torch  # noqa: PLC0415  it must see the threads above

    from apical.study.worker import work  # noqa: PLC0415
    from apical.train.trial import dataset_cache  # noqa: PLC0415

    torch.set_num_threads(threads)
    with suppress(EOFError, OSError), dataset_cache():
        context: Context = connection.recv()
        connection.send(None)
        for job in _jobs(connection):
            outcomes = work(job, context)
            connection.send(outcomes)
            if any(outcome.status == "stopped" for outcome in outcomes):
                break


def _jobs(connection: Connection) -> Iterator[Job]:
    while (job := connection.recv()) is not None:
        yield job


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM between trials, or while testing, which can be done again; in training, `run` listens itself."""
    raise SystemExit(0)


def _end_with_driver() -> None:
    """A driver that was killed cannot say so: its workers write their checkpoints and leave."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os.kill(os.getpid(), signal.SIGTERM)
