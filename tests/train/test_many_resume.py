"""A stack that was stopped or killed goes on where it stood; a trial that diverges does not disturb the others."""

import json
import math
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from apical.errors import CheckpointError
from apical.train import Execution, TrialResult, TrialSpec, evaluate, loop, run, run_many
from apical.train.checkpoint import load, save
from apical.train.result import RESULT, STACK

ONE_THREAD = Execution(threads=1)
SPEC = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 12}, epochs=3, batch=256, learning_rate=0.01)
SPECS = [replace(SPEC, unit=u) for u in ("ada(alpha=0.3)", "swish", "ada(alpha=learn)", "relu")]


def folders(root, specs=SPECS):
    return [root / str(i) for i in range(len(specs))]


def final(results):
    """Weights, history and validation of every trial."""
    return [({n: t.tolist() for n, t in load(r.weights).tensors.items()}, r.history, r.validation) for r in results]


@pytest.mark.parametrize("batch", [1, 3, 5], ids=["first batch", "middle", "during validation"])
def test_a_signal_saves_within_a_batch_and_the_stack_continues_bit_equal(tmp_path, monkeypatch, batch):
    whole = run_many(SPECS, ONE_THREAD, folders(tmp_path / "whole"))
    monkeypatch.setattr(loop, "INTERVAL", 0.0)
    seen = []

    def interrupt(event):
        seen.append((event.kind, event.epoch, event.batch))
        if seen[-1] == ("batch", 2, batch):
            signal.raise_signal(signal.SIGTERM)

    cut = folders(tmp_path / "cut")
    stopped = run_many([*SPECS, replace(SPEC, seed=1)], ONE_THREAD, [*cut, tmp_path / "later"], [interrupt])
    assert [(r.state, r.reason) for r in stopped] == [("stopped", "SIGTERM")] * 5
    assert not list(tmp_path.glob(f"cut/*/{RESULT}"))
    assert not (tmp_path / "later").exists()
    assert len(seen) - seen.index(("batch", 2, batch)) <= 2, "it went on for more than a batch"
    continued = run_many(SPECS, ONE_THREAD, cut)
    assert [r.state for r in continued] == ["done"] * 4
    assert final(continued) == final(whole)


def test_an_error_after_an_epoch_costs_nothing(tmp_path):
    def fail(event):
        if event.kind == "epoch" and event.epoch == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_many(SPECS, ONE_THREAD, folders(tmp_path / "cut"), [fail])
    assert load(tmp_path / "cut" / "0" / STACK).facts["epoch"] == 2
    seen = []
    continued = run_many(SPECS, ONE_THREAD, folders(tmp_path / "cut"), [seen.append])
    assert {e.epoch for e in seen} == {3}
    assert final(continued) == final(run_many(SPECS, ONE_THREAD, folders(tmp_path / "whole")))
    assert not list(tmp_path.rglob(STACK))


def test_another_composition_starts_anew(tmp_path):
    def fail(event):
        raise ZeroDivisionError

    where = folders(tmp_path)
    with pytest.raises(ZeroDivisionError):
        run_many(SPECS, ONE_THREAD, where, [fail])
    found = run_many(SPECS[:3], ONE_THREAD, where[:3])
    assert final(found) == final(run_many(SPECS[:3], ONE_THREAD, folders(tmp_path / "whole", SPECS[:3])))


def test_a_checkpoint_that_is_damaged_or_saw_other_data_is_refused(tmp_path):
    where = folders(tmp_path)
    where[0].mkdir()
    (where[0] / STACK).write_bytes(b"\x80\x04\x95 this was a pickle")
    with pytest.raises(CheckpointError, match="delete it to start again"):
        run_many(SPECS, ONE_THREAD, where)
    facts = {"composition": [s.digest for s in sorted(SPECS, key=lambda s: s.unit)], "data": {}}
    save(where[0] / STACK, {"x": torch.zeros(1)}, facts)
    with pytest.raises(CheckpointError, match=r"digits has changed since .* was written"):
        run_many(SPECS, ONE_THREAD, where)


KILLED = """
    import json, os, random, signal, sys, time
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from apical.train import Execution, TrialSpec, run_many
    folder, kills = Path(sys.argv[1]), int(sys.argv[2])
    specs = [TrialSpec.from_dict(s) for s in json.loads(sys.argv[3])]
    moments = random.Random(0)

    def child(where):
        pid = os.fork()
        if pid == 0:
            with open(where / "epochs", "a") as log:
                def note(event):
                    if event.kind == "epoch" and event.trial == 0:
                        log.write(f"{event.epoch}\\n")
                        log.flush()
                run_many(specs, Execution(threads=1), [where / str(i) for i in range(len(specs))], [note])
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
        runs.append(str(where))
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
    print(json.dumps(runs))
"""


