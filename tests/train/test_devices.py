import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from apical import models
from apical.errors import InvalidArgumentError
from apical.kernels import winograd
from apical.train import Execution, TrialSpec, loop, run
from apical.train.checkpoint import load
from apical.train.devices import Parallel, SingleDevice, runtime
from apical.train.result import LAST, RESULT
from apical.train.session import wants_channels_last, wants_winograd

ONE_THREAD = Execution(threads=1)
# Fabric wraps torch's own interface, which warns in some versions.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:lightning_fabric.*", "ignore::UserWarning:torch.*")


def test_fabric_serves_what_plain_torch_does_not():
    spec = TrialSpec(data="digits", model="mlp-1")
    assert type(runtime(spec, Execution(device="cpu"))) is SingleDevice
    assert type(runtime(replace(spec, precision="bf16-mixed"), Execution(device="cpu"))) is Parallel
    assert type(runtime(spec, Execution(device="cpu", devices=2, strategy="ddp"))) is Parallel
    with pytest.raises(InvalidArgumentError, match="strategy='dpp'"):
        runtime(spec, Execution(device="cpu", strategy="dpp"))


def test_float16_on_the_cpu_is_refused_rather_than_replaced():
    spec = TrialSpec(data="digits", model="mlp-1", precision="16-mixed")
    with pytest.raises(InvalidArgumentError, match="use bf16-mixed or 32"):
        runtime(spec, Execution(device="cpu"))


@pytest.mark.slow
def test_a_compiled_network_trains_alike_and_records_gradients(spec, tmp_path):
    plain = run(spec, ONE_THREAD, tmp_path / "plain")
    compiled = run(spec, Execution(threads=1, compile=True), tmp_path / "compiled")
    assert [h["loss"] for h in compiled.history] == pytest.approx([h["loss"] for h in plain.history], rel=1e-4)
    assert compiled.history[0]["dynamics"]["gradient"]


def test_one_device_by_fabric_gives_the_bits_of_plain_torch(spec, tmp_path, monkeypatch):
    plain = run(spec, ONE_THREAD, tmp_path / "plain")
    monkeypatch.setattr("apical.train.devices.SingleDevice", lambda: Parallel(spec, Execution(device="cpu")))
    fabric = run(spec, ONE_THREAD, tmp_path / "fabric")
    assert fabric.history == plain.history
    a, b = (load(r.directory / LAST).tensors for r in (plain, fabric))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_half_precision_trains_and_keeps_float32_weights(spec, tmp_path):
    spec = replace(spec, precision="bf16-mixed")
    result = run(spec, ONE_THREAD, tmp_path / "half")
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    assert all(t.dtype == torch.float32 for t in load(result.weights).part("model").values())
    full = run(replace(spec, precision="32"), ONE_THREAD, tmp_path / "full")
    assert result.history[0]["loss"] == pytest.approx(full.history[0]["loss"], rel=0.02)
    assert result.history[0]["loss"] != full.history[0]["loss"]


def test_half_precision_takes_the_layout_its_convolutions_are_written_for(spec):
    half, cpu, network = replace(spec, precision="bf16-mixed"), torch.device("cpu"), torch.nn.Linear(1, 1)
    assert wants_channels_last(half, ONE_THREAD, cpu, network)
    assert not wants_channels_last(spec, ONE_THREAD, cpu, network)
    assert not wants_channels_last(half, replace(ONE_THREAD, channels_last=False), cpu, network)


def test_a_network_takes_the_layout_that_measured_faster_and_the_result_says_so(tmp_path):
    wide = TrialSpec(data="digits", model="resnet-18", epochs=1, batch=512, dims={"width": 17})
    narrow = replace(wide, dims={"width": 16})
    cpu, network = torch.device("cpu"), torch.nn.Linear(1, 1)
    assert [wants_channels_last(s, ONE_THREAD, cpu, network) for s in (wide, narrow)] == [False, True]
    default = run(narrow, ONE_THREAD, tmp_path / "default")
    other = run(narrow, replace(ONE_THREAD, channels_last=False), tmp_path / "other")
    assert [r.execution.channels_last for r in (default, other)] == [True, False]
    assert default.history[0]["loss"] == pytest.approx(other.history[0]["loss"], rel=1e-3)


def test_channels_last_is_kept_from_convolutions_whose_gradients_write_past_their_memory(tmp_path):
    spec = TrialSpec(data="digits", model="resnet-18", epochs=1, batch=512, dims={"width": 2})
    assert run(spec, ONE_THREAD, tmp_path / "default").execution.channels_last is None
    with pytest.raises(InvalidArgumentError, match=r"layer2\.0\.downsample\.0, a 1x1 convolution with a stride"):
        run(spec, replace(ONE_THREAD, channels_last=True), tmp_path / "asked")


