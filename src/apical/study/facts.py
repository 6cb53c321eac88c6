"""What the driver must know of a published trial: validation and time. Read in a moment, and kept in the index."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from apical.study import files
from apical.study.results import FINISHED
from apical.study.store import RESULT

DAMAGED = "damaged"


@dataclass(frozen=True)
class Facts:
    """`value` is the validation metric that judges the trial, None where it is not finite; `state` may be damaged."""

    state: str
    value: float | None
    seconds: float

    def to_json(self) -> str:
        """One line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        values = json.loads(text)
        value = values["value"]
        return cls(str(values["state"]), None if value is None else float(value), float(values["seconds"]))


def read(folder: Path) -> Facts:
    """The facts of a published trial; a folder whose result cannot be understood, or is another's, is damaged."""
    values = files.read(folder / RESULT) or {}
    try:
        state, value = values["state"], values["validation"].get(values["spec"]["metric"])
        if state not in FINISHED or _digest(values["spec"]) != folder.name:
            raise ValueError(state)
        seconds = sum(float(t["train"]) + float(t["validate"]) for t in values["timings"])
        return Facts(state, None if value is None else float(value), seconds)
    except (KeyError, TypeError, ValueError, AttributeError):
        return Facts(DAMAGED, None, 0.0)


def _digest(spec: object) -> str:
    """`TrialSpec.digest`, without torch."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
