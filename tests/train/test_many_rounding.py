"""What separates a stacked trial from the same trial alone is rounding, and nothing else."""

from dataclasses import replace
from itertools import chain, count, islice

import pytest
import torch

from apical.train import Execution, TrialSpec
from apical.train import losses as losses_by_name
from apical.train.devices import SingleDevice
from apical.train.optimisation import FastStep, optimiser_of
from apical.train.session import Feed, build, dims_for
from apical.train.stack.activations import Fused, StackedAdam
from apical.train.stack.network import Conv, StackedNetwork
from apical.train.trial import open_data

LENET = TrialSpec(data="digits", model="lenet", dims={"image_size": 16}, pad=4, batch=64, learning_rate=1e-2)
SIN = TrialSpec.paper("sin", "mlp-approx", loss="l1", metric="mae")
UNSTABLE = {
    "pyramidal LeNet, large steps": ([replace(LENET, unit=u) for u in ("pynada", "pynada(alpha=0.5)")], 25),
    "l1 and tanh": ([replace(SIN, unit="tanh", seed=s) for s in range(3)], 300),
    "learned alpha": ([replace(SIN, unit="ada(alpha=learn)", seed=s) for s in range(3)], 300),
    "learned alpha, pyramidal": ([replace(SIN, unit="leaky_pynada(alpha=learn)", seed=s) for s in range(2)], 300),
}
"""Trials in which a difference in the last digit grows with every step."""


def batches(spec, steps, dtype):
    feed = Feed(
        open_data(spec, Execution()).train,
        spec.batch,
        passes=1,
        seed=spec.seed,
        shuffle=True,
        device=SingleDevice.device,
    )
    found = chain.from_iterable(feed.epoch(epoch) for epoch in count())
    return [(x.to(dtype), y if spec.loss == "cross-entropy" else y.to(dtype)) for x, y in islice(found, steps)]


def networks(specs, dtype):
    """First networks, their biases moved off zero.

    An odd function, an odd activation and biases of zero make the gradients of the biases zero but for rounding, and
    Adam, which divides gradients by their size, makes whole steps of that in any precision.
    """
    made = [build(spec, dims_for(spec, open_data(spec, Execution()))).to(dtype) for spec in specs]
    with torch.no_grad():
        for name, p in chain.from_iterable(network.named_parameters() for network in made):
            if name.endswith("bias"):
                p.add_(0.125)
    return made


def losses_alone(spec, steps, dtype):
    (network,) = networks([spec], dtype)
    optimiser = FastStep(optimiser_of(spec, network))
    criterion = torch.nn.functional.cross_entropy if spec.loss == "cross-entropy" else torch.nn.functional.l1_loss
    found = []
    for inputs, labels in batches(spec, steps, dtype):
        loss = criterion(network(inputs), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(loss.detach())
    return torch.stack(found)


def losses_stacked(specs, steps, dtype):
    own = networks(specs, dtype)
    stack = StackedNetwork(own)
    optimiser = StackedAdam(specs, own, stack.parameters)
    found = []
    for inputs, labels in batches(specs[0], steps, dtype):
        losses, gradient = losses_by_name.find(specs[0].loss).gradients(stack.forward(inputs, keep=True), labels)
        stack.backward(gradient)
        optimiser.step(0)
        found.append(losses)
    return torch.stack(found, 1)


def apart(specs, steps, dtype):
    """The largest relative difference of any loss."""
    stacked = losses_stacked(specs, steps, dtype)
    alone = torch.stack([losses_alone(spec, steps, dtype) for spec in specs])
    return float(((stacked - alone).abs() / alone).max())


@pytest.mark.parametrize("name", UNSTABLE)
def test_trials_that_drift_apart_stay_together_in_double_precision(name):
    """Double precision rounds 5e8 times finer, and so is the distance: a mistake would be as large in both."""
    specs, steps = UNSTABLE[name]
    rough, fine = (apart(specs, steps, dtype) for dtype in (torch.float32, torch.float64))
    assert fine < 1e-7
    assert fine < 1e-5 * rough


def kernels(specs, dtype=torch.float32):
    """The kernels, and the size of the windows that they pool, of the parts of a stack."""
    parts = [part for part in StackedNetwork(networks(specs, dtype)).parts if isinstance(part, Fused)]
    return {(type(group).__name__, part.window) for part in parts for group in part._groups}


KINDS = ["relu", "leaky_relu", "rbf", "rbf(s=learn)", "rbf(s=learn,floor=off)", "swish", "swish(beta=0.5)", "ada",
         "leaky_ada(alpha=learn,scope=channel)", "ada(alpha=learn,floor=off)", "pynrelu", "pynrbf(s=learn)", "pynswish",
         "pynada(alpha=learn)", "leaky_pynada", "pyramidal(basal=leaky_relu,apical=rbf)"]  # fmt: skip


@pytest.mark.parametrize("unit", KINDS)
def test_the_kernel_and_plain_torch_train_a_stack_alike(unit, monkeypatch):
    specs = [replace(SIN, unit=unit, seed=s, loss="mse") for s in range(3)]
    kernel = losses_stacked(specs, 20, torch.float32)
    assert kernels(specs) == {("_ByKernel", 1)}
    monkeypatch.setenv("APICAL_BACKEND", "composite")
    plain = losses_stacked(specs, 20, torch.float32)
    assert not kernels(specs)
    torch.testing.assert_close(kernel, plain, rtol=2e-5, atol=0)


@pytest.mark.parametrize(
    "units",
    [
        ("relu", "ada(alpha=learn)", "rbf(s=learn)", "leaky_ada", "swish", "leaky_relu"),
        ("pynrbf", "pynada(alpha=learn)", "pynrelu", "pynswish"),
        ("tanh", "gelu", "ada"),
    ],
)
def test_kinds_with_and_without_a_kernel_train_in_one_stack_as_in_plain_torch(units, monkeypatch):
    specs = [replace(LENET, unit=unit, learning_rate=1e-3) for unit in units]
    mixed = losses_stacked(specs, 4, torch.float32)
    assert {("_ByKernel", 1), ("_ByKernel", 2)} <= kernels(specs)
    monkeypatch.setenv("APICAL_BACKEND", "composite")
    torch.testing.assert_close(mixed, losses_stacked(specs, 4, torch.float32), rtol=1e-4, atol=0)


@pytest.mark.parametrize("unit", ["ada(alpha=learn)", "swish", "pynada", "pynswish"])
def test_our_convolutions_and_those_of_torch_train_a_stack_alike(unit, monkeypatch):
    specs = [replace(LENET, unit=unit, learning_rate=rate) for rate in (1e-3, 2e-3)]
    own = losses_stacked(specs, 5, torch.float64)
    assert kernels(specs, torch.float64) == {("_ByGraph", 2)}
    monkeypatch.setenv("APICAL_BACKEND", "composite")
    plain = losses_stacked(specs, 5, torch.float64)
    assert not any(isinstance(part, Conv | Fused) for part in StackedNetwork(networks(specs, torch.float64)).parts)
    torch.testing.assert_close(own, plain, rtol=1e-9, atol=0)
