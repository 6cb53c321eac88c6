"""How long a study takes: a pure function of its plan, of how many samples there are, and of the seconds of a step."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf

from apical.data.corruptions import Subset, parse
from apical.nn import Unit
from apical.study.file import Part
from apical.study.plan import Plan, Planned, spec_of

FORWARD = 1 / 3
"""What evaluating a sample costs, as a share of training on it."""
START = 0.3
"""Seconds before a trial or a stack of them takes its first step, once its process runs."""
EACH = 0.05
"""Seconds of each trial besides its steps: to claim, record, publish and test it."""
BRANCHES = 2
"""What a pyramidal neuron costs, in standard ones."""


def steps(part: Part, samples: tuple[int, int]) -> float:
    """Steps of one trial on (training, validation) samples; validation counts as the share that it costs."""
    spec = spec_of(part)
    train, validation = (min(count, most(part)) for count in samples)
    training = spec.passes * ceil(train / spec.batch)
    return spec.epochs * (training + FORWARD * validation / spec.batch)


def most(part: Part) -> float:
    """How many samples of a split the part takes at most."""
    subsets = [c.samples for c in map(parse, part.corruptions) if isinstance(c, Subset)]
    return min(subsets, default=inf)


@dataclass(frozen=True)
class Step:
    """Seconds of a step of one trial, and of a stack of `size` of them; what cannot be stacked has size 1."""

    alone: float
    size: int = 1
    stacked: float = 0.0

    def of(self, trials: int) -> float:
        """Seconds of a step of so many trials: on the line through what was measured, never less than one takes."""
        if self.size == 1:
            return trials * self.alone
        return max(self.alone, self.alone + (self.stacked - self.alone) * (trials - 1) / (self.size - 1))


def estimate(
    plan: Plan, seconds: Mapping[str, Step], samples: Mapping[str, tuple[int, int]], *, workers: int = 1
) -> float:
    """Seconds that a study takes with `workers` processes, its trials in the stacks of the plan.

    `seconds`: of one step with standard neurons, by part. `samples`: for training and validation, by data set.
    """
    total = 0.0
    for stack in (*plan.tuning_stacks, *plan.stacks(_finals(plan))):
        row = plan.study.row(stack[0].row)
        part = plan.study.part(row.part)
        branches = BRANCHES if Unit.parse(row.unit).pyramidal else 1
        work = branches * seconds[part.name].of(len(stack)) * steps(part, samples[part.data])
        total += START + EACH * len(stack) + work
    return total / workers


def _finals(plan: Plan) -> list[Planned]:
    """The trials behind the tuning ones; which setting wins does not matter for the time."""
    rows = [(row, plan.settings(row)[0]) for row in plan.study.trained]
    tuned = {trial.digest for trial in plan.tuning}
    return [t for row, setting in rows for t in plan.finals(row, setting) if t.digest not in tuned]
