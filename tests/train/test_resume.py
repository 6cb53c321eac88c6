import json
import signal
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from apical import trust
from apical.errors import CheckpointError
from apical.train import Execution, TrialSpec, evaluate, loop, run
from apical.train.checkpoint import load
from apical.train.result import LAST, RESULT

ONE_THREAD = Execution(threads=1)
DROPPING = TrialSpec(data="digits", model="dropping:network", epochs=3, batch=256, unit="ada", learning_rate=0.01)


@pytest.fixture
def dropping(tmp_path, monkeypatch):
    """A trial whose network draws random numbers and keeps running statistics while it trains."""
    (tmp_path / "dropping.py").write_text(
        "from torch import nn\n"
        "from apical.nn import ADA, initialise_\n"
        "def network(unit, inputs, outputs):\n"
        "    hidden = nn.Linear(inputs, 16), nn.BatchNorm1d(16), ADA(learnable=True, dim=-1), nn.Dropout(0.3)\n"
        "    made = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(16, outputs))\n"
        "    initialise_(made, seed=0)\n"
        "    return made\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    trust.allow("dropping")
    return DROPPING


def final(result):
    """Weights, history and test predictions: all that must not depend on interruptions."""
    stored, last = load(result.weights), load(result.directory / LAST)
    return stored.tensors, last.tensors, result.history, evaluate(result).outputs


def assert_bit_equal(a, b):
    for one, other in zip(a[:2], b[:2], strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[k], other[k]) for k in one)
    assert a[2] == b[2]
    assert np.array_equal(a[3], b[3])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
@pytest.mark.parametrize("batch", [1, 3, 5], ids=["first batch", "middle", "during validation"])
def test_a_signal_saves_within_a_batch_and_the_run_continues_bit_equal(dropping, tmp_path, monkeypatch, name, batch):
    whole = run(dropping, ONE_THREAD, tmp_path / "whole")
    monkeypatch.setattr(loop, "INTERVAL", 0.0)
    seen = []

    def interrupt(event):
        seen.append((event.kind, event.epoch, event.batch))
        if (event.epoch, event.batch, event.kind) == (2, batch, "batch"):
            signal.raise_signal(getattr(signal, name))

    before = signal.getsignal(getattr(signal, name))
    stopped = run(dropping, ONE_THREAD, tmp_path / "cut", [interrupt])
    assert signal.getsignal(getattr(signal, name)) is before
    assert (stopped.state, stopped.reason) == ("stopped", name)
    assert not (tmp_path / "cut" / RESULT).exists()
    assert len(seen) - seen.index(("batch", 2, batch)) <= 2, "it went on for more than a batch"
    continued = run(dropping, ONE_THREAD, tmp_path / "cut")
    assert continued.state == "done"
    assert_bit_equal(final(whole), final(continued))


def test_ctrl_c_twice_leaves_at_once(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "INTERVAL", 0.0)

    def interrupt(_):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(spec, ONE_THREAD, tmp_path / "t", [interrupt])


def test_an_error_in_a_callback_costs_no_finished_epoch(spec, tmp_path):
    whole = run(spec, ONE_THREAD, tmp_path / "whole")

    def fail(event):
        if event.kind == "epoch" and event.epoch == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(spec, ONE_THREAD, tmp_path / "cut", [fail])
    assert load(tmp_path / "cut" / LAST).facts["epoch"] == 2
    assert_bit_equal(final(whole), final(run(spec, ONE_THREAD, tmp_path / "cut")))


def test_a_damaged_or_foreign_checkpoint_is_refused_not_overwritten(spec, tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / LAST).write_bytes(b"\x80\x04\x95 this was a pickle")
    with pytest.raises(CheckpointError, match="delete it to start again"):
        run(spec, ONE_THREAD, folder)
    assert (folder / LAST).read_bytes().startswith(b"\x80\x04")
    other = run(replace(spec, seed=9), ONE_THREAD, tmp_path / "other")
    (folder / LAST).write_bytes((other.directory / LAST).read_bytes())
    with pytest.raises(CheckpointError, match="belongs to another trial"):
        run(spec, ONE_THREAD, folder)


