"""What engines place: jobs, what they need, and what comes of them. All of it can be sent to another process."""

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from apical.errors import InvalidArgumentError, MissingExtraError
from apical.study.locks import Limits

if TYPE_CHECKING:
    from apical.study.plan import Planned
    from apical.train import Execution

Kind = Literal["train", "test"]
Ending = Literal["done", "diverged", "failed", "taken", "lost", "stopped", "hopeless"]


@dataclass(frozen=True)
class Job:
    """Trials that one worker trains together, or tests one after the other."""

    kind: Kind
    trials: "tuple[Planned, ...]"


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every job of a study needs: where, how, with which of the user's modules."""

    directory: Path
    execution: "Execution"
    limits: Limits = field(default_factory=Limits)
    imports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of one trial of a job.

    taken: somebody else has it. lost: somebody took it over. stopped: asked to, it can go on. hopeless: nothing can be
    trained or stored here, the reason says why and what to do.
    """

    digest: str
    ending: Ending
    reason: str = ""


# What an engine is, and the engines by name.


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user says about places. `workers`: jobs at the same time, None for what fits.

    `cpus` and `gpus` are those of one job (fractions of a GPU where the engine can share one); `address` is that of a
    cluster.
    """

    workers: int | None = None
    cpus: int = 1
    gpus: float = 0.0
    address: str | None = None


@dataclass(frozen=True)
class Done:
    """A job that came back: with its outcomes, or with none because its worker died."""

    job: Job
    outcomes: tuple[Outcome, ...] = ()

    @property
    def died(self) -> bool:
        """True where nobody knows what came of it."""
        return not self.outcomes


class Engine(Protocol):
    """Places jobs, and nothing else: claims, results and progress go through the study directory.

    An engine calls `apical.study.worker.work(job, context)` for every job it is given, in some process on some machine
    that sees the study directory under the same path, and hands back what it returns. A job whose worker dies comes
    back without outcomes; the engine replaces the worker and goes on. It may be told to stop at any time: running
    trials get SIGTERM, or what has the same effect, and time to write their checkpoints. An engine never decides which
    job is next, never reads or writes the study directory, and keeps no state that outlives the driver.
    """

    @property
    def workers(self) -> int:
        """Jobs that it can run at the same time now; a cluster may grow and shrink."""
        ...

    @property
    def room(self) -> int:
        """Jobs that it takes now: enough for its workers to find the next one when they have finished theirs."""
        ...

    def submit(self, job: Job) -> None:
        """Take a job; called at most `room` times before the next `wait`."""
        ...

    def wait(self, seconds: float) -> list[Done]:
        """The jobs that came back; waits for the first of them, at most so long."""
        ...

    def close(self, *, stop: bool) -> None:
        """End all workers; with `stop`, in the middle of what they do, once their checkpoints are written."""
        ...


ENGINES: Final = {"local": "apical.study.engines.local", "ray": "apical.study.engines.ray"}
"""Each is a module with `start(context, options) -> Engine`."""


def check_name(name: str) -> None:
    """Refuse an engine that does not exist."""
    if name not in ENGINES:
        raise InvalidArgumentError(f"engine is {name!r}, but must be one of {', '.join(ENGINES)}")


def start(name: str, context: Context, options: Options) -> Engine:
    """The engine of that name, with its workers."""
    check_name(name)
    if name == "local" and (options.address or options.gpus):
        raise InvalidArgumentError("an address and GPUs per trial are for a cluster, but engine is 'local': use ray")
    try:
        module = import_module(ENGINES[name])
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingExtraError(f"the engine {name!r} is not installed: pip install 'apical[{name}]'") from error
    engine: Engine = module.start(context, options)
    return engine
