"""How long a study takes: a pure function of its plan, of how many samples there are, and of the seconds of a step."""

from collections.abc import Mapping
from math import ceil, inf

from apical.data.corruptions import Subset, parse
from apical.nn import Unit
from apical.study.file import Part
from apical.study.plan import Plan, spec_of

FORWARD = 1 / 3
"""What evaluating a sample costs, as a share of training on it."""
START = 0.3
"""Seconds before a trial takes its first step, once its process runs."""
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


def estimate(
    plan: Plan, seconds: Mapping[str, float], samples: Mapping[str, tuple[int, int]], *, workers: int = 1
) -> float:
    """Seconds that a study takes with `workers` processes.

    `seconds`: of one step with standard neurons, by part. `samples`: for training and validation, by data set.
    """
    total = 0.0
    for row in plan.study.trained:
        part = plan.study.part(row.part)
        trials = len(plan.settings(row)) * plan.tune_trials + max(0, plan.study.trials - plan.tune_trials)
        branches = BRANCHES if Unit.parse(row.unit).pyramidal else 1
        total += trials * (START + branches * seconds[part.name] * steps(part, samples[part.data]))
    return total / workers
