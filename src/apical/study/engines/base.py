"""What engines place: jobs, what they need, and what comes of them. All of it can be sent to another process."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from apical.errors import InvalidArgumentError, MissingExtraError, unknown
from apical.study.leases import Limits

if TYPE_CHECKING:
    from apical.study.plan import Planned
    from apical.train import Execution

JobKind = Literal["train", "test"]
Status = Literal["done", "diverged", "failed", "taken", "lost", "stopped", "fatal"]


@dataclass(frozen=True)
class Job:
    """Trials that one worker trains together, or tests one after the other."""

    kind: JobKind
    trials: "tuple[Planned, ...]"


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every job of a study needs: where, how, with which of the user's modules.

    `trusted` is what the user allowed in the driver: a worker allows the same, and asks nobody.
    """

    directory: Path
    execution: "Execution"
    limits: Limits = field(default_factory=Limits)
    imports: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of one trial of a job.

    taken: somebody else has it. lost: somebody took it over. stopped: asked to, it can go on. fatal: nothing can be
    trained or stored here, the reason says why and what to do.
    """

    digest: str
    status: Status
    reason: str = ""


# What an engine is, and the engines by name.


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of an engine. `workers`: jobs at the same time, None for what fits.

    `cpus` and `gpus` are those of one job (fractions of a GPU where the engine can share one); `address` is that of a
    cluster. `own` holds further options that the engine declares, by name.
    """

    workers: int | None = None
    cpus: int = 1
    gpus: float = 0.0
    address: str | None = None
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that the user gave, but for those that every engine has."""
        defaults = Options()
        named = [f.name for f in fields(self) if f.name not in (*COMMON, "own")]
        return (*(n for n in named if getattr(self, n) != getattr(defaults, n)), *self.own)


@dataclass(frozen=True)
class Done:
    """A job that came back: with its outcomes, or with none because its worker died."""

    job: Job
    outcomes: Sequence[Outcome] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcomes", tuple(self.outcomes))

    @property
    def died(self) -> bool:
        """True where nobody knows what came of it."""
        return not self.outcomes


class Engine(Protocol):
    """Places jobs, and nothing else: leases, results and progress go through the study directory.

    An engine calls `apical.study.worker.work(job, context)` for every job it is given, in some process on some machine
    that sees the study directory under the same path, one job at a time per process, and hands back what it returns. A
    job whose worker dies comes back without outcomes; the engine replaces the worker and goes on. It may be told to
    stop at any time: running trials get SIGTERM, or what has the same effect, and time to write their checkpoints. An
    engine never decides which job is next, never reads or writes the study directory, and keeps no state that outlives
    the driver.
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


@dataclass(frozen=True)
class EngineDescriptor:
    """An engine by name: what starts it, and the options that it has beside `workers` and `cpus`.

    `start(context, options)` gives an `Engine` with its workers; as "module:function" it is imported when needed.
    `package` is what that import needs and the extra of the same name installs.
    """

    name: str
    start: "str | Callable[[Context, Options], Engine]"
    options: tuple[str, ...] = ()
    package: str = ""

    def check(self, options: Options) -> None:
        """Refuse an option that this engine does not have."""
        for name in options.given:
            if name not in self.options:
                others = [engine.name for engine in ENGINES.values() if name in engine.options]
                hint = f": use {' or '.join(others)}" if others else ""
                raise InvalidArgumentError(
                    f"engine {self.name!r} has no option {name!r}; it has {', '.join((*COMMON, *self.options))}{hint}"
                )


COMMON: Final = ("workers", "cpus")
ENGINES: Final = {
    engine.name: engine
    for engine in (
        EngineDescriptor("local", "apical.study.engines.local:start"),
        EngineDescriptor("ray", "apical.study.engines.ray:start", ("gpus", "address"), package="ray"),
    )
}


def register_engine(name: str, start: "Callable[[Context, Options], Engine]", *, options: Iterable[str] = ()) -> None:
    """Add an engine: `start(context, options)` gives an `apical.study.engines.base.Engine`.

    `options` names what it takes beside `workers` and `cpus`: `gpus`, `address`, and any of its own, which the user
    gives as `Options(own={...})` or `--engine-option name=value`. `apical study run --engine NAME` knows the engine
    where a module that the study imports calls this.
    """
    if not (isinstance(name, str) and re.fullmatch(r"\w[\w-]*", name)):
        raise InvalidArgumentError(f"{name!r} cannot name an engine: use letters, digits, '-' and '_'")
    if name in ENGINES:
        raise InvalidArgumentError(f"there is an engine {name!r} already: register yours under another name")
    if not callable(start):
        raise InvalidArgumentError(f"start of engine {name!r} is {start!r}, but must be a function")
    ENGINES[name] = EngineDescriptor(name, start, tuple(options))


def find(name: str) -> EngineDescriptor:
    """The engine of that name, or those that there are."""
    if name not in ENGINES:
        more = "register_engine adds your own, in a module that the study imports"
        raise InvalidArgumentError(unknown("engine", name, ENGINES, more))
    return ENGINES[name]


def start(name: str, context: Context, options: Options) -> Engine:
    """The engine of that name, with its workers."""
    engine = find(name)
    engine.check(options)
    if not isinstance(engine.start, str):
        return engine.start(context, options)
    module, _, function = engine.start.partition(":")
    try:
        begin: Callable[[Context, Options], Engine] = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if not engine.package or error.name != engine.package:
            raise
        extra = f"apical[{engine.package}]"
        raise MissingExtraError(f"the engine {name!r} is not installed: pip install {extra!r}") from error
    return begin(context, options)
