"""Estimate how long a study takes, from its plan, the sizes of its data sets and the measured time of a step."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil, inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from apical.data import load
from apical.data.corruptions import Few, Subset, parse
from apical.data.dataset import DataSet
from apical.data.loading import in_memory
from apical.data.recipe import Arrays, Recipe
from apical.data.registry import RECIPES
from apical.data.split import Parts
from apical.nn import Unit
from apical.study.model import Part, Study
from apical.study.plan import Plan, Planned, spec_of
from apical.train import TrialSpec, losses, why_alone
from apical.train.evolution import evolution_of
from apical.train.optimisation import optimiser_of
from apical.train.session import build, dims_for, refuse_misfit
from apical.train.spec import EVOLUTION
from apical.train.stack import faster_as_stack
from apical.train.stack.activations import StackedAdam
from apical.train.stack.network import StackedNetwork

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORWARD = 1 / 3
"""What evaluating a sample costs, as a share of training on it."""
START = 0.3
"""Seconds before a trial or a stack of them takes its first step, once its process runs."""
EACH = 0.05
"""Seconds of each trial besides its steps: to lease, record, publish and test it."""
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
    changes = [parse(text) for text in part.corruptions]
    recipe = RECIPES.get(part.data)
    classes = (recipe.class_count if recipe is not None else None) or inf
    subsets = [c.samples for c in changes if isinstance(c, Subset)]
    return min(*subsets, *(c.per_class * classes for c in changes if isinstance(c, Few)), inf, inf)


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


def estimate(plan: Plan, seconds: Mapping[str, Step], samples: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """Seconds of one process for each part of a study, its trials in the stacks of the plan.

    `seconds`: of one step with standard neurons, by part. `samples`: for training and validation, by data set.
    """
    total = dict.fromkeys((part.name for part in plan.study.parts), 0.0)
    for stack in (*plan.tuning_stacks, *plan.stacks(_finals(plan))):
        row = plan.study.row(stack[0].row)
        part = plan.study.part(row.part)
        branches = BRANCHES if Unit.parse(row.unit).pyramidal else 1
        work = branches * seconds[part.name].of(len(stack)) * steps(part, samples[part.data])
        total[part.name] += START + EACH * len(stack) + work
    return total


def _finals(plan: Plan) -> list[Planned]:
    """The trials behind the tuning ones; which setting wins does not matter for the time."""
    rows = [(row, plan.settings(row)[0]) for row in plan.study.trained]
    tuned = {trial.digest for trial in plan.tuning}
    return [t for row, setting in rows for t in plan.finals(row, setting) if t.digest not in tuned]


# Seconds of one training step, alone and in a stack: the real networks, the real optimiser, one thread.

LONG = 0.1
"""Seconds: a step is repeated, and its share of a batch grows, until it takes so long."""
StepFunction = Callable[[Tensor, Tensor], None]


def step_alone(spec: TrialSpec, data: DataSet) -> float:
    """The time of a training step: forward, backward and the optimiser's step on one batch."""
    with _quietly():
        network = build(spec, dims_for(spec, data))
        rows = np.arange(2) % len(data.train)
        inputs, labels = data.train.inputs(rows), torch.from_numpy(data.train.labels[rows])
        refuse_misfit(spec, network, inputs, labels, None if data.class_names is None else len(data.class_names))
        network.train()
        optimiser, evolution = optimiser_of(spec, network), evolution_of(spec, network)

        def step(inputs: Tensor, labels: Tensor) -> None:
            loss = losses.find(spec.loss).compute(network(inputs), labels)
            optimiser.zero_grad()
            if evolution is not None:
                evolution.propose(inputs, labels, epoch=0, batch=0)
            else:
                loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

        return _whole_batch(step, data, spec.batch)


def step_stacked(spec: TrialSpec, data: DataSet, size: int) -> float:
    """The time of a step of a stack of `size` such trials, as `run_many` takes it."""
    with _quietly():
        specs = [replace(spec, seed=seed) for seed in range(size)]
        networks = [build(each, dims_for(each, data)) for each in specs]
        stack = StackedNetwork(networks)
        optimiser, every = StackedAdam(specs, networks, stack.parameters), torch.ones(size)

        def step(inputs: Tensor, labels: Tensor) -> None:
            outputs = stack.forward(inputs, keep=True).requires_grad_()
            (gradient,) = torch.autograd.grad(losses.find(spec.loss).losses(outputs, labels), outputs, every)
            stack.backward(gradient)
            optimiser.step(0)

        return _whole_batch(step, data, spec.batch)


def _whole_batch(step: StepFunction, data: DataSet, batch: int) -> float:
    """A batch that takes long is measured by shares of it, 2 samples, 4, 8, until they take LONG.

    The line through the first and the last leads to the whole batch.
    """
    few = n = min(2, batch)
    first = took = _time(step, data, n)
    while n < batch and (n == few or took < LONG):
        n = min(2 * n, batch)
        took = _time(step, data, n)
    slope = max(0.0, took - first) / max(1, n - few)
    return took + slope * (batch - n)


