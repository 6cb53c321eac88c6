import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from apical import data
from apical.errors import AlreadyEvaluatedError, CheckpointError, TrainingError
from apical.train import Execution, TestResult, TrialResult, TrialSpec, evaluate, run, trial
from apical.train.checkpoint import load
from apical.train.result import BEST, LAST, RESULT

ONE_THREAD = Execution(threads=1)


def weights(result):
    return load(result.weights).part("model")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_trial_learns_and_records_what_it_did(finished, spec):
    assert finished.state == "done"
    assert [h["epoch"] for h in finished.history] == [1, 2, 3]
    assert finished.history[-1]["loss"] < finished.history[0]["loss"]
    assert finished.metric == max(h["validation"]["accuracy"] for h in finished.history) > 0.3
    assert finished.metric == finished.history[finished.best_epoch - 1]["validation"]["accuracy"]
    assert finished.parameters == 64 * 16 + 16 + 16 * 10 + 10
    assert len(finished.timings) == 3
    assert {"torch", "python", "backend"} <= set(finished.environment)
    assert finished.data["fingerprint"] == data.load("digits").fingerprint
    assert finished.spec == spec


def test_a_result_reads_back_equal(finished):
    assert TrialResult.load(finished.directory) == finished


def test_a_finished_trial_is_not_run_again(finished, spec):
    events = []
    assert run(spec, ONE_THREAD, finished.directory, [events.append]) == finished
    assert events == []


def test_running_twice_gives_the_same_bits(finished, spec, tmp_path):
    again = run(spec, ONE_THREAD, tmp_path / "again")
    assert same(weights(again), weights(finished))
    assert again.history == finished.history


def test_the_callers_random_state_and_threads_are_left_alone(spec, tmp_path):
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    run(spec, Execution(threads=2), tmp_path / "t")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_the_kept_network_is_the_best_one(finished, spec):
    network = finished.network()
    split = data.load("digits").validation
    with torch.no_grad():
        guess = network(split.inputs(np.arange(len(split)))).argmax(1).numpy()
    assert (guess == split.labels).mean() == pytest.approx(finished.metric)


def test_another_trial_is_refused_in_the_same_folder(finished, spec):
    with pytest.raises(TrainingError, match="holds another trial"):
        run(replace(spec, seed=1), ONE_THREAD, finished.directory)


def test_two_processes_do_not_share_a_folder(spec, tmp_path):
    from filelock import FileLock

    (tmp_path / "t").mkdir()
    with FileLock(tmp_path / "t" / ".lock"), pytest.raises(TrainingError, match="another process"):
        run(spec, ONE_THREAD, tmp_path / "t")


class Closed:
    """A test split that nobody may look at."""

    def __getattribute__(self, name):
        raise AssertionError(f"the test split was opened: {name}")


def test_run_never_opens_the_test_split(spec, tmp_path, monkeypatch):
    real = data.load

    def without_test(*arguments, **how):
        return replace(real(*arguments, **how), test=Closed())

    monkeypatch.setattr(trial, "load", without_test)
    result = run(spec, ONE_THREAD, tmp_path / "t")
    assert result.state == "done"
    with pytest.raises(AssertionError, match="the test split was opened"):
        evaluate(result)


def test_evaluate_stores_log_probabilities_by_sample_id_once(finished):
    found = evaluate(finished)
    split = data.load("digits").test
    assert found.ids.tolist() == split.ids.tolist()
    assert found.outputs.dtype == np.float32
    assert np.allclose(np.exp(found.outputs).sum(1), 1, atol=1e-5)
    assert found.scores["accuracy"] == (found.outputs.argmax(1) == split.labels).mean()
    assert set(found.scores) == {"accuracy", "weighted-accuracy", "top-5", "cross-entropy"}
    again = TestResult.load(finished.directory)
    assert np.array_equal(again.outputs, found.outputs)
    with pytest.raises(AlreadyEvaluatedError, match="opened once"):
        evaluate(finished)
    with pytest.raises(AlreadyEvaluatedError):
        evaluate(finished.directory)


def test_an_evaluation_that_died_may_be_repeated_with_the_same_weights_only(finished):
    evaluate(finished)
    (finished.directory / "test.npz").unlink()  # the marker is left, as after a crash
    assert evaluate(finished).scores["accuracy"] > 0
    (finished.directory / "test.npz").unlink()
    (finished.directory / "test.opened").write_text('{"weights": "others"}')
    with pytest.raises(AlreadyEvaluatedError):
        evaluate(finished)


def test_only_finished_trials_are_evaluated(finished, tmp_path):
    with pytest.raises(CheckpointError, match="no finished trial"):
        evaluate(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="not finished"):
        evaluate(replace(finished, state="stopped"))
    (finished.directory / RESULT).write_text("{}")
    with pytest.raises(CheckpointError, match="damaged"):
        TrialResult.load(finished.directory)