def test_channels_last_gives_the_same_training_up_to_rounding(tmp_path):
    spec = TrialSpec(data="digits", model="lenet", pad=4, epochs=1, batch=256)
    losses = [
        run(spec, Execution(threads=1, channels_last=last), tmp_path / str(last)).history[0]["loss"]
        for last in (False, True)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


VGG = TrialSpec(
    data="digits", model="vgg-9", pad=12, epochs=1, batch=16, learning_rate=1e-4, corruptions=("few(per_class=4)",)
)
with_winograd = pytest.mark.skipif(not winograd.available(), reason="the C library has no Winograd transforms here")


@with_winograd
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_vgg_9_trains_by_winograd_up_to_rounding_and_the_result_says_so(tmp_path, unit):
    spec = replace(VGG, unit=unit)
    own, other = (run(spec, replace(ONE_THREAD, winograd=w), tmp_path / str(w)) for w in (None, False))
    assert [(r.execution.winograd, r.execution.channels_last) for r in (own, other)] == [(True, True), (False, None)]
    assert own.spec.digest == other.spec.digest
    (a,), (b,) = own.history, other.history
    assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)  # dropout dropped the same values
    assert a["validation"]["cross-entropy"] == pytest.approx(b["validation"]["cross-entropy"], rel=1e-3)
    assert json.loads((own.directory / RESULT).read_text())["execution"]["winograd"] is True


@with_winograd
def test_an_interrupted_trial_with_winograd_continues_bit_equal(tmp_path, monkeypatch):
    whole = run(VGG, ONE_THREAD, tmp_path / "whole")
    monkeypatch.setattr(loop, "INTERVAL", 0.0)

    def interrupt(event):
        if event.kind == "batch" and event.batch == 1:
            signal.raise_signal(signal.SIGTERM)

    assert run(VGG, ONE_THREAD, tmp_path / "cut", [interrupt]).state == "stopped"
    continued = run(VGG, ONE_THREAD, tmp_path / "cut")
    assert continued.execution.winograd
    assert continued.history == whole.history
    a, b = (load(r.directory / LAST).tensors for r in (whole, continued))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_winograd_is_refused_where_it_cannot_serve(tmp_path, spec, monkeypatch):
    asked = Execution(threads=1, winograd=True)
    with pytest.raises(InvalidArgumentError, match="float32 on a CPU, and is not compiled: leave winograd out"):
        run(replace(VGG, precision="bf16-mixed"), asked, tmp_path / "half")
    if winograd.available():
        with pytest.raises(InvalidArgumentError, match="the network has no convolution of 3x3 pixels, 32 channels"):
            run(spec, asked, tmp_path / "none")
    monkeypatch.setenv("APICAL_BACKEND", "composite")
    with pytest.raises(InvalidArgumentError, match="its C code does not serve here"):
        run(VGG, asked, tmp_path / "composite")
    assert not wants_winograd(VGG, ONE_THREAD, torch.device("cpu"))
    monkeypatch.delenv("APICAL_BACKEND")
    assert not wants_winograd(VGG, replace(ONE_THREAD, channels_last=False), torch.device("cpu"))


def test_other_networks_do_not_use_winograd_unless_asked():
    cpu = torch.device("cpu")
    chosen = {name for name in models.list() if wants_winograd(replace(VGG, model=name), ONE_THREAD, cpu)}
    assert chosen <= {"vgg-9"}


DDP = """
import json, os, sys
from apical.train import Execution, TrialSpec, run
spec = TrialSpec.from_json(sys.argv[2])
losses = []
from apical.train import loop as reporting
reporting.INTERVAL = 0.0
result = run(spec, Execution.from_json(sys.argv[3]), sys.argv[1], [lambda e: losses.append(e.loss)])
if os.environ.get("LOCAL_RANK", "0") == "0":
    print(json.dumps(losses))
"""


def script(tmp_path, spec, how, name):
    program = tmp_path / "program.py"
    program.write_text(DDP)
    done = subprocess.run(
        [sys.executable, program, tmp_path / name, spec.to_json(), how.to_json()],
        check=True, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(("model", "pad"), [("mlp-1", 0), ("lenet", 4)])
def test_two_processes_follow_one_for_50_steps(tmp_path, model, pad):
    spec = TrialSpec(data="digits", model=model, unit="pynada(alpha=learn)", pad=pad, epochs=2, batch=48)
    one = script(tmp_path, spec, Execution(device="cpu", threads=1, channels_last=False), "one")
    two = script(tmp_path, spec, Execution(device="cpu", threads=1, devices=2, strategy="ddp"), "two")
    assert len(one) == len(two) >= 50
    assert np.allclose(one, two, rtol=0, atol=1e-4)
    a, b = (load(tmp_path / name / LAST).part("model") for name in ("one", "two"))
    assert all(torch.allclose(a[k], b[k], rtol=0, atol=1e-4) for k in a)


@pytest.mark.slow
def test_the_command_line_runs_on_two_devices(tmp_path):
    command = [
        Path(sys.executable).with_name("apical"),
        "train",
        "--data",
        "digits",
        "--model",
        "mlp-1",
        "--epochs",
        "1",
    ]
    command += ["--device", "cpu", "--devices", "2", "--strategy", "ddp", "--threads", "1", "-o", tmp_path / "run"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if "test accuracy" in line]
    assert len(lines) == 1, done.stdout + done.stderr
