"""Run a job on a node of a cluster: take over the driver's settings, check that the node fits, then work."""

import hashlib
import os
import pickle
import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from apical import __version__, files
from apical.errors import ApicalError, StudyError
from apical.study.directory import COMMANDS
from apical.study.engines.base import Context, Job, Outcome
from apical.study.engines.local import THREADS


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a node must know before it opens a job: that imports torch, which must see the threads first.

    `size` and `digest` are those of the directory's log of commands. It only grows, and the driver has just written to
    it: a node that finds another beginning sees another directory under this path.
    """

    version: str
    directory: Path
    size: int
    digest: str
    folder: Path
    path: tuple[str, ...]
    environment: dict[str, str]
    context: bytes

    @classmethod
    def of_driver(cls, context: Context, *, threads: int, gpus: float = 0.0) -> Self:
        """As this process has it; a trial without GPUs sees none, as if the machine had none."""
        log = files.read_bytes(context.directory / COMMANDS, limit=files.LIMIT, follow=False)
        own = {name: value for name, value in os.environ.items() if name.startswith("APICAL_")}
        own |= dict.fromkeys(THREADS, str(threads)) | ({} if gpus else {"CUDA_VISIBLE_DEVICES": ""})
        return cls(
            version=__version__, directory=context.directory, size=len(log), digest=hashlib.sha256(log).hexdigest(),
            folder=Path.cwd(), path=tuple(sys.path), environment=own, context=pickle.dumps(context),
        )  # fmt: skip

    def seen(self) -> bool:
        """True where this process sees the driver's study directory."""
        try:
            with files.open_file(self.directory / COMMANDS, follow=False) as file:
                return hashlib.sha256(file.read(self.size)).hexdigest() == self.digest
        except OSError:
            return False


def perform(place: Place, job: bytes) -> list[Outcome]:
    """Do a job; what is wrong with the node is fatal, and said in one sentence."""
    _settle(place)
    from apical.study.worker import work  # noqa: PLC0415  it imports torch

    opened: Job = pickle.loads(job)
    try:
        _check(place)
        _keep_data()
        return work(opened, pickle.loads(place.context))
    except ApicalError as error:
        return [Outcome(trial.digest, "fatal", str(error)) for trial in opened.trials]


def _settle(place: Place) -> None:
    """Environment, import path and folder of the driver, so that the user's data and modules are found."""
    os.environ.update(place.environment)
    sys.path.extend(entry for entry in place.path if entry not in sys.path)
    with suppress(OSError):
        os.chdir(place.folder)


def _check(place: Place) -> None:
    host = socket.gethostname()
    if place.version != __version__:
        raise StudyError(
            f"node {host} has apical {__version__}, and the driver has {place.version}: "
            "install the same version on every node"
        )
    if not place.seen():
        raise StudyError(
            f"node {host} does not see the study directory {place.directory}: put it on a file system that all nodes "
            "share under the same path, and name it with -d"
        )


@cache
def _keep_data() -> ExitStack:
    """The data of the last trial stays open as long as this process lives."""
    from apical.train.trial import dataset_cache  # noqa: PLC0415

    stack = ExitStack()
    stack.enter_context(dataset_cache())
    return stack
