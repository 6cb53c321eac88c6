"""The cluster engine: Ray places each job on a node that has room for it. No other module imports ray.

A job is a task that Ray never repeats by itself. A task that is lost with its node comes back without outcomes, and the
driver places its trials again: what they had learned stands in the study directory, which all nodes must see.
"""

import os
import pickle
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from apical.errors import InvalidArgumentError, StudyError
from apical.study.engines.base import Context, Done, Job, Options, Outcome
from apical.study.engines.local import AHEAD, PATIENCE
from apical.study.engines.node import Place, perform

CONNECT: Final = 10.0
"""Seconds that a cluster's address gets to answer."""
OBJECTS: Final = 100 * 2**20
"""Bytes of shared memory for a Ray that is started here: outcomes are small, data comes from files."""
ADDRESS: Final = re.compile(r"(?P<host>[\w.-]+|\[[\da-fA-F:.]+\]):(?P<port>\d{1,5})")


def start(context: Context, options: Options) -> "RayEngine":
    """Join the cluster at `options.address`, or start one of this machine's cores where it is "local".

    A program that has joined a cluster already stays in it.
    """
    _check_gpus(options.gpus, context.execution.device)
    joined_here = not ray.is_initialized()
    if joined_here:
        _join(options.address or "auto", cores=options.workers and options.workers * options.cpus)
    try:
        engine = RayEngine(context, options, leaves=joined_here)
        engine.check_room()
    except BaseException:
        if joined_here:
            ray.shutdown()
        raise
    return engine


class RayEngine:
    """See `Engine`. With `leaves`, it leaves the cluster when it is closed."""

    def __init__(self, context: Context, options: Options, *, leaves: bool) -> None:
        self.options, self.leaves = options, leaves
        self._place = Place.of_driver(context, threads=options.cpus, gpus=options.gpus)
        self._perform = ray.remote(perform).options(
            name="apical", num_cpus=options.cpus, num_gpus=options.gpus, max_retries=0
        )
        self._jobs: dict[Any, Job] = {}

    @property
    def workers(self) -> int:
        fit = sum(places_on(node, self.options) for node in _nodes())
        return min(fit, self.options.workers or fit)

    @property
    def room(self) -> int:
        wanted = self.options.workers or AHEAD * self.workers
        return max(0, max(1, wanted) - len(self._jobs))  # one, at least: a cluster may grow when something waits

    def submit(self, job: Job) -> None:
        self._jobs[self._perform.remote(self._place, pickle.dumps(job))] = job

    def wait(self, seconds: float) -> list[Done]:
        if not self._jobs:
            time.sleep(seconds)
            return []
        ray.wait([*self._jobs], timeout=seconds)
        ready, _ = ray.wait([*self._jobs], num_returns=len(self._jobs), timeout=0)
        return [_done(self._jobs.pop(task), task) for task in ready]

    def close(self, *, stop: bool) -> None:
        try:
            for task in self._jobs:
                ray.cancel(task)  # Ctrl-C in the worker: a trial in training writes its checkpoint
            if self._jobs:
                ray.wait([*self._jobs], num_returns=len(self._jobs), timeout=PATIENCE)
        finally:
            self._jobs.clear()
            if self.leaves:
                ray.shutdown()

    def check_room(self) -> None:
        """Refuse what no node has, instead of waiting for it."""
        if not self.workers:
            nodes = {f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in _nodes()}
            raise StudyError(
                f"a trial of {self.options.cpus} CPUs and {self.options.gpus:g} GPUs fits on no node of the Ray "
                f"cluster, which have {' or '.join(sorted(nodes))}: lower --cpus-per-trial or --gpus-per-trial"
            )


def _done(job: Job, task: Any) -> Done:
    """What came of a task; one that Ray lost has no outcomes."""
    try:
        return Done(job, tuple(ray.get(task)))
    except TaskCancelledError:
        return Done(job, tuple(Outcome(trial.digest, "stopped") for trial in job.trials))
    except RayTaskError as error:
        return Done(job, tuple(Outcome(trial.digest, "fatal", _refused(error)) for trial in job.trials))
    except RayError:
        return Done(job)


def _refused(error: RayTaskError) -> str:
    last = str(error).strip().splitlines()[-1]
    return f"a node of the Ray cluster cannot run a trial ({last}): install the same apical[ray] on every node"


# --- the cluster -------------------------------------------------------------------------------------------------


def _join(address: str, *, cores: int | None) -> None:
    """Become a driver of the cluster; errors of Ray become one sentence."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a Ray that is started here
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        own = {"num_cpus": cores or _cores(), "object_store_memory": OBJECTS, "include_dashboard": False}
    else:
        own = {}
        _check_address(address)
    try:
        with _signals_kept():
            ray.init(address=address, **own, **quiet)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise _no_cluster(address, _first_sentence(error)) from error


def _first_sentence(error: Exception) -> str:
    return str(error).strip().splitlines()[0].partition(". ")[0]


def _check_address(address: str) -> None:
    """Refuse what is no address, or where nobody answers; Ray itself would try for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    if address == "auto":
        return
    parts = ADDRESS.fullmatch(address)
    if not parts or int(parts["port"]) >= 2**16:
        raise InvalidArgumentError(
            f"address is {address!r}, but must be auto, local or HOST:PORT of the cluster's head"
        )
    try:
        socket.create_connection((parts["host"].strip("[]"), int(parts["port"])), CONNECT).close()
    except OSError as error:
        raise _no_cluster(address, error.strerror or str(error)) from error


def _no_cluster(address: str, why: str) -> StudyError:
    what = "found no Ray cluster" if address == "auto" else f"cannot join a Ray cluster at {address} ({why})"
    return StudyError(f"{what}: start one with `ray start --head` and give its HOST:PORT, or use --address local")


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray's answer to SIGTERM kills trials without their checkpoints: keep ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_gpus(gpus: float, device: str) -> None:
    if device == "cuda" and not gpus:
        raise InvalidArgumentError("device is 'cuda', but a trial has 0 GPUs: give it --gpus-per-trial 1, or a share")
    if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise InvalidArgumentError(f"gpus is {gpus:g}, but must be a share of one GPU (0 to 1) or a whole number")


def _nodes() -> list[dict[str, float]]:
    """CPUs and GPUs of every living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def places_on(node: dict[str, float], options: Options) -> int:
    """Trials that one node runs at the same time; a trial never has shares of two GPUs."""
    by_cpus = int(node.get("CPU", 0)) // options.cpus
    if not options.gpus:
        return by_cpus
    gpus = int(node.get("GPU", 0))
    by_gpus = gpus * int(1 / options.gpus) if options.gpus <= 1 else gpus // int(options.gpus)
    return min(by_cpus, by_gpus)