def test_regression_is_trained_by_l1_and_measured_by_mae(tmp_path):
    spec = TrialSpec.paper("sin", "mlp-approx", unit="ada", loss="l1", metric="mae", epochs=2, passes=20)
    result = run(spec, ONE_THREAD, tmp_path / "t")
    found = evaluate(result)
    assert found.outputs.shape == (1000, 1)
    assert found.scores["mae"] == pytest.approx(result.metric)
    assert result.history[1]["loss"] < result.history[0]["loss"]


@pytest.mark.parametrize("change", [{"loss": "l1"}, {"metric": "mae"}])
def test_a_loss_or_metric_of_another_task_is_refused(spec, tmp_path, change):
    with pytest.raises(TrainingError, match="digits is a classification task"):
        run(replace(spec, **change), ONE_THREAD, tmp_path / "t")


def test_a_network_that_does_not_fit_is_refused_before_training(spec, tmp_path):
    with pytest.raises(TrainingError, match=r"shape \(2, 3\).*needs 2 rows of 10 values"):
        run(replace(spec, dims={"hidden": 16, "outputs": 3}), ONE_THREAD, tmp_path / "t")


def test_a_partial_mark_that_is_not_the_datas_is_refused(spec, tmp_path):
    with pytest.raises(TrainingError, match="'whole', but the trial says partial='partial"):
        run(replace(spec, partial="partial (3 of 9)"), ONE_THREAD, tmp_path / "t")


def test_corruptions_reach_the_training(finished, spec, tmp_path):
    noisy = run(replace(spec, corruptions=("label-noise(fraction=0.5)",)), ONE_THREAD, tmp_path / "t")
    assert noisy.data["corruptions"] == ["label-noise(seed=0,fraction=0.5)"]
    assert noisy.history[-1]["loss"] > finished.history[-1]["loss"]


def test_an_interrupted_checkpoint_writing_leaves_no_temporary_files(spec, tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / f".{LAST}.123.tmp").write_bytes(b"half")
    run(spec, ONE_THREAD, folder)
    assert not list(folder.glob(".*.tmp"))
    assert (folder / BEST).exists()


def test_checkpoints_can_be_spaced_in_time(spec, tmp_path, monkeypatch):
    from apical.train import session

    saved = []
    real = session.checkpoint.save
    monkeypatch.setattr(session.checkpoint, "save", lambda path, *rest: (saved.append(path.name), real(path, *rest)))
    run(spec, Execution(threads=1, checkpoint_every=1000.0), tmp_path / "t")
    assert saved.count(LAST) == 1  # the last epoch's


def test_gradients_are_clipped_only_when_asked(spec, tmp_path):
    tight = run(replace(spec, clip=1e-6, optimiser="sgd"), ONE_THREAD, tmp_path / "t")
    first, last = tight.history[0]["validation"]["loss"], tight.history[-1]["validation"]["loss"]
    assert abs(first - last) < 1e-4


def test_callbacks_hear_of_every_epoch(spec, tmp_path):
    events = []
    run(spec, ONE_THREAD, tmp_path / "t", [events.append])
    epochs = [e for e in events if e.kind == "epoch"]
    assert [e.epoch for e in epochs] == [1, 2, 3]
    assert epochs[-1].seconds_left == 0
    assert all(e.samples_per_second > 0 for e in epochs)
    assert json.dumps(epochs[0].record)


def test_every_network_name_of_ones_own_works(tmp_path, monkeypatch):
    (tmp_path / "networks_for_run.py").write_text(
        "from torch import nn\n"
        "def tiny(inputs, outputs):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 12), nn.ReLU(), nn.Linear(12, outputs))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = TrialSpec(data="digits", model="networks_for_run:tiny", unit="pynada", epochs=1)
    result = run(spec, ONE_THREAD, tmp_path / "t", trust=True)
    assert result.parameters == 64 * 24 + 24 + 12 * 10 + 10
    assert evaluate(result).scores["accuracy"] > 0.1


def test_one_neuron_learns_or_from_some_starts_and_its_answer_is_the_rounded_output(tmp_path):
    points = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    found = []
    for seed in range(4):
        result = run(TrialSpec.paper("or", "neuron", unit="relu", seed=seed), ONE_THREAD, tmp_path / str(seed))
        with torch.no_grad():
            right = result.network()(points).flatten().round() == torch.tensor([0, 1, 1, 1])
        found.append(evaluate(result).scores["accuracy"])
        assert found[-1] == float(right.double().mean())
    assert max(found) == 1.0
