"""Which trials may be stacked, and what they cost."""

import json
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch

from apical import data, models
from apical.train import Execution, TrialSpec, losses, memory_of, metrics, stack_bytes, stack_key, unstackable_reason
from apical.train.stack.network import StackedNetwork

MLP = TrialSpec.paper("fashion-mnist", "mlp-1", unit="ada(alpha=0.3)")
XOR = TrialSpec.paper("xor", "neuron", unit="ada")


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "ada(alpha=learn)"},
        {"unit": "ada(alpha=0.3,c=1)"},
        {"unit": "relu"},
        {"unit": "leaky_ada(leak=0.2)"},
        {"learning_rate": 0.1},
    ],
)
def test_trials_that_differ_in_unit_and_learning_rate_share_a_stack(change):
    assert stack_key(replace(MLP, **change)) == stack_key(MLP) != None  # noqa: E711


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"unit": "pynada"},
        {"dims": {"hidden": 50}},
        {"model": "mlp-2"},
        {"batch": 32},
        {"epochs": 3},
        {"milestones": ()},
        {"l2": 0.1},
        {"corruptions": ("label-noise(fraction=0.2)",)},
        {"optimiser": "adamw"},
        {"data": "digits"},
    ],
)
def test_trials_that_differ_in_anything_else_do_not(change):
    other = stack_key(replace(MLP, **change))
    assert other is not None
    assert other != stack_key(MLP)


def test_where_a_batch_is_the_whole_problem_seeds_may_differ():
    assert stack_key(replace(XOR, seed=1)) == stack_key(XOR)
    assert stack_key(replace(XOR, seed=1, batch=2)) != stack_key(replace(XOR, batch=2))


@pytest.mark.parametrize("unit", ["ada", "pynada", "silu"])
def test_neurons_that_are_added_have_in_a_stack_the_outputs_and_gradients_that_they_have_alone(unit):
    networks = [models.create("neuron", unit, seed=seed, inputs=3, width=2) for seed in range(3)]
    x = torch.from_numpy(data.load("parity-3").train.inputs(range(8)).numpy())
    alone = [network(x) for network in networks]
    wanted = [torch.autograd.grad(y.square().sum(), list(n.parameters())) for n, y in zip(networks, alone, strict=True)]
    stack = StackedNetwork(networks)
    outputs = stack.forward(x, keep=True)
    torch.testing.assert_close(outputs, torch.stack([y.T for y in alone]))
    stack.backward(2 * outputs)
    for i, gradients in enumerate(wanted):
        for stacked, gradient in zip(stack.parameters.all, gradients, strict=True):
            torch.testing.assert_close(stacked.gradient[i].reshape(gradient.shape), gradient)


@pytest.mark.parametrize(
    ("spec", "how", "sentence"),
    [
        (TrialSpec(data="digits", model="vgg-9"), {}, "network 'vgg-9' cannot be stacked"),
        (replace(MLP, convert=True), {}, "'mlp-1 with convert'"),
        (replace(MLP, optimiser="sgd"), {}, "only Adam without clip"),
        (replace(MLP, clip=1.0), {}, "clip=1.0"),
        (replace(MLP, precision="bf16-mixed"), {}, "precision 'bf16-mixed'"),
        (MLP, {"devices": 2}, "one CPU process"),
        (MLP, {"compile": True}, "one CPU process"),
    ],
)
def test_it_says_why_a_trial_is_trained_alone(spec, how, sentence):
    assert sentence in unstackable_reason(spec, Execution(**how))
    if not how:
        assert stack_key(spec) is None


def test_kinds_of_ones_own_are_trained_alone(monkeypatch):
    from apical.nn import kinds

    monkeypatch.setattr(kinds, "_REGISTERED", dict(kinds._REGISTERED))
    kinds.register_unit("gelu_of_ours", activation=torch.nn.GELU)
    assert "not registered with stack=True" in unstackable_reason(replace(MLP, unit="gelu_of_ours"))