@pytest.mark.slow
def test_kill_9_at_20_random_moments_changes_no_bit_and_repeats_at_most_one_epoch(python, tmp_path):
    specs = [replace(s, epochs=12) for s in SPECS]
    text = json.dumps([s.as_dict() for s in specs])
    runs = json.loads(python(KILLED, tmp_path, 20, text, timeout=500).stdout)
    whole = final(run_many(specs, ONE_THREAD, folders(tmp_path / "whole")))
    for where in map(Path, runs):
        assert final(run_many(specs, ONE_THREAD, folders(where))) == whole
        told = [int(line) for line in (where / "epochs").read_text().split()]
        assert len(set(told)) == len(told), "a finished epoch was trained again"
        assert set(told) <= set(range(1, 13))


WILD = replace(SPEC, unit="relu", learning_rate=1e30)


def test_a_diverged_trial_ends_as_it_does_alone_and_the_others_do_not_notice(tmp_path):
    calm = [replace(SPEC, unit="ada(alpha=0.3)"), replace(SPEC, unit="relu", learning_rate=0.02)]
    specs = [calm[0], WILD, calm[1]]
    found = run_many(specs, ONE_THREAD, folders(tmp_path / "stack", specs))
    alone = run(WILD, ONE_THREAD, tmp_path / "alone")
    assert (found[1].state, alone.state) == ("diverged", "diverged")
    assert found[1].reason == alone.reason
    assert (found[1].best_epoch, len(found[1].history)) == (alone.best_epoch, len(alone.history))
    assert found[1].metric == pytest.approx(alone.metric)
    assert found[1].validation.keys() == alone.validation.keys()
    assert TrialResult.load(found[1].directory) == found[1]
    assert all(bool(torch.isfinite(t).all()) for t in load(found[1].weights).tensors.values())
    assert 0 <= evaluate(found[1]).scores["accuracy"] <= 1
    tame = [calm[0], replace(WILD, learning_rate=0.005), calm[1]]
    others = run_many(tame, ONE_THREAD, folders(tmp_path / "tame", tame))
    assert [r.state for r in others] == ["done"] * 3
    assert final([found[0], found[2]]) == final([others[0], others[2]])


def test_weights_that_are_not_finite_at_the_end_of_an_epoch_give_back_the_last_checkpoint(tmp_path):
    specs = [replace(SPEC, unit=u) for u in ("ada", "relu", "tanh")]

    def poison(session):
        original = session.check_weights

        def check():
            if session.epoch == 1:
                session.members[1].network.head.weight.data[0, 0] = math.nan
            original()

        session.check_weights = check

    from apical.train.stack import trials

    class Poisoned(trials.StackSession):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            poison(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "StackSession", Poisoned)
        found = run_many(specs, ONE_THREAD, folders(tmp_path / "a", specs))
    whole = run_many(specs, ONE_THREAD, folders(tmp_path / "b", specs))
    assert [r.state for r in found] == ["done", "diverged", "done"]
    assert found[1].best_epoch == 1
    assert found[1].validation == pytest.approx(whole[1].history[0]["validation"])
    assert final([found[0], found[2]]) == final([whole[0], whole[2]])


def test_a_stack_in_which_a_trial_diverged_is_resumed_without_it(tmp_path):
    specs = [replace(SPEC, unit="ada"), WILD, replace(SPEC, unit="tanh")]

    def fail(event):
        if event.kind == "epoch" and event.epoch == 2:
            raise ZeroDivisionError

    where = folders(tmp_path / "cut", specs)
    with pytest.raises(ZeroDivisionError):
        run_many(specs, ONE_THREAD, where, [fail])
    assert (where[1] / RESULT).exists()
    found = run_many(specs, ONE_THREAD, where)
    assert [r.state for r in found] == ["done", "diverged", "done"]
    assert final(found) == final(run_many(specs, ONE_THREAD, folders(tmp_path / "whole", specs)))


def test_a_stack_of_trials_that_all_diverge_ends(tmp_path):
    specs = [replace(WILD, learning_rate=r) for r in (1e30, 2e30)]
    assert [r.state for r in run_many(specs, ONE_THREAD, folders(tmp_path, specs))] == ["diverged"] * 2
    assert not list(tmp_path.rglob(STACK))