def _time(step: StepFunction, data: DataSet, n: int) -> float:
    """The shortest of a few steps on n samples; the first one also makes the optimiser's state."""
    rows = np.arange(n) % len(data.train)
    inputs, labels = data.train.inputs(rows), torch.from_numpy(data.train.labels[rows])
    times: list[float] = []
    while len(times) < 2 or (sum(times) < LONG and len(times) < 50):
        start = perf_counter()
        step(inputs, labels)
        times.append(perf_counter() - start)
    return min(times)


@contextmanager
def _quietly() -> Iterator[None]:
    """One thread, and the random numbers of the caller left alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


# Seconds of a training step on this machine: a few steps of the real network on random data of the right shape.
#
# One thread, as the local engine gives a trial by default.

STANDARD, PYRAMIDAL = "ada", "pynada"


def calibrate(
    study: Study, known: dict[str, float], *, progress: Callable[[str, int, int], None] | None = None
) -> dict[str, Step]:
    """Seconds of one step of each part with standard neurons, alone and in a stack.

    What is not `known` is measured, and known afterwards: studies share networks.
    """
    study.enable()
    measured: dict[str, Step] = {}
    for done, part in enumerate(study.parts):
        unit, branches = _unit(study, part)
        spec = spec_of(part, unit)
        largest = study.stack if why_alone(spec) is None else 1
        keys = {size: _key(spec, size) for size in (1, largest)}
        left = [size for size, key in keys.items() if key not in known]
        if left and progress is not None:
            progress(f"measuring {spec.model} on {spec.data}", done, len(study.parts))
        known |= {keys[size]: seconds_of_step(spec, stack=size) for size in left}
        measured[part.name] = Step(known[keys[1]] / branches, largest, known[keys[largest]] / branches)
    return measured


def _key(spec: TrialSpec, stack: int) -> str:
    """All that the time depends on: the network, its input, the batch, the stack."""
    recipe = RECIPES.get(spec.data)
    shape = spec.data if recipe is None or recipe.make is not None else recipe.shape
    many = [spec.optimiser, spec.population] if spec.optimiser in EVOLUTION else []
    return repr([spec.model, spec.dims, spec.unit, shape, spec.pad, spec.size, spec.batch, spec.convert, stack, *many])


def _unit(study: Study, part: Part) -> tuple[str, int]:
    """What to measure, and what it costs in standard neurons: some networks are built of pyramidal ones alone."""
    units = [Unit.parse(row.unit) for row in study.trained if row.part == part.name]
    return (PYRAMIDAL, BRANCHES) if all(unit.pyramidal for unit in units) else (STANDARD, 1)


def samples_of(part: Part) -> tuple[int, int]:
    """Training and validation samples of a part's data; the user's own data is opened."""
    recipe = RECIPES.get(part.data)
    if recipe is not None and recipe.counts is not None:
        return recipe.counts[:2]
    spec = spec_of(part)
    data = load(part.data, size=spec.size)
    return len(data.train), len(data.validation)


def seconds_of_step(spec: TrialSpec, *, stack: int = 1) -> float:
    """The time of a training step of one trial, or of a stack of trials."""
    data = sketch(spec)
    if stack == 1 and not faster_as_stack(spec):
        return step_alone(spec, data)
    return step_stacked(spec, data, stack)


def sketch(spec: TrialSpec) -> DataSet:
    """Random data of the shape that the spec's data set has; the data set itself where it is made in memory."""
    recipe = RECIPES.get(spec.data)
    made = recipe is None or recipe.make is not None
    data = load(spec.data, size=spec.size) if recipe is None or made else _random(recipe.at(spec.size))
    return data.padded(spec.pad) if spec.pad else data


def _random(recipe: Recipe) -> DataSet:
    draw = np.random.default_rng(0)
    n = 8
    rows = np.arange(n)
    ids = [f"sample-{i}" for i in rows]
    names = recipe.class_names or tuple(map(str, range(recipe.class_count or 0))) or None
    labels = draw.integers(len(names), size=n) if names else draw.random(n, dtype=np.float32)
    inputs: NDArray[Any] = draw.random((n, *recipe.shape), dtype=np.float32)
    if recipe.kind == "text":
        inputs = draw.integers(recipe.vocabulary or 2, size=inputs.shape)
    elif recipe.kind in ("image", "files"):
        inputs = draw.integers(256, size=inputs.shape, dtype=np.uint8)
    parts = Parts(rows, rows, rows)
    return in_memory(recipe, Arrays(inputs=inputs, labels=labels, ids=ids, parts=parts, class_names=names))
