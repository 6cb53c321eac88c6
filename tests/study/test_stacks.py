"""Stacks: planned whatever is done, trained as one, and no different from single trials but for rounding."""

import json

import pytest

from apical import study
from apical.errors import InvalidArgumentError
from apical.study import driver
from apical.study.directory import RESULT
from apical.study.driver import stack_size, trial_bytes
from apical.study.plan import plan
from apical.study.state import Facts, StudyState, snapshot
from apical.train import Execution
from apical.train.trial import open_data

ONE_THREAD = Execution(threads=1)


@pytest.mark.usefixtures("here")
def test_a_stacked_study_gives_what_single_trials_give(make_tiny, tmp_path):
    alone = study.run(make_tiny(trials=2), tmp_path / "alone", engine="here")
    stacked = study.run(make_tiny(trials=2, stack=8), tmp_path / "stacked", engine="here")
    assert stacked.finished
    for one, many in zip(alone.rows, stacked.rows, strict=True):
        assert one.chosen == many.chosen
        for a, b in zip(one.trials, many.trials, strict=True):
            assert b.execution.stacking.startswith("stacked(")
            assert a.test["cross-entropy"] == pytest.approx(b.test["cross-entropy"], rel=1e-4)


@pytest.mark.usefixtures("here")
def test_no_stack_means_none(make_tiny, tmp_path):
    results = study.run(make_tiny(stack=8), tmp_path / "s", engine="here", stack=False)
    assert {t.execution.stacking for row in results.rows for t in row.trials} == {"alone"}


def test_stacks_do_not_depend_on_what_is_done(make_tiny):
    planned = plan(make_tiny(stack=8, alphas=(0.1, 0.3, 1.0)))
    empty = StudyState(planned, {}, ())
    assert [len(job.trials) for job in empty.jobs()] == [4], "finals of a part wait until all its rows have chosen"
    (whole,) = empty.jobs()
    some = StudyState(planned, {whole.trials[1].digest: Facts("done", 0.5, 1.0)}, ())
    assert [job.trials for job in some.jobs()] == [(whole.trials[0], *whole.trials[2:])]
    done = StudyState(planned, {t.digest: Facts("done", 0.5, 1.0) for t in whole.trials}, ())
    assert [(job.kind, [t.trial for t in job.trials]) for job in done.jobs()] == [("train", [1, 1])]
    assert done.jobs(busy={t.digest for t in done.jobs()[0].trials}) == []


def test_chosen_settings_wait_only_for_rows_that_may_share_their_stacks() -> None:
    planned = plan(study.load("table-fashion-mlp", sets=['only_parts=["mlp-1"]']))
    facts = {t.digest: Facts("done", 0.5, 1.0) for t in planned.tuning if "pyn" not in t.row}
    jobs = StudyState(planned, facts, ()).jobs()
    finals = [job.trials for job in jobs if job.trials[0].trial > 0]
    assert [len(trials) for trials in finals] == [6] * 4, "the standard rows of seeds 1 to 4, without pyramidal ones"
    facts |= {t.digest: Facts("done", 0.5, 1.0) for t in planned.tuning}
    later = [job.trials for job in StudyState(planned, facts, ()).jobs()]
    assert [trials for trials in later if "pyn" not in trials[0].row] == finals, "and the stacks stay the same"
    assert [len(trials) for trials in later] == [6] * 4 + [5] * 4
    del facts[next(t.digest for t in planned.tuning if t.row == "mlp-1/leaky-ada")]
    jobs = StudyState(planned, facts, ()).jobs()
    assert [len(job.trials) for job in jobs] == [1] + [5] * 4, "one row without a choice holds the standard ones back"


def test_a_fault_in_a_stack_is_that_of_one_trial(make_tiny, tmp_path, monkeypatch):
    """Where a stack cannot be trained, its trials are trained one by one."""
    from apical.study import worker
    from apical.study.engines.base import Context, Job

    tiny = make_tiny(stack=8)
    store = driver.open_for(tiny, tmp_path / "s", None)
    trials = plan(tiny).tuning_stacks[0]
    real = worker.run

    def run_many(*_):
        raise ZeroDivisionError

    def run(spec, *rest):
        if spec.unit == trials[0].spec.unit:
            raise RuntimeError("this one")
        return real(spec, *rest)

    monkeypatch.setattr(worker, "run_many", run_many)
    monkeypatch.setattr(worker, "run", run)
    outcomes = worker.work(Job("train", trials), Context(directory=tmp_path / "s", execution=ONE_THREAD))
    assert [o.status for o in outcomes] == ["failed", *["done"] * (len(trials) - 1)]
    assert store.failed() == {trials[0].digest}


def test_a_stack_that_was_cut_goes_on_from_its_checkpoint(make_tiny, tmp_path, monkeypatch):
    from apical.study import worker
    from apical.study.engines.base import Context, Job

    tiny = make_tiny(stack=8, epochs=4)
    store = driver.open_for(tiny, tmp_path / "s", None)
    job = Job("train", plan(tiny).tuning_stacks[0])
    context = Context(directory=tmp_path / "s", execution=ONE_THREAD)
    real = worker._Watch.__call__

    def cut(self, event):
        if event.kind == "epoch" and event.epoch == 3:
            raise KeyboardInterrupt
        real(self, event)

    monkeypatch.setattr(worker._Watch, "__call__", cut)
    with pytest.raises(KeyboardInterrupt):
        worker.work(job, context)
    monkeypatch.setattr(worker._Watch, "__call__", real)
    assert store.leases.running([t.digest for t in job.trials]) == {}
    first = []
    monkeypatch.setattr(worker._Watch, "__call__", lambda self, event: first.append(event.epoch) or real(self, event))
    assert {o.status for o in worker.work(job, context)} == {"done"}
    assert min(first) >= 3, "epochs were trained again"
    assert len(store.finished()) == len(job.trials)
    names = {p.name for folder in store.trials.iterdir() for p in folder.iterdir()}
    assert not {n for n in names if "stack" in n or "last" in n}
    assert snapshot(plan(tiny), store).finals_left
    assert len(json.loads((store.trial(job.trials[0].digest) / RESULT).read_text())["history"]) == 4


@pytest.mark.usefixtures("here")
def test_a_study_trains_no_larger_stack_than_its_memory_allows(make_tiny, tmp_path):
    tiny = make_tiny(stack=8, alphas=(0.1, 0.3, 1.0))
    spec = study.plan.spec_of(tiny.parts[0], "pynrelu")
    one = trial_bytes(spec, open_data(spec, ONE_THREAD))
    study.run(tiny, tmp_path / "s", engine="here", memory=2.5 * one)
    found = [json.loads(path.read_text())["execution"]["stacking"] for path in tmp_path.rglob(RESULT)]
    sizes = {"alone" if s == "alone" else s.partition(",")[0] for s in found}
    assert "stacked(2" in sizes
    assert sizes <= {"stacked(2", "alone"}


def test_the_memory_of_a_worker_limits_its_stack(make_tiny):
    tiny = make_tiny(stack=8)
    assert stack_size(tiny, ONE_THREAD, stack=True, memory=None) == 8
    assert stack_size(tiny, ONE_THREAD, stack=False, memory=None) == 1
    spec = study.plan.spec_of(tiny.parts[0], "pynrelu")
    one = trial_bytes(spec, open_data(spec, ONE_THREAD))
    assert stack_size(tiny, ONE_THREAD, stack=True, memory=3.5 * one) == 3
    with pytest.raises(InvalidArgumentError, match=r"--memory allows .* but one trial needs"):
        stack_size(tiny, ONE_THREAD, stack=True, memory=one / 2)
