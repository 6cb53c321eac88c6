"""A worker that sleeps while another takes its trial over: one result, no mixture."""

import json
import os
import signal
import sys

import pytest

from apical import study
from apical.study import driver
from apical.study.directory import ATTEMPT, CHECKPOINT, RESULT
from apical.study.engines.base import Context, Job
from apical.study.leases import Limits
from apical.study.plan import plan
from apical.study.worker import work
from apical.train import Execution

# Trains the first trial of the study in a directory; says when its second epoch is done, and what became of it.
SLEEPER = """
    import sys
    from apical import study, train
    from apical.study import worker as work
    from apical.study.engines.base import Context, Job
    from apical.study.plan import plan
    from pathlib import Path

    def told(self, event, real=work._Watch.__call__):
        real(self, event)
        if event.kind == "epoch" and event.epoch == 2:
            print("asleep", flush=True)
            sys.stdin.readline()  # stopped here by SIGSTOP

    work._Watch.__call__ = told
    planned = plan(study.frozen(sys.argv[1]))
    job = Job("train", planned.tuning[:1])
    context = Context(directory=Path(sys.argv[1]), execution=train.Execution(threads=1))
    (outcome,) = work.work(job, context)
    print(outcome.status, flush=True)
"""


def test_a_sleeping_worker_loses_its_trial_and_leaves_it_alone_when_it_wakes(make_tiny, tmp_path, python):
    tiny = make_tiny(epochs=4)
    store = driver.open_for(tiny, tmp_path / "s", None)
    sleeper = python(SLEEPER, tmp_path / "s")
    assert sleeper.stdout.readline() == "asleep\n"
    os.kill(sleeper.pid, signal.SIGSTOP)
    first = plan(tiny).tuning[0]
    claim = store.claims / f"{first.digest}.1.json"
    os.utime(claim, (claim.stat().st_mtime - 600,) * 2)  # as if it had slept for ten minutes

    context = Context(directory=tmp_path / "s", execution=Execution(threads=1))
    (outcome,) = work(Job("train", (first,)), context)
    assert outcome.status == "done"
    folder = store.trial(first.digest)
    token = json.loads((folder / ATTEMPT).read_text())["token"]
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    os.kill(sleeper.pid, signal.SIGCONT)
    said, errors = sleeper.communicate("wake up\n")
    assert (said, errors) == ("lost\n", "")
    assert token == json.loads((store.claims / f"{first.digest}.2.json").read_text())["token"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert list(store.attempts.iterdir()) == []
    assert len(json.loads(before[RESULT])["history"]) == 4
    assert CHECKPOINT not in before


@pytest.mark.parametrize("moment", ["claimed", "begun", "finished"])
def test_a_claim_lost_at_any_moment_leaves_one_result(tiny, tmp_path, monkeypatch, moment):
    """The next number is made by another process just then: it has the trial, whatever this one has done."""
    store = driver.open_for(tiny, tmp_path / "s", None)
    first = plan(tiny).tuning[0]
    module = sys.modules["apical.study.worker"]

    def lose():
        path = store.claims / f"{first.digest}.2.json"
        path.write_text('{"token": "other"}')
        for attempt in store.attempts.iterdir():
            attempt.rename(store.attempts / f"{first.digest}.other")

    real_begin, real_run = type(store).begin, module.run

    def begin(self, lease):
        if moment == "claimed":
            lose()
        attempt = real_begin(self, lease) if moment != "claimed" else self.attempts / "gone"
        if moment == "begun":
            lose()
        return attempt

    def run(*arguments):
        result = real_run(*arguments)
        if moment == "finished":
            lose()
        return result

    monkeypatch.setattr(type(store), "begin", begin)
    monkeypatch.setattr(module, "run", run)
    (outcome,) = work(Job("train", (first,)), Context(directory=tmp_path / "s", execution=Execution(threads=1)))
    assert outcome.status == "lost"
    assert store.finished() == {}
    assert store.failed() == set()


@pytest.mark.slow
def test_a_worker_stopped_until_another_has_its_trial_and_continued(make_tiny, tmp_path, numbers, monkeypatch):
    """The real limits: the other worker takes the trial over after 20 s, and the first finds it gone."""
    monkeypatch.setattr(driver, "REFRESH", 0.2)
    monkeypatch.setattr(driver, "REFRESH_FACTOR", 1.0)
    long = make_tiny(epochs=600, trials=1, alphas=(0.3,))
    study.run(long, tmp_path / "whole", options=study.Options(workers=2))
    stopped: list[int] = []
    continued: list[int] = []

    def stop_one(now):
        busy = [r for r in now.running if r.done > 0.1]
        if busy and not stopped:
            lease = tmp_path / "s" / "claims" / f"{busy[0].trial.digest}.1.json"
            stopped.append(json.loads(lease.read_text())["pid"])
            os.kill(stopped[0], signal.SIGSTOP)
        elif stopped and not continued and list((tmp_path / "s" / "claims").glob("*.2.json")):
            continued.append(stopped[0])
            os.kill(stopped[0], signal.SIGCONT)

    study.run(long, tmp_path / "s", options=study.Options(workers=2), progress=stop_one, limits=Limits())
    assert continued
    assert numbers(tmp_path / "s") == numbers(tmp_path / "whole")
    assert list((tmp_path / "s" / "attempts").iterdir()) == []
