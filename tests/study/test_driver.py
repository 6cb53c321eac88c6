"""The protocol: tune by validation, choose, train the chosen, test each trial once; and what may happen on the way."""

import ast
import json
import os
import shutil
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import pytest

from apical import study
from apical.errors import InvalidArgumentError, MissingDataError, MissingExtraError, StudyError
from apical.study import Part, Row, driver, selection, state
from apical.study.directory import CHECKPOINT, RESULT, SCORES, STUDY, TEST
from apical.study.engines.base import ENGINES, EngineDescriptor
from apical.study.plan import plan
from apical.study.results import opened
from apical.study.state import Index, measure
from apical.train import metrics
from apical.train.trial import run as train_one

pytestmark = pytest.mark.usefixtures("here")


def run(what, directory, **how):
    return study.run(what, directory, engine="here", **how)


@pytest.fixture
def jobs(monkeypatch):
    """The jobs that workers do, in their order."""
    from apical.study import worker

    seen = []
    real = worker.work
    monkeypatch.setattr(worker, "work", lambda job, context: seen.append(job) or real(job, context))
    return seen


def test_a_study_runs_to_its_end(tiny, tmp_path):
    results = run(tiny, tmp_path / "s")
    assert results.finished
    assert results.missing == ()
    assert results.states == Counter(done=5)
    relu, ada = results.rows
    assert relu.chosen == "relu"
    assert [len(s.trials) for s in ada.settings] == [1, 1]
    assert ada.chosen == max(ada.settings, key=lambda s: s.validation).setting
    for row in results.rows:
        assert [t.seed for t in row.trials] == [0, 1]
        assert row.best.value == max(t.value for t in row.trials)
        assert all(t.test["accuracy"] == pytest.approx(_accuracy(t)) for t in row.trials)
    assert len(results.commands) == 1


def _accuracy(trial):
    found = trial.outputs()
    return (found.outputs.argmax(1) == found.labels).mean()


def test_the_first_trial_of_the_chosen_setting_is_its_tuning_trial(tiny, tmp_path):
    ada = run(tiny, tmp_path / "s").row("digits/ada")
    tuned = next(s for s in ada.settings if s.setting == ada.chosen)
    assert ada.trials[0] is tuned.trials[0]


def test_test_splits_are_opened_only_for_the_chosen_and_only_after_all_their_trials(tiny, tmp_path, jobs):
    results = run(tiny, tmp_path / "s")
    finals = {t.digest for row in results.rows for t in row.trials}
    folders = (tmp_path / "s" / "trials").iterdir()
    assert {f.name for f in folders if (f / "test.opened").exists()} == finals
    for row in results.rows:
        kinds = [j.kind for j in jobs if {t.digest for t in j.trials} & {t.digest for t in row.trials}]
        assert kinds == ["train", "train", "test"]


def test_rows_train_in_turn_where_their_seconds_are_to_be_compared():
    part = Part(name="p", title="", data="digits", model="mlp-1", metric="accuracy")
    rows = tuple(Row(key=f"p/{unit}", part="p", label="", unit=unit) for unit in ("relu", "tanh"))
    planned = plan(study.Study(name="s", title="", parts=(part,), rows=rows, trials=3, stack=1))
    fresh = state.StudyState(planned, facts={}, failed=())
    first_of = {turn: [j.trials[0] for j in fresh.jobs(in_turn=turn)] for turn in (True, False)}
    assert [(t.row, t.trial) for t in first_of[True]] == [(f"p/{u}", k) for k in range(3) for u in ("relu", "tanh")]
    assert [(t.row, t.trial) for t in first_of[False]] == [(f"p/{u}", k) for u in ("relu", "tanh") for k in range(3)]


def test_selection_knows_nothing_but_numbers():
    source = ast.parse(Path(selection.__file__).read_text())
    modules = {n.module for n in ast.walk(source) if isinstance(n, ast.ImportFrom)}
    assert modules == {"collections", "collections.abc", "math", "apical.train.metrics", "apical.study.plan"}
    assert not any(isinstance(n, ast.Import) for n in ast.walk(source))


