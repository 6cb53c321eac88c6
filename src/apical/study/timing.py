"""Seconds of one training step, alone and in a stack: the real networks, the real optimiser, one thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from apical.data.dataset import DataSet
from apical.train import TrialSpec
from apical.train.losses import BY_NAME, of_each
from apical.train.network import build, dims_for
from apical.train.optimisation import optimiser_of
from apical.train.stacked import StackedNetwork
from apical.train.stacked_parameters import StackedAdam

LONG = 0.1
"""Seconds: a step is repeated, and its share of a batch grows, until it takes so long."""
Step = Callable[[Tensor, Tensor], None]


def step_alone(spec: TrialSpec, data: DataSet) -> float:
    """The time of a training step: forward, backward and the optimiser's step on one batch."""
    with _quietly():
        network = build(spec, dims_for(spec, data)).train()
        optimiser = optimiser_of(spec, network)

        def step(inputs: Tensor, labels: Tensor) -> None:
            loss = BY_NAME[spec.loss](network(inputs), labels)
            optimiser.zero_grad()
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
            (gradient,) = torch.autograd.grad(of_each(spec.loss, outputs, labels), outputs, every)
            stack.backward(gradient)
            optimiser.step(0)

        return _whole_batch(step, data, spec.batch)


def _whole_batch(step: Step, data: DataSet, batch: int) -> float:
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


def _time(step: Step, data: DataSet, n: int) -> float:
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
