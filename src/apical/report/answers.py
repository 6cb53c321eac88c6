"""What a tested trial says about each sample: right or wrong, or how far off."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apical.errors import ApicalError
from apical.study.results import Outputs, TrialRecord

RIGHT_OR_WRONG = ("accuracy", "weighted-accuracy", "top-5")


@dataclass(frozen=True)
class Answers:
    """One value for each test sample, sorted by id: right (1) or wrong (0), or an error; and the label."""

    ids: NDArray[Any]
    values: NDArray[np.float64]
    labels: NDArray[Any]


class AnswerBook:
    """Reads each trial's outputs once; what cannot be read or paired is said in `faults`, and left out."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._known: dict[tuple[str, str], Answers | None] = {}

    def read(self, record: TrialRecord, metric: str) -> Answers | None:
        """The answers of a trial as `metric` counts them; None where there are none."""
        key = (record.digest, metric)
        if key not in self._known:
            self._known[key] = self._read(record, metric)
        return self._known[key]

    def _read(self, record: TrialRecord, metric: str) -> Answers | None:
        if record.test is None or metric not in PER_SAMPLE:
            return None
        try:
            found = record.outputs()
        except ApicalError as error:
            self.faults.append(str(error))
            return None
        order = np.argsort(found.ids, kind="stable")
        return Answers(found.ids[order], PER_SAMPLE[metric](found)[order], found.labels[order])


def _right(found: Outputs) -> NDArray[np.float64]:
    return np.asarray(found.outputs.argmax(1) == found.labels, dtype=np.float64)


def _among_five(found: Outputs) -> NDArray[np.float64]:
    own = np.take_along_axis(found.outputs, found.labels[:, None], 1)
    return np.asarray((found.outputs > own).sum(1) < 5, dtype=np.float64)


def _surprise(found: Outputs) -> NDArray[np.float64]:
    return -np.take_along_axis(found.outputs, found.labels[:, None], 1)[:, 0].astype(np.float64)


def _error(found: Outputs) -> NDArray[np.float64]:
    off = found.outputs.astype(np.float64).reshape(found.labels.shape) - found.labels
    return np.asarray(np.abs(off).reshape(len(off), -1).mean(1))


def _squared_error(found: Outputs) -> NDArray[np.float64]:
    off = found.outputs.astype(np.float64).reshape(found.labels.shape) - found.labels
    return np.asarray(np.square(off).reshape(len(off), -1).mean(1))


PER_SAMPLE: dict[str, Callable[[Outputs], NDArray[np.float64]]] = {
    "accuracy": _right,
    "weighted-accuracy": _right,
    "top-5": _among_five,
    "cross-entropy": _surprise,
    "mae": _error,
    "mse": _squared_error,
}
