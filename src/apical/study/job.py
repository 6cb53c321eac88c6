"""What engines place: jobs, what they need, and what comes of them. All of it can be sent to another process."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from apical.study.leases import Limits

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
