"""The time of a study: a pure estimate, and a calibration of real networks."""

from math import ceil
from pathlib import Path

import pytest

from apical import models
from apical.data import load as load_data
from apical.study import catalogue, load, names
from apical.study.calibration import SHAPES, calibrate, samples_of, seconds_of_step, sketch
from apical.study.cost import BRANCHES, FORWARD, START, estimate, steps
from apical.study.plan import plan, spec_of
from apical.train.network import dims_for


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("APICAL_HOME", str(tmp_path))
    return tmp_path


def test_steps_of_a_trial() -> None:
    part = load("table-fashion-mlp").part("mlp-1")
    assert steps(part, (50_000, 10_000)) == pytest.approx(30 * (ceil(50_000 / 64) + FORWARD * 10_000 / 64))
    curve = load("approximation").part("sin")
    assert steps(curve, (1000, 1000)) == pytest.approx(5000 + 50 * FORWARD)


def test_a_subset_bounds_the_samples() -> None:
    part = load("table-fashion-cnn", quick=True, sets=["samples=640"]).part("lenet")
    assert steps(part, (50_000, 10_000)) == pytest.approx(3 * (10 + FORWARD * 10))


def test_the_estimate_counts_trials_branches_and_workers() -> None:
    study = load("demo")
    part = study.part("digits")
    seconds = {"digits": 0.001}
    one = 0.001 * steps(part, (1257, 269))
    # 5 standard units and leaky ReLU once, ADA and leaky ADA with 2 settings; the same of pyramidal ones
    standard, pyramidal = 5 * 3 + 2 * 4, 3 * 3 + 2 * 4
    wanted = standard * (START + one) + pyramidal * (START + BRANCHES * one)
    assert estimate(plan(study), seconds, {"digits": (1257, 269)}) == pytest.approx(wanted)
    assert estimate(plan(study), seconds, {"digits": (1257, 269)}, workers=4) == pytest.approx(wanted / 4)


def test_what_was_measured_is_kept(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = load("approximation", quick=True)
    assert calibrate(study, measure=False) == {}
    seconds = calibrate(study)
    assert set(seconds) == {"sin", "sinc"}
    assert all(value > 0 for value in seconds.values())
    monkeypatch.setattr("apical.study.calibration.seconds_of_step", lambda spec: pytest.fail("measured again"))
    assert calibrate(study, measure=False) == calibrate(study) == seconds
    (own_home / "calibration.json").write_text("{not json")
    assert calibrate(study, measure=False) == {}


def test_a_cache_that_cannot_be_written_is_no_obstacle(own_home: Path) -> None:
    (own_home / "calibration.json").mkdir()
    assert calibrate(load("approximation"))


@pytest.mark.parametrize("name", names())
def test_every_part_can_be_sketched(name: str) -> None:
    study = load(name)
    for part in study.parts:
        spec = spec_of(part, "pynada" if part.dims else "ada")
        data = sketch(spec)
        assert set(dims_for(spec, data)) <= set(models.registry.find(spec.model).parameters)
        assert all(count > 0 for count in samples_of(part))
        if spec.data not in SHAPES:
            assert data.fingerprint == load_data(spec.data).fingerprint


def test_a_small_network_and_a_share_of_a_batch_are_measured() -> None:
    small = spec_of(load("table-fashion-mlp").part("mlp-1"), "ada")
    assert 0 < seconds_of_step(small) < 10
    text = spec_of(load("table-moroco", sets=["parts.cnn.training.batch=4"]).part("cnn"), "pynada")
    assert seconds_of_step(text) > seconds_of_step(small)


def test_the_catalogue_without_measuring() -> None:
    entries = {entry.study.name: entry for entry in catalogue(measure=False)}
    assert tuple(entries) == names()
    demo = entries["demo"]
    assert (demo.rows, demo.trials, demo.data, demo.ready) == (12, 40, {"digits": "built in"}, True)
    assert (demo.seconds, demo.quick_seconds) == (None, None)
    assert not entries["table-imagenet"].ready