FULL_DISK = """
    import resource, sys
    from pathlib import Path
    from apical.train import Execution, TrialSpec, run
    from apical.errors import CheckpointError
    spec = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 16}, epochs=4, batch=256)
    def fill(event):
        if event.kind == "epoch" and event.epoch == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        run(spec, Execution(threads=1), sys.argv[1], [fill])
    except CheckpointError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    from apical.train.checkpoint import load
    folder = Path(sys.argv[1])
    print(load(folder / "last.safetensors").facts["epoch"], [p.name for p in folder.glob(".*.tmp")])
    print(run(spec, Execution(threads=1), sys.argv[1]).state)
"""


def test_a_full_disk_is_said_clearly_and_the_last_checkpoint_is_intact(forked, tmp_path):
    done = forked("-c", textwrap.dedent(FULL_DISK), tmp_path / "t", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said, position, state = done.stdout.strip().splitlines()
    assert "cannot write" in said
    assert "last.safetensors" in said
    assert "intact" in said
    assert position == "2 []"
    assert state == "done"


KILLED_WRITING = """
    import os, signal, sys
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from apical import files
    from apical.train import checkpoint
    files.CHUNK = 64
    folder = Path(sys.argv[1])
    watched = {checkpoint.__file__, files.__file__}

    def write(mark):
        tensors = {f"t{i}": torch.full((64,), float(mark)) for i in range(16)}
        checkpoint.save(folder / "last.safetensors", tensors, {"mark": mark})

    def killed_at(point):
        left = point
        def trace(frame, event, _):
            nonlocal left
            if frame.f_code.co_filename not in watched:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace
        sys.settrace(trace)

    def child(point):
        pid = os.fork()
        if pid == 0:
            killed_at(point)
            write(2)
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    found, points = [], 0
    while True:
        points += 1
        write(1)
        status = child(points)
        stored = checkpoint.load(folder / "last.safetensors")
        mark = stored.facts["mark"]
        assert all(bool((t == mark).all()) for t in stored.tensors.values()), "a mixture"
        if os.WIFEXITED(status):
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        found.append(mark)
    print(len(found), found.count(1), found.count(2))
"""


@pytest.mark.slow
def test_sigkill_at_200_points_of_checkpoint_writing_leaves_the_old_or_the_new_one(python, tmp_path):
    points, old, new = map(int, python(KILLED_WRITING, tmp_path).stdout.split())
    assert points >= 200
    assert old > 100, "no kill came before the rename"
    assert new >= 1, "no kill came after the rename"


KILLED_TRAINING = """
    import json, os, random, signal, sys, time
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from apical.train import Execution, TrialSpec, run
    folder, kills = Path(sys.argv[1]), int(sys.argv[2])
    spec = TrialSpec.from_json(sys.argv[3])
    moments = random.Random(0)

    def child(where):
        pid = os.fork()
        if pid == 0:
            with open(where / "epochs", "a") as log:
                def note(event):
                    if event.kind == "epoch":
                        log.write(f"{event.epoch}\\n")
                        log.flush()
                run(spec, Execution(threads=1), where / "run", [note])
            os._exit(0)
        return pid

    def finish(where):
        assert os.waitstatus_to_exitcode(os.waitpid(child(where), 0)[1]) == 0

    (folder / "whole").mkdir()
    start = time.perf_counter()
    finish(folder / "whole")
    length = time.perf_counter() - start
    runs, done = [], 0
    while done < kills:
        where = folder / f"killed{len(runs)}"
        where.mkdir()
        runs.append(where)
        while done < kills:
            pid = child(where)
            deadline = time.perf_counter() + moments.uniform(0, length / 2)
            ended = 0
            while not ended and time.perf_counter() < deadline:
                ended = os.waitpid(pid, os.WNOHANG)[0]
            if ended:
                break
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            done += 1
        finish(where)
    print(json.dumps([str(w) for w in runs]))
"""


@pytest.mark.slow
def test_kill_9_at_20_random_moments_changes_no_bit_and_repeats_at_most_one_epoch(python, tmp_path):
    spec = replace(DROPPING, model="mlp-2", unit="pynada(alpha=learn)", dims={"hidden": (16, 12)}, epochs=12)
    runs = json.loads(python(KILLED_TRAINING, tmp_path, 20, spec.to_json(), timeout=500).stdout)
    whole = final(run(spec, ONE_THREAD, tmp_path / "whole" / "run"))
    for where in map(Path, runs):
        assert_bit_equal(whole, final(run(spec, ONE_THREAD, where / "run")))
        told = [int(line) for line in (where / "epochs").read_text().split()]
        assert len(set(told)) == len(told), "a finished epoch was trained again"
        assert set(told) <= set(range(1, 13))
