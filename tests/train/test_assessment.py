"""What `robustness` in a trial's spec measures when its test split is opened."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from apical import data, robustness
from apical.errors import CheckpointError, InvalidArgumentError, TrainingError
from apical.stats.calibration import calibration_error
from apical.train import TestResult, TrialSpec, assessment, evaluate, metrics, run

from .conftest import ONE_THREAD

ALL = (
    "calibration",
    "corruptions(samples=40)",
    "far_away(sets=noise,samples=60)",
    "attacks(eps=0.1,samples=50,steps=5,queries=20)",
)


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A trial with everything, and its folder."""
    folder = tmp_path_factory.mktemp("assessed") / "trial"
    torch.set_num_threads(1)
    spec = TrialSpec(
        data="digits", model="mlp-1", unit="ada(alpha=0.3)", dims={"hidden": 16}, epochs=3, batch=128,
        learning_rate=0.01, robustness=ALL,
    )  # fmt: skip
    result = run(spec, ONE_THREAD, folder)
    return result, evaluate(result)


def test_every_number_is_there_and_read_back(tested):
    result, answers = tested
    assert set(metrics.measured()) <= answers.scores.keys()
    assert len([name for name in answers.scores if name.startswith("corruption-accuracy.")]) == 15
    assert TestResult.load(result.directory).scores == answers.scores
    assert all(metrics.find(name).name == name for name in answers.scores)


def test_numbers_are_those_of_the_functions_on_the_kept_network(tested):
    result, answers = tested
    scores, network = answers.scores, result.network()
    assert scores["calibration-error"] == calibration_error(answers.outputs, answers.labels)
    split = data.load("digits").test
    places = np.sort(assessment.generator("assessed", len(split)).permutation(len(split))[:40])
    pixels = torch.from_numpy(split.raw(places).astype(np.float32)) / split.input.divisor
    shares = []
    for severity in robustness.SEVERITIES:
        images = robustness.corrupt(pixels, "fog", severity, ids=split.ids[places])
        right = network(images - split.input.mean).argmax(1) == torch.from_numpy(split.labels[places])
        shares.append(float(right.double().mean()))
    assert_allclose(scores["corruption-accuracy.fog"], np.mean(shares))
    own = [value for name, value in scores.items() if name.startswith("corruption-accuracy.")]
    assert_allclose(scores["corruption-accuracy"], np.mean(own))


def test_the_weakest_attack_is_below_each(tested):
    scores = tested[1].scores
    each = [scores[f"adversarial-accuracy.{name}"] for name in ("fgsm", "pgd", "transfer", "square")]
    assert scores["adversarial-accuracy"] <= min(each)
    assert scores["adversarial-accuracy"] < scores["accuracy"]
    assert 0 <= scores["masked"] <= 1
    assert scores["softmax-auroc"] == scores["softmax-auroc.noise"]


def test_the_same_trial_gives_the_same_numbers(tested, tmp_path):
    result, answers = tested
    again = evaluate(run(result.spec, ONE_THREAD, tmp_path / "again"))
    assert again.scores == answers.scores


def test_it_does_not_change_how_a_trial_is_trained(tested, spec, tmp_path):
    assert spec.unit == tested[0].spec.unit
    plain = run(spec, ONE_THREAD, tmp_path / "plain")
    assert plain.history == tested[0].history
    assert "robustness" not in spec.as_dict()
    assert spec.digest != replace(spec, robustness=ALL[:1]).digest
    assert TrialSpec.from_json(tested[0].spec.to_json()) == tested[0].spec
    assert TrialSpec.from_toml(tested[0].spec.to_toml()) == tested[0].spec


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["attack"], "unknown assessment 'attack'; did you mean 'attacks'"),
        (["attacks(epps=0.1)"], "unknown setting of attacks 'epps'"),
        (["attacks(steps=0.5)"], "steps is 0.5, but must be a whole number"),
        (["attacks(eps=0)"], "eps must be above 0"),
        (["corruptions(samples=0)"], "samples is 0.0, but must be a whole number from 1 to 1000000"),
        (["attacks(queries=10000000000)"], "queries is 10000000000.0, but must be a whole number from 1 to 1000000"),
        (["calibration(bins=3000000000)"], "bins is 3000000000.0, but must be a whole number from 1 to 10000"),
        (["attacks(seed=99999999999999999999999)"], "seed is 1e\\+23, but must be a whole number from 0 to"),
        ([f"calibration(bins={'9' * 400})"], "bins"),
        (["far_away(sets=3)"], "sets is 3.0, but must be a name"),
        (["calibration", "calibration(bins=10)"], "must name each assessment at most once"),
    ],
)
def test_what_is_wrong_is_one_sentence(spec, texts, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        replace(spec, robustness=texts)


def test_data_without_images_is_refused(tmp_path):
    spec = TrialSpec(data="xor", model="mlp-1", epochs=1, batch=4, dims={"hidden": 2}, robustness=["corruptions"])
    with pytest.raises(TrainingError, match="these samples are Numbers, but robustness is measured only on images"):
        evaluate(run(spec, ONE_THREAD, tmp_path / "xor"))


def test_damaged_numbers_are_refused(tested, tmp_path):
    answers = tested[1]
    np.savez(
        tmp_path / "test.npz", ids=answers.ids, labels=answers.labels, outputs=answers.outputs,
        names=np.array(["accuracy"]), values=np.array([1.0, 2.0]),
    )  # fmt: skip
    with pytest.raises(CheckpointError, match="names and values do not fit each other"):
        TestResult.load(tmp_path)
