"""How long a study takes: a pure function of its plan, of how many samples there are, and of the seconds of a step."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from apical.nn import Unit
from apical.study.file import Part, Row
from apical.study.plan import Plan, spec_of

FORWARD = 1 / 3
"""What evaluating a sample costs, as a share of training on it."""
START = 0.3
"""Seconds before a trial takes its first step, once its process runs."""


@dataclass(frozen=True)
class Step:
    """What the time of one step depends on within a study: the part, and whether neurons have two branches."""

    part: str
    pyramidal: bool


def step_of(row: Row) -> Step:
    """The step of a row's trials."""
    return Step(row.part, Unit.parse(row.unit).pyramidal)


def steps(part: Part, samples: tuple[int, int]) -> float:
    """Steps of one trial on (training, validation) samples; validation counts as the share that it costs."""
    spec = spec_of(part)
    training = spec.passes * ceil(samples[0] / spec.batch)
    return spec.epochs * (training + FORWARD * samples[1] / spec.batch)


def estimate(
    plan: Plan, seconds: Mapping[Step, float], samples: Mapping[str, tuple[int, int]], *, workers: int = 1
) -> float:
    """Seconds that a study takes with `workers` processes, from seconds a step and samples by data set."""
    study = plan.study.enable()
    total = 0.0
    for row in study.trained:
        part = study.part(row.part)
        tuned = len(plan.settings(row))
        trials = tuned * plan.tune_trials + max(0, study.trials - plan.tune_trials)
        total += trials * (START + seconds[step_of(row)] * steps(part, samples[part.data]))
    return total / workers