@pytest.mark.parametrize(("metric", "expected"), [("accuracy", "ada(alpha=0.5)"), ("mse", "ada(alpha=0.1)")])
def test_the_best_mean_wins_in_the_direction_of_the_metric_and_ties_go_to_the_first(metric, expected):
    part = Part(name="p", title="", data="digits", model="mlp-1", metric=metric)
    row = Row(key="p/ada", part="p", label="", unit="ada", tune={"alpha": (0.1, 0.5, 1.0)})
    planned = plan(study.Study(name="s", title="", parts=(part,), rows=(row,)), tune_trials=2)
    values = dict(zip((t.digest for t in planned.tuning), [0.2, 0.4, 0.1, 0.9, 0.5, 0.5], strict=True))
    assert selection.choose(planned, values) == {"p/ada": expected}


def test_a_trial_without_a_number_does_not_count():
    part = Part(name="p", title="", data="digits", model="mlp-1")
    row = Row(key="p/ada", part="p", label="", unit="ada", tune={"alpha": (0.1, 0.5)})
    planned = plan(study.Study(name="s", title="", parts=(part,), rows=(row,)))
    first, second = (t.digest for t in planned.tuning)
    assert selection.choose(planned, {first: float("nan"), second: 0.1}) == {"p/ada": "ada(alpha=0.5)"}
    assert selection.choose(planned, {second: 0.1}) == {"p/ada": "ada(alpha=0.5)"}
    assert selection.choose(planned, {}) == {}
    assert selection.choose(planned, {first: 0.1, second: 0.1}, rows=()) == {}
    assert selection.best_trial(metrics.find("accuracy"), [float("nan"), 0.5, 0.5]) == 1
    assert selection.best_trial(metrics.find("mae"), [2.0, 1.0]) == 1
    assert selection.best_trial(metrics.find("mae"), []) is None


def test_what_is_finished_is_not_done_again(tiny, tmp_path, jobs):
    first = run(tiny, tmp_path / "s")
    done = len(jobs)
    assert done
    again = run(tiny, tmp_path / "s")
    assert len(jobs) == done
    assert again.rows == first.rows


def test_more_trials_and_rows_join_and_only_they_are_run(tiny, tmp_path, jobs):
    run(tiny, tmp_path / "s")
    jobs.clear()
    row = Row(key="digits/tanh", part="digits", label="tanh", unit="tanh")
    more = tiny.model_copy(update={"trials": 3, "rows": (*tiny.rows, row), "notes": ("grown",)})
    results = run(more, tmp_path / "s")
    assert results.finished
    assert [len(r.trials) for r in results.rows] == [3, 3, 3]
    assert sum(len(j.trials) for j in jobs if j.kind == "train") == 1 + 1 + 3
    assert study.frozen(tmp_path / "s") == more


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trials": 1}, "trials were 2 and are 1"),
        ({"name": "other"}, "name was 'tiny' and is 'other'"),
        ({"quick": True}, "quick variant"),
        ({"parts": {"model": "mlp-2"}}, "part 'digits': model was mlp-1 and is mlp-2"),
        ({"parts": {"training": {"epochs": 9}}}, "part 'digits': training was"),
        ({"rows": {"tune": {"alpha": (0.7,)}}}, "row 'digits/ada': tune was"),
        ({"rows": None}, "row 'digits/ada' is gone"),
    ],
)
def test_another_protocol_needs_another_directory(tiny, tmp_path, change, words):
    run(tiny, tmp_path / "s")
    (field, value), *_ = change.items()
    if field == "parts":
        change = {"parts": (tiny.parts[0].model_copy(update=value),)}
    elif field == "rows":
        change = {"rows": tiny.rows[:1] + ((tiny.rows[1].model_copy(update=value),) if value else ())}
    with pytest.raises(StudyError, match="choose another directory with -d") as caught:
        run(tiny.model_copy(update=change), tmp_path / "s")
    assert words in str(caught.value)
    with pytest.raises(StudyError, match="tune_trials was 1 and is 2"):
        run(tiny, tmp_path / "s", tune_trials=2)


