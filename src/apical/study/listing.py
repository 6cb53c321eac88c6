"""What `apical study list` shows: the shipped studies, their size, their time on this machine, their data."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from apical.data import statuses
from apical.study.config.loading import load, names
from apical.study.cost import ProgressCallback, calibrate, estimate, samples_of
from apical.study.model import Study
from apical.study.plan import plan


@dataclass(frozen=True)
class Entry:
    """One study. `seconds` and `quick_seconds` are None where nothing was measured. `data`: states by data set."""

    study: Study
    rows: int
    trials: int
    data: dict[str, str]
    seconds: float | None
    quick_seconds: float | None

    @property
    def ready(self) -> bool:
        """True where all its data is there."""
        return "not prepared" not in self.data.values()


def catalogue(
    *, measure: bool = True, workers: int | None = None, progress: ProgressCallback | None = None
) -> Iterator[Entry]:
    """The shipped studies, one after the other: what was not measured before is measured now, if `measure`."""
    states = {status.recipe.name: status.state for status in statuses()}
    count = workers or os.cpu_count() or 1
    for name in names():
        study, quick = load(name), load(name, quick=True)
        yield Entry(
            study=study,
            rows=len(study.trained),
            trials=plan(study).count,
            data={part.data: states[part.data] for part in study.parts},
            seconds=seconds_of(study, workers=count, measure=measure, progress=progress),
            quick_seconds=seconds_of(quick, workers=count, measure=measure, progress=progress),
        )


def seconds_of(
    study: Study, *, workers: int, measure: bool = True, progress: ProgressCallback | None = None
) -> float | None:
    """What a study takes on this machine; None where a step of a part was not measured."""
    seconds = calibrate(study, measure=measure, progress=progress)
    if len(seconds) < len(study.parts):
        return None
    samples = {part.data: samples_of(part) for part in study.parts}
    return estimate(plan(study), seconds, samples, workers=workers)
