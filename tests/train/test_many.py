"""A stacked trial is the trial that `run` trains alone, up to rounding."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from apical.errors import InvalidArgumentError, TrainingError
from apical.train import Execution, TrialResult, TrialSpec, evaluate, loop, predict, run, run_many, stack_key
from apical.train import session as alone
from apical.train.checkpoint import load
from apical.train.devices import SingleDevice
from apical.train.result import LAST, RESULT, STACK
from apical.train.session import Feed, Session, build, dims_for
from apical.train.stack import faster_as_stack
from apical.train.stack import session as together
from apical.train.stack.session import StackSession
from apical.train.trial import open_data

ONE_THREAD = Execution(threads=1)
MLP = TrialSpec(data="digits", model="mlp-2", dims={"hidden": (16, 12)}, epochs=2, batch=128, learning_rate=0.01)
LENET = TrialSpec(data="digits", model="lenet", dims={"image_size": 16}, pad=4, epochs=1, batch=128, learning_rate=1e-3)
SIN = TrialSpec.paper("sin", "mlp-approx", epochs=2, passes=15)
XOR = TrialSpec.paper("xor", "neuron", epochs=2, passes=15)
STANDARD = (
    "relu", "leaky_relu", "tanh", "rbf", "swish", "ada(alpha=0.3)", "ada(alpha=1,c=1)", "ada(alpha=learn)",
    "ada(alpha=learn,scope=layer)", "ada(alpha=learn,scope=channel)", "leaky_ada(leak=0.1)",
    "leaky_ada(alpha=learn,leak=0.1)",
)  # fmt: skip
PYRAMIDAL = (
    "pynrelu", "pynrbf", "pynswish", "pynada(alpha=0.3)", "pynada(alpha=learn)", "leaky_pynada",
    "leaky_pynada(alpha=learn,scope=channel)",
)  # fmt: skip
OTHERS = (
    "gelu", "elu(alpha=0.5)", "elu", "prelu", "sine(omega=2)", "sine(omega=learn)", "sine", "gcu", "rbf(s=2)", "rbf",
    "softplus(beta=2)", "mish",
)  # fmt: skip
WRITTEN_OUT = (
    "pyramidal(basal=gelu,apical=ada(alpha=0.5))", "pyramidal(basal=ada(alpha=0.3),apical=tanh)", "pynada",
    "pyramidal(basal=relu,apical=sine(omega=learn))",
)  # fmt: skip
PIXELS = TrialSpec(
    data="china-64", model="coordinates", dims={"width": 16}, loss="mse", metric="psnr", epochs=2, passes=10, batch=1024
)
STACKS = {
    "coordinates": [replace(PIXELS, unit=u) for u in ("relu", "gaussian(sigma=0.5)", "gaussian", "wavelet", "ada")],
    "coordinates, Fourier features": [
        replace(PIXELS, dims={"width": 16, "features": 8}, unit=u, learning_rate=r)
        for u in ("relu", "ada")
        for r in (0.01, 0.003)
    ],
    "coordinates, SIREN": [
        replace(PIXELS, dims={"width": 16, "initial": "siren"}, unit=f"sine(omega={o})") for o in (5, 9)
    ],
    "scaled to data": [
        replace(MLP, model="mlp-deep", dims={"depth": 3, "width": 8, "initial": "data"}, unit=u)
        for u in ("relu", "ada(c=unit)")
    ],
    "mlp, other kinds": [replace(MLP, unit=u) for u in OTHERS],
    "mlp, branches": [replace(MLP, unit=u) for u in WRITTEN_OUT],
    "lenet, other kinds": [replace(LENET, unit=u) for u in ("gelu", "elu(alpha=0.5)", "prelu", "sine(omega=learn)")],
    "mlp": [replace(MLP, unit=u) for u in STANDARD],
    "mlp, pyramidal": [replace(MLP, unit=u) for u in PYRAMIDAL],
    "mlp, learning rates and decay": [
        replace(MLP, unit=u, learning_rate=r, l2=0.1) for u in ("relu", "ada(alpha=learn)") for r in (0.01, 0.003)
    ],
    "lenet": [replace(LENET, unit=u) for u in ("ada(alpha=0.3)", "ada", "relu", "ada(alpha=learn)", "swish")],
    "lenet, pyramidal": [replace(LENET, unit=u) for u in ("pynada", "pynrelu", "pynada(alpha=learn)")],
    "sin": [replace(SIN, unit=u, seed=s) for s in range(3) for u in ("ada", "relu", "pynada")],
    "xor": [replace(XOR, unit=u, seed=s) for s in range(4) for u in ("ada(alpha=1,c=1)", "swish")],
    "binary": [replace(XOR, unit=u, loss="binary") for u in ("ada", "tanh")],
    "l1, adamw": [replace(SIN, unit=u, loss="l1", optimiser="adamw", metric="mae") for u in ("ada", "swish")],
}


def folders(tmp_path, specs, name="stacked"):
    return [tmp_path / f"{name}{i}" for i in range(len(specs))]


def losses_alone(spec, steps):
    """The loss of each of the first steps, by the loop of one trial."""
    session = Session(spec, ONE_THREAD, SingleDevice(), open_data(spec, ONE_THREAD), None)
    found = []
    while len(found) < steps:
        session.begin_epoch()
        for inputs, labels in session.train.epoch(session.epoch):
            loss = session.criterion(session.model(inputs), labels)
            session.optimiser.zero_grad()
            session.runtime.backward(loss)
            session.optimiser.step()
            found.append(loss.item())
        session.epoch += 1
    return found[:steps]


def losses_stacked(specs, steps):
    session = StackSession(specs, ONE_THREAD, [None] * len(specs), range(len(specs)), None)
    found = []
    while len(found) < steps:
        session.batch = 0
        for inputs, labels in session.train.epoch(session.epoch):
            before = session.loss_sum.clone()
            session.step(inputs, labels)
            found.append((session.loss_sum - before) / len(inputs))
        session.epoch += 1
    return torch.stack(found[:steps]).t()


@pytest.mark.parametrize(("dtype", "steps", "rtol"), [(torch.float32, 5, 1e-5), (torch.float64, 20, 1e-9)])
@pytest.mark.parametrize("name", STACKS)
def test_losses_of_the_first_steps_agree(name, dtype, steps, rtol, monkeypatch):
    """Adam divides gradients by their size: a last digit of float32 that another processor rounds otherwise grows
    a thousandfold in 20 steps of a pyramidal LeNet. So 20 steps are compared in double precision."""
    for module in (alone, together):
        monkeypatch.setattr(module, "build", lambda *given: build(*given).to(dtype))
    single = Feed.epoch
    monkeypatch.setattr(Feed, "epoch", lambda *a, **b: ((x.to(dtype), y) for x, y in single(*a, **b)))
    for same in by_key(STACKS[name]):
        stacked = losses_stacked(same, steps)
        for spec, own in zip(same, stacked, strict=True):
            expected = torch.tensor(losses_alone(spec, steps), dtype=torch.float64)
            torch.testing.assert_close(own, expected, rtol=rtol, atol=0)


def by_key(specs):
    groups = {}
    for spec in specs:
        groups.setdefault(stack_key(spec), []).append(spec)
    assert None not in groups
    return groups.values()


@pytest.mark.parametrize("name", ["mlp", "mlp, pyramidal", "sin", "xor"])
def test_first_weights_and_data_order_are_those_of_the_trial_alone_bit_for_bit(name):
    for same in by_key(STACKS[name]):
        session = StackSession(same, ONE_THREAD, [None] * len(same), range(len(same)), None)
        for spec, member in zip(same, session.members, strict=True):
            data = open_data(spec, ONE_THREAD)
            alone = build(spec, dims_for(spec, data)).state_dict()
            assert alone.keys() == member.network.state_dict().keys()
            assert all(torch.equal(t, alone[key]) for key, t in member.network.state_dict().items())
            order = Session(spec, ONE_THREAD, SingleDevice(), data, None).train
            for epoch in range(2):
                pairs = zip(order.epoch(epoch), session.train.epoch(epoch), strict=True)
                assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)


@pytest.mark.parametrize("name", STACKS)
def test_results_are_those_of_the_trials_alone(name, tmp_path):
    specs = STACKS[name]
    stacked = run_many(specs, ONE_THREAD, folders(tmp_path, specs))
    assert [r.spec for r in stacked] == specs
    sizes = {spec: len(same) for same in by_key(specs) for spec in same}
    for i in range(0, len(specs), 3):
        alone = run(specs[i], replace(ONE_THREAD, channels_last=False), tmp_path / f"alone{i}")
        assert stacked[i].execution.stacking.startswith(f"stacked({sizes[specs[i]]}, ")
        assert_same(stacked[i], alone)


def assert_same(stacked, alone):
    assert TrialResult.load(stacked.directory) == stacked
    assert (stacked.state, stacked.parameters) == (alone.state, alone.parameters)
    assert (stacked.data, stacked.input) == (alone.data, alone.input)
    assert_close(stacked.history, alone.history)
    one, other = load(stacked.weights), load(alone.weights)
    assert one.tensors.keys() == other.tensors.keys()
    if stacked.best_epoch == alone.best_epoch:
        assert one.facts == other.facts
        assert_close(stacked.validation, alone.validation)
        outputs = [evaluate(r).outputs for r in (stacked, alone)]
        assert np.allclose(*outputs, rtol=1e-2, atol=1e-3)


def assert_close(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, list):
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    else:
        assert one == pytest.approx(other, rel=2e-3, abs=6e-3)


def test_a_stacked_trial_predicts_and_is_evaluated_once(tmp_path):
    specs = STACKS["mlp"][:2]
    result = run_many(specs, ONE_THREAD, folders(tmp_path, specs))[0]
    assert evaluate(result).scores["accuracy"] > 0.3
    np.savez(tmp_path / "new.npz", x=np.zeros((2, 8, 8), np.uint8))
    assert len(predict(result, [tmp_path / "new.npz"])) == 2


def test_each_trial_has_its_own_best_epoch(tmp_path):
    specs = [replace(MLP, epochs=5, learning_rate=r, unit="ada") for r in (0.3, 0.001, 0.03)]
    stacked = run_many(specs, ONE_THREAD, folders(tmp_path, specs))
    for result in stacked:
        values = [entry["validation"]["accuracy"] for entry in result.history]
        assert result.best_epoch == 1 + values.index(max(values))
        assert result.metric == max(values)
    assert len({r.best_epoch for r in stacked}) > 1


def test_what_is_finished_or_begun_alone_is_not_trained_again(tmp_path):
    specs = STACKS["mlp"][:4]
    where = folders(tmp_path, specs)
    done = run(specs[0], ONE_THREAD, where[0])

    def interrupt(event):
        if event.kind == "epoch":  # a batch is told of when some time has passed, and nothing is saved by then
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(specs[1], ONE_THREAD, where[1], [interrupt])
    stacked = run_many(specs, ONE_THREAD, where)
    assert stacked[0] == done
    assert [r.execution.stacking for r in stacked] == ["alone", "alone", "stacked(2, 2)", "stacked(2, 1)"]
    assert run_many(specs, ONE_THREAD, where) == stacked
    assert not list(tmp_path.rglob(STACK))


def test_networks_that_cannot_be_stacked_are_trained_one_by_one_and_it_says_so(tmp_path):
    specs = [replace(MLP, unit=u, convert=True, epochs=1) for u in ("ada", "relu")]
    specs += [replace(MLP, unit=u, epochs=1) for u in ("ada", "relu")]
    with pytest.warns(UserWarning, match="'mlp-2 with convert' cannot be stacked, only mlp-1"):
        found = run_many(specs, ONE_THREAD, folders(tmp_path, specs))
    assert [r.execution.stacking for r in found] == ["alone", "alone", "stacked(2, 1)", "stacked(2, 2)"]
    assert all(r.state == "done" for r in found)


def test_events_say_which_trial_they_are_about(tmp_path):
    specs = [replace(MLP, unit="tanh"), replace(MLP, unit="ada"), replace(MLP, unit="ada", seed=1)]
    seen = []
    found = run_many(specs, ONE_THREAD, folders(tmp_path, specs), [seen.append])
    for i, result in enumerate(found):
        assert [e.record for e in seen if e.kind == "epoch" and e.trial == i] == result.history


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"specs": [MLP, MLP]}, "given twice"),
        ({"directories": ["a"]}, "1 directories for 2 trials"),
        ({"execution": Execution(stacking="stacked(2, 1)")}, "run_many itself records"),
    ],
)
def test_calls_that_cannot_be_meant_are_refused(change, sentence):
    call = {"specs": [MLP, replace(MLP, unit="ada")], "directories": ["a", "b"]} | change
    with pytest.raises(InvalidArgumentError, match=sentence):
        run_many(**call)


def test_a_folder_of_another_trial_is_refused(tmp_path):
    specs = STACKS["mlp"][:2]
    where = folders(tmp_path, specs)
    run_many(specs, ONE_THREAD, where)
    with pytest.raises(TrainingError, match="holds another trial"):
        run_many([replace(s, seed=5) for s in specs], ONE_THREAD, where)


def test_a_loss_that_the_network_does_not_fit_is_refused(tmp_path):
    specs = [replace(XOR, unit=u, loss="cross-entropy") for u in ("ada", "relu")]
    with pytest.raises(TrainingError, match="needs 2 rows of 2 values"):
        run_many(specs, ONE_THREAD, folders(tmp_path, specs))
    assert not list(tmp_path.rglob(RESULT))


def test_the_setting_that_validation_chooses_is_the_same_stacked_and_alone(tmp_path):
    specs = [replace(MLP, unit=f"ada(alpha={a})", epochs=3) for a in (0.1, 0.3, 1, 3)]
    stacked = run_many(specs, ONE_THREAD, folders(tmp_path, specs))
    alone = [run(s, ONE_THREAD, tmp_path / f"alone{i}") for i, s in enumerate(specs)]
    found = [[r.metric for r in results] for results in (stacked, alone)]
    assert found[0] == pytest.approx(found[1], abs=0.006)
    assert found[0].index(max(found[0])) == found[1].index(max(found[1]))


@pytest.mark.slow
def test_test_accuracy_over_20_trials_has_no_bias(tmp_path, paired):
    """Paired differences of 20 trials, 5 seeds of 4 settings: their mean is within two standard errors of 0."""
    units = ("ada(alpha=0.3)", "relu", "ada(alpha=learn)", "swish")
    specs = [replace(MLP, unit=u, seed=s, epochs=15) for s in range(5) for u in units]
    stacked = run_many(specs, ONE_THREAD, folders(tmp_path, specs))
    alone = [run(s, ONE_THREAD, tmp_path / f"alone{i}") for i, s in enumerate(specs)]
    assert all(r.execution.stacking.startswith("stacked(4, ") for r in stacked)
    assert paired(stacked, alone).mean() > 0.85


# A single LeNet is a stack of one.


def test_a_single_lenet_is_a_stack_of_one_and_the_trial_that_torch_trains_up_to_rounding(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "INTERVAL", 0.0)
    told: list[list[loop.Event]] = [[], []]
    ways = ONE_THREAD, replace(ONE_THREAD, channels_last=False)
    one, torchs = (run(LENET, how, tmp_path / str(i), [told[i].append]) for i, how in enumerate(ways))
    assert [r.execution.stacking for r in (one, torchs)] == ["stacked(1, 1)", "alone"]
    assert one.history[0]["loss"] == pytest.approx(torchs.history[0]["loss"], rel=1e-4)
    assert one.validation["loss"] == pytest.approx(torchs.validation["loss"], rel=1e-4)
    assert one.history[0]["dynamics"].keys() == torchs.history[0]["dynamics"].keys()
    assert [(e.kind, e.trial, e.batch) for e in told[0]] == [(e.kind, e.trial, e.batch) for e in told[1]]
    assert {p.name for p in one.directory.iterdir()} | {LAST} == {p.name for p in torchs.directory.iterdir()}


@pytest.mark.parametrize(("how", "checkpoint"), [(ONE_THREAD, STACK), (replace(ONE_THREAD, channels_last=False), LAST)])
def test_an_interrupted_lenet_goes_on_as_it_began(tmp_path, monkeypatch, how, checkpoint):
    monkeypatch.setattr(loop, "INTERVAL", 0.0)
    whole = run(LENET, how, tmp_path / "whole")

    def interrupt(event):
        if event.batch == 3:
            signal.raise_signal(signal.SIGTERM)

    assert run(LENET, how, tmp_path / "cut", [interrupt]).state == "stopped"
    assert (tmp_path / "cut" / checkpoint).exists()
    ended = run(LENET, replace(how, channels_last=None if checkpoint == LAST else False), tmp_path / "cut")
    assert (ended.state, ended.history) == ("done", whole.history)


def test_what_no_stack_can_do_is_left_to_torch():
    for spec, how in (
        (replace(LENET, clip=1.0), ONE_THREAD), (LENET, replace(ONE_THREAD, compile=True)), (MLP, ONE_THREAD),
        (LENET, replace(ONE_THREAD, channels_last=True)), (LENET, Execution(devices=2)),
    ):  # fmt: skip
        assert not faster_as_stack(spec, how)
    assert faster_as_stack(LENET, ONE_THREAD)


def test_without_our_kernels_a_single_lenet_is_torch_s(monkeypatch):
    monkeypatch.setenv("APICAL_BACKEND", "composite")
    assert not faster_as_stack(LENET, ONE_THREAD)