FACTORY = """
from torch import nn
def network(unit, inputs, outputs):
    if "ada" in str(unit):
        raise RuntimeError("this one never works")
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))
"""


def test_a_failed_trial_is_data_and_can_be_tried_again(tiny, tmp_path, monkeypatch):
    (tmp_path / "broken_net.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    part = tiny.parts[0].model_copy(update={"model": "broken_net:network", "dims": {}})
    broken = tiny.model_copy(update={"parts": (part,)})
    results = run(broken, tmp_path / "s", trust=True)
    assert results.finished
    assert results.states["failed"] == 2
    again = f"fix the cause, then: apical study retry {results.directory}, and run again"
    assert f"2 trials failed: {again}" in results.missing[0]
    ada = results.row("digits/ada")
    assert (ada.chosen, ada.trials, ada.best) == (None, (), None)
    assert {t.reason for s in ada.settings for t in s.trials} == {"RuntimeError: this one never works"}
    assert results.row("digits/relu").tests("accuracy")

    (tmp_path / "broken_net.py").write_text(FACTORY.replace('"ada"', '"nothing"'))
    monkeypatch.delitem(sys.modules, "broken_net")
    with pytest.raises(InvalidArgumentError, match="no failed trial begins with 'xyz'"):
        study.retry(tmp_path / "s", ["xyz"])
    assert len(study.retry(tmp_path / "s")) == 2
    assert study.retry(tmp_path / "s") == ()
    assert run(broken, tmp_path / "s").row("digits/ada").chosen is not None


def test_a_diverged_trial_counts_with_its_last_finite_model(tiny, tmp_path):
    part = tiny.parts[0].model_copy(update={"training": {"epochs": 1, "batch": 256, "learning_rate": 1e30}})
    results = run(tiny.model_copy(update={"parts": (part,)}), tmp_path / "s")
    assert results.finished
    assert results.states == Counter(done=3, diverged=2)
    (relu, _) = results.rows
    assert "not finite" in relu.best.reason
    assert relu.tests("accuracy")


def test_a_damaged_trial_is_said_and_run_again_by_retry(tiny, tmp_path, numbers):
    run(tiny, tmp_path / "s")
    whole = numbers(tmp_path / "s")
    victim = next((tmp_path / "s" / "trials").iterdir())
    (victim / RESULT).write_text("{")
    results = study.read(tmp_path / "s")
    assert results.states["failed"] == 1
    again = study.retry(tmp_path / "s")
    assert again == (victim.name,)
    run(tiny, tmp_path / "s")
    assert numbers(tmp_path / "s") == whole


def test_a_folder_under_a_wrong_name_is_damaged(tiny, tmp_path):
    run(tiny, tmp_path / "s")
    one, other = sorted((tmp_path / "s" / "trials").iterdir())[:2]
    (one / RESULT).write_text((other / RESULT).read_text())
    assert study.read(tmp_path / "s").states["failed"] == 1


def test_a_damaged_checkpoint_that_a_dead_worker_left_costs_time_only(tiny, tmp_path, numbers):
    run(tiny, tmp_path / "whole")
    first = plan(tiny).tuning[0]
    driver.open_for(tiny, tmp_path / "s", None)
    left = tmp_path / "s" / "attempts" / f"{first.digest}.dead"
    left.mkdir()
    (left / CHECKPOINT).write_bytes(b"\x00" * 100)
    assert run(tiny, tmp_path / "s").states == Counter(done=5)
    assert numbers(tmp_path / "s") == numbers(tmp_path / "whole")


def test_a_finished_attempt_that_was_not_published_is_not_trained_again(tiny, tmp_path, monkeypatch):
    first = plan(tiny).tuning[0]
    driver.open_for(tiny, tmp_path / "s", None)
    done = train_one(first.spec, None, tmp_path / "s" / "attempts" / f"{first.digest}.dead")
    run(tiny, tmp_path / "s")
    stored = json.loads((tmp_path / "s" / "trials" / first.digest / RESULT).read_text())
    assert stored["timings"] == done.timings


def test_who_died_between_answers_and_scores_left_only_the_scores_to_do(tiny, tmp_path, numbers):
    run(tiny, tmp_path / "s")
    whole = numbers(tmp_path / "s")
    tested = [f for f in (tmp_path / "s" / "trials").iterdir() if (f / SCORES).exists()]
    before = (tested[0] / "test.npz").stat().st_mtime_ns
    (tested[0] / SCORES).unlink()
    (tested[1] / SCORES).unlink()
    (tested[1] / "test.npz").unlink()  # died after opening: nobody has seen an answer
    for path in (tmp_path / "s" / "claims").iterdir():
        os.utime(path, (0, 0))
    assert len(study.read(tmp_path / "s").missing) == 1
    run(tiny, tmp_path / "s")
    assert numbers(tmp_path / "s") == whole
    assert (tested[0] / "test.npz").stat().st_mtime_ns == before


def test_missing_data_is_said_before_anything_is_made(tiny, tmp_path):
    part = tiny.parts[0].model_copy(update={"data": "moroco", "model": "char-cnn", "dims": {}, "training": {}})
    with pytest.raises(MissingDataError, match=r"the data of part 'digits': .*apical data prepare moroco"):
        run(tiny.model_copy(update={"parts": (part,)}), tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_whoever_looks_from_outside_tells_the_time_that_the_driver_tells(tiny, tmp_path):
    """A stack holds a claim for each of its trials, but it is one worker."""
    run(tiny, tmp_path / "s")
    store, planned = opened(tmp_path / "s")
    seen = []
    for digest in [t.digest for t in planned.tuning if t.setting != "relu"]:
        shutil.rmtree(store.trial(digest))
        store.leases.clear(digest)
        assert store.leases.acquire(digest)
    study_state = state.snapshot(planned, store)
    seen.append(measure(study_state, store, store.leases.running(study_state.keys_left), idle=5))
    seen += [study.status(tmp_path / "s"), study.read(tmp_path / "s")]
    assert seen[0].workers == 1
    assert len(seen[0].running) == 2
    assert len({found.seconds_left for found in seen}) == 1
    assert measure(study_state, store, {}, idle=5).workers == 5


def test_a_full_disk_stops_the_study_with_one_sentence_and_fails_no_trial(tiny, tmp_path, monkeypatch):
    real = os.fsync

    def full(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").readlink().name.startswith(f".{CHECKPOINT}"):
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StudyError, match=r"No space left on device.*finished trials are safe: free some space"):
        run(tiny, tmp_path / "s")
    monkeypatch.setattr(os, "fsync", real)
    assert not list((tmp_path / "s" / "failed").iterdir())
    assert run(tiny, tmp_path / "s").states == Counter(done=5)


def test_an_engine_that_is_not_installed_or_unknown(tiny, tmp_path):
    with pytest.raises(InvalidArgumentError, match="unknown engine 'slurm'; available: local, ray"):
        study.run(tiny, tmp_path / "s", engine="slurm")


def test_a_worker_that_dies_again_and_again_fails_its_trial(tiny, tmp_path, monkeypatch):
    from apical.study.engines.base import Done

    planned = plan(tiny)
    store = driver.open_for(tiny, tmp_path / "s", None)

    class Deadly:
        workers = room = 1

        def __init__(self):
            self.jobs = []

        def submit(self, job):
            self.jobs.append(job)

        def wait(self, seconds):
            jobs, self.jobs[:] = [*self.jobs], []
            return [Done(job) for job in jobs]

        def close(self, *, stop):
            pass

    driver.Driver(planned, store, Deadly()).drive()
    assert study.read(tmp_path / "s").states["failed"] == 4
    assert "5 workers died while they ran it" in store.failure(planned.tuning[0].digest)["reason"]


def test_an_interrupted_driver_stops_its_workers_and_says_so(tiny, tmp_path, monkeypatch):
    closed = []
    engine = ENGINES["here"].start

    def start(context, options):
        made = engine(context, options)
        made.close = lambda *, stop: closed.append(stop)
        return made

    monkeypatch.setitem(ENGINES, "here", EngineDescriptor("here", start))

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tiny, tmp_path / "s", progress=interrupt)
    assert closed == [True]
    assert run(tiny, tmp_path / "s").finished
    assert closed == [True, False]


# --- the index -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["gone", "garbage", "half", "wrong rows", "wrong table", "folder"])
def test_a_corrupted_index_is_rebuilt_from_the_trial_folders(tiny, tmp_path, damage):
    first = run(tiny, tmp_path / "s")
    path = Index(tmp_path / "s").path
    assert path.is_file()
    if damage == "gone":
        path.unlink()
    elif damage == "garbage":
        path.write_bytes(b"no data base" * 1000)
    elif damage == "half":
        path.write_bytes(path.read_bytes()[:5000])
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        with sqlite3.connect(path) as base:
            base.execute(
                "UPDATE trials SET facts = '[1]'" if damage == "wrong rows" else "ALTER TABLE trials RENAME TO t"
            )
        base.close()
    assert study.read(tmp_path / "s").rows == first.rows
    assert study.read(tmp_path / "s").rows == first.rows


def test_the_index_saves_reading_and_holds_no_test_result(tiny, tmp_path, monkeypatch):
    run(tiny, tmp_path / "s")
    monkeypatch.setattr(state, "read_facts", lambda folder: pytest.fail(f"{folder} was read again"))
    store, planned = opened(tmp_path / "s")
    assert state.snapshot(planned, store).finished
    with sqlite3.connect(Index(tmp_path / "s").path) as base:
        (text,) = base.execute("SELECT facts FROM trials").fetchone()
    base.close()
    assert set(json.loads(text)) == {"state", "value", "seconds"}


def test_what_the_index_says_of_a_folder_that_is_gone_does_not_count(tiny, tmp_path):
    run(tiny, tmp_path / "s")
    victim = plan(tiny).tuning[0].digest
    (tmp_path / "s" / "trials" / victim).rename(tmp_path / "elsewhere")
    assert study.read(tmp_path / "s").states["done"] == 4


def test_status_counts_what_others_run(tiny, tmp_path):
    store = driver.open_for(tiny, tmp_path / "s", None)
    first = plan(tiny).tuning[0].digest
    lease = store.leases.acquire(first)
    attempt = store.begin(lease)
    (attempt / "progress.json").write_text('{"done": 0.5, "epoch": 1, "epochs": 2}')
    now = study.status(tmp_path / "s")
    assert now.states == Counter(planned=4, running=1)
    (running,) = now.running
    assert (running.trial.digest, running.done, running.testing) == (first, 0.5, False)
    assert (now.trials, now.settled, now.tested, now.tests) == (5, 0, 0, 4)
    lease.release()
    run(tiny, tmp_path / "s")
    assert store.leases.numbers()[first + TEST] == 1
    assert study.status(tmp_path / "s").settled == 5


def test_a_study_json_from_another_format_is_one_sentence(tiny, tmp_path):
    driver.open_for(tiny, tmp_path / "s", None)
    values = json.loads((tmp_path / "s" / STUDY).read_text())
    values["study"]["format"] = 99
    (tmp_path / "s" / STUDY).write_text(json.dumps(values))
    with pytest.raises(StudyError, match="format 99"):
        study.read(tmp_path / "s")


def test_without_ray_its_engine_says_how_to_install_it(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "apical.study.engines.ray", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'apical\[ray\]'"):
        study.run(tiny, tmp_path / "s", engine="ray")


@pytest.mark.parametrize("places", [study.Options(address="auto"), study.Options(gpus=0.5)])
def test_what_is_meant_for_a_cluster_is_not_ignored_without_one(tiny, tmp_path, places):
    with pytest.raises(InvalidArgumentError, match=r"'local' has no option '\w+'; it has workers, cpus: use ray"):
        study.run(tiny, tmp_path / "s", options=places)


def test_a_folder_with_other_things_in_it_is_left_alone(tiny, tmp_path):
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(StudyError, match="has other files in it, but no study"):
        run(tiny, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "home") == ["index.html"]