@pytest.mark.parametrize("loss", losses.names())
def test_losses_and_metrics_of_all_trials_are_those_of_each(loss):
    how = losses.find(loss)
    values = {"cross-entropy": 7, "binary": 1, "squared": 1}.get(loss, 2)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(3, 40, values, generator=generator)
    labels = (
        torch.randint(max(2, values), (40,), generator=generator)
        if how.task == "classification"
        else torch.randn(40, values)
    )
    own = how.losses(outputs.transpose(1, 2), labels)
    read = how.answer_of_each(outputs)
    found = metrics.scores_of_each(read, labels, task=how.task)
    for i in range(3):
        assert float(own[i]) == pytest.approx(float(how.compute(outputs[i], labels)), rel=1e-6)
        assert torch.equal(read[i], how.answer(outputs[i]))
        assert found[i] == pytest.approx(metrics.scores(read[i], labels, task=how.task), rel=1e-12)


@pytest.mark.parametrize("loss", [*losses.names(), "binary of two"])
def test_gradients_of_all_losses_are_those_of_autograd(loss):
    name, _, two = loss.partition(" of ")
    values = {"cross-entropy": 7, "binary": 2 if two else 1, "squared": 1}.get(name, 2)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(3, values, 40, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(max(2, values), (40,), generator=generator)
    labels = labels if losses.find(name).task == "classification" else torch.randn(40, values, generator=generator)
    expected = losses.find(name).losses(outputs, labels)
    (slopes,) = torch.autograd.grad(expected.sum(), outputs)
    found, gradient = losses.find(name).gradients(outputs.detach(), labels)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, slopes, rtol=1e-12, atol=1e-15)


def test_classes_that_do_not_occur_do_not_count():
    read = torch.eye(5).log_softmax(1).expand(2, 5, 5)
    labels = torch.tensor([0, 1, 1, 3, 3])
    found = metrics.scores_of_each(read, labels, task="classification")
    assert found[0] == pytest.approx(metrics.scores(read[0], labels, task="classification"))


def test_the_memory_of_a_trial_follows_from_its_network_and_data():
    spec = TrialSpec(data="digits", model="mlp-2", dims={"hidden": (20, 30)}, batch=64, unit="pynada")
    wide = (64 + 1) * 40 + (20 + 1) * 60 + (30 + 1) * 10
    sizes = {"outputs": 10, "batch": 64, "evaluated": 269, "validation": 269}
    assert memory_of(spec) == stack_bytes(parameters=wide, units=40 + 60 + 10, **sizes)


MEMORY = """
    import json, re, sys, tempfile
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from apical.train import Execution, TrialSpec, run_many
    count, shared = int(sys.argv[1]), json.loads(sys.argv[2])
    specs = [TrialSpec(data="digits", unit=f"ada(alpha={i + 1})", epochs=2, **shared) for i in range(count)]
    folder = Path(tempfile.mkdtemp())
    run_many(specs, Execution(threads=1), [folder / str(i) for i in range(count)])
    # getrusage would also count the process that started this one, up to its exec
    print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "shared",
    [
        {"model": "mlp-1", "dims": {"hidden": 20_000}, "batch": 64},
        {"model": "mlp-1", "dims": {"hidden": 4_000}, "batch": 2_000},
        {"model": "mlp-2", "dims": {"hidden": (2_000, 2_000)}, "batch": 64},
        {"model": "lenet", "dims": {"image_size": 32}, "pad": 12, "batch": 512},
    ],
    ids=["validation", "a step", "parameters", "images"],
)
def test_the_peak_of_the_memory_grows_as_predicted(shared):
    """Networks in which one term of the formula is most of it."""
    few, many = 2, 8

    def peak(count):
        program = [sys.executable, "-c", textwrap.dedent(MEMORY), str(count), json.dumps(shared)]
        return int(subprocess.run(program, check=True, capture_output=True, text=True).stdout)

    predicted = memory_of(TrialSpec(data="digits", **shared))
    assert (peak(many) - peak(few)) / (many - few) == pytest.approx(predicted, rel=0.25)
