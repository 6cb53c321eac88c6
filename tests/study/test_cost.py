"""The time of a study: a pure estimate, and a calibration of real networks."""

from math import ceil
from pathlib import Path

import pytest

from apical import models
from apical.data import load as load_data
from apical.data import registry
from apical.study import catalogue, load, names
from apical.study.cost import (
    BRANCHES,
    EACH,
    FORWARD,
    START,
    Step,
    calibrate,
    estimate,
    samples_of,
    seconds_of_step,
    sketch,
    steps,
)
from apical.study.plan import plan, spec_of
from apical.train.session import dims_for


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
    study = load("demo", sets=["stack=1"])
    part = study.part("digits")
    seconds = {"digits": Step(0.001)}
    one = 0.001 * steps(part, (1257, 269))
    # 5 standard units and leaky ReLU once, ADA and leaky ADA with 2 settings; the same of pyramidal ones
    standard, pyramidal = 5 * 3 + 2 * 4, 3 * 3 + 2 * 4
    wanted = standard * (START + EACH + one) + pyramidal * (START + EACH + BRANCHES * one)
    assert estimate(plan(study), seconds, {"digits": (1257, 269)}) == pytest.approx(wanted)
    assert estimate(plan(study), seconds, {"digits": (1257, 269)}, workers=4) == pytest.approx(wanted / 4)


def test_a_step_of_a_stack_lies_on_the_line_of_what_was_measured() -> None:
    step = Step(0.001, 200, 0.003)
    assert (step.of(1), step.of(200)) == pytest.approx((0.001, 0.003))
    assert step.of(100) == pytest.approx(0.001 + 0.002 * 99 / 199)
    assert Step(0.001, 8, 0.0005).of(8) == 0.001  # noise of the clock: several take no less than one
    assert Step(0.1).of(3) == pytest.approx(0.3)


def test_the_estimate_knows_of_stacks() -> None:
    study = load("logic")
    step = Step(0.001, 200, 0.002)
    found = estimate(
        plan(study), {part.name: step for part in study.parts}, dict.fromkeys(("xor", "and", "or"), (4, 4))
    )
    # a part: 7 standard and 5 pyramidal units, their first trials in one stack each, the other 199 in stacks of 200
    sizes = {1: [7, *[200] * 6, 193], BRANCHES: [5, *[200] * 4, 195]}
    one = steps(study.part("xor"), (4, 4))
    wanted = sum(START + EACH * n + branches * step.of(n) * one for branches, ns in sizes.items() for n in ns)
    assert found == pytest.approx(3 * wanted)
    alone = dict.fromkeys((part.name for part in study.parts), Step(0.001))
    assert found < 0.1 * estimate(plan(study), alone, dict.fromkeys(("xor", "and", "or"), (4, 4)))


def test_what_was_measured_is_kept(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = load("approximation", quick=True)
    assert calibrate(study, measure=False) == {}
    seconds = calibrate(study)
    assert set(seconds) == {"sin", "sinc"}
    assert all(step.alone > 0 and step.stacked > 0 and step.size == study.stack for step in seconds.values())
    monkeypatch.setattr("apical.study.cost.seconds_of_step", lambda *_, **__: pytest.fail("measured again"))
    assert calibrate(study, measure=False) == calibrate(study) == seconds
    (own_home / "calibration.json").write_text("{not json")
    assert calibrate(study, measure=False) == {}


def test_what_is_measured_is_said_once_a_part_and_only_when_it_is_measured() -> None:
    said: list[str] = []
    for _ in range(2):
        calibrate(load("approximation"), progress=lambda what, *_: said.append(what))
    assert said == ["measuring mlp-approx on sin", "measuring mlp-approx on sinc"]


def test_networks_that_cannot_be_stacked_are_measured_alone() -> None:
    (step,) = calibrate(load("demo", sets=["parts.digits.model=mlp-1", "training.clip=1.0"])).values()
    assert step.size == 1


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
        if registry.get(spec.data).make is not None:
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
