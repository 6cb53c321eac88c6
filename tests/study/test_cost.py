"""The time of a study: a pure estimate, and a calibration of real networks."""

import json
from math import ceil
from pathlib import Path

import pytest
import torch

from apical import models
from apical.data import load as load_data
from apical.data import registry
from apical.study import catalogue, cost, listing, load, names
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


def test_the_estimate_counts_trials_and_branches() -> None:
    study = load("demo", sets=["stack=1"])
    part = study.part("digits")
    seconds = {"digits": Step(0.001)}
    one = 0.001 * steps(part, (1257, 269))
    # 5 standard units and leaky ReLU once, ADA and leaky ADA with 2 settings; the same of pyramidal ones
    standard, pyramidal = 5 * 3 + 2 * 4, 3 * 3 + 2 * 4
    wanted = standard * (START + EACH + one) + pyramidal * (START + EACH + BRANCHES * one)
    assert estimate(plan(study), seconds, {"digits": (1257, 269)}) == pytest.approx({"digits": wanted})


def test_a_step_of_a_stack_lies_on_the_line_of_what_was_measured() -> None:
    step = Step(0.001, 200, 0.003)
    assert (step.of(1), step.of(200)) == pytest.approx((0.001, 0.003))
    assert step.of(100) == pytest.approx(0.001 + 0.002 * 99 / 199)
    assert Step(0.001, 8, 0.0005).of(8) == 0.001  # noise of the clock: several take no less than one
    assert Step(0.1).of(3) == pytest.approx(0.3)


def test_the_estimate_knows_of_stacks() -> None:
    study = load("logic")
    step = Step(0.001, 200, 0.002)
    samples = dict.fromkeys(("xor", "and", "or"), (4, 4))
    seconds = estimate(plan(study), {part.name: step for part in study.parts}, samples)
    # a part: 7 standard and 5 pyramidal units, their first trials in one stack each, the other 199 in stacks of 200
    sizes = {1: [7, *[200] * 6, 193], BRANCHES: [5, *[200] * 4, 195]}
    one = steps(study.part("xor"), (4, 4))
    wanted = sum(START + EACH * n + branches * step.of(n) * one for branches, ns in sizes.items() for n in ns)
    assert seconds == pytest.approx(dict.fromkeys(samples, wanted))
    alone = dict.fromkeys((part.name for part in study.parts), Step(0.001))
    assert sum(seconds.values()) < 0.1 * sum(estimate(plan(study), alone, samples).values())


def test_equal_steps_are_measured_once_and_only_what_is_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    known: dict[str, float] = {}
    study = load("approximation", quick=True)
    seconds = calibrate(study, known, progress=lambda what, *_: said.append(what))
    assert set(seconds) == {"sin", "sinc"}
    assert all(step.alone > 0 and step.stacked > 0 and step.size == study.stack for step in seconds.values())
    assert said == ["measuring mlp-approx on sin", "measuring mlp-approx on sinc"]
    monkeypatch.setattr("apical.study.cost.seconds_of_step", lambda *_, **__: pytest.fail("measured again"))
    assert calibrate(load("approximation"), known, progress=lambda what, *_: pytest.fail(what)) == seconds


def test_networks_that_cannot_be_stacked_are_measured_alone() -> None:
    (step,) = calibrate(load("demo", sets=["parts.digits.model=mlp-1", "training.clip=1.0"]), {}).values()
    assert step.size == 1


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
    assert seconds_of_step(small) > 0
    text = spec_of(load("table-moroco", sets=["parts.cnn.training.batch=4"]).part("cnn"), "pynada")
    assert seconds_of_step(text) > 0


def test_a_batch_that_takes_long_is_measured_by_shares_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now, shares = [0.0], set()

    def step(inputs: torch.Tensor, _: torch.Tensor) -> None:
        shares.add(len(inputs))
        now[0] += 0.03 + 0.01 * len(inputs)

    monkeypatch.setattr(cost, "perf_counter", lambda: now[0])
    assert cost._whole_batch(step, load_data("digits"), 64) == pytest.approx(0.03 + 0.64)
    assert shares == {2, 4, 8}


def test_the_shipped_table_has_every_study_as_it_is() -> None:
    """Where it fails: apical study list --measure, and copy APICAL_HOME/costs.json to src/apical/study."""
    table = json.loads(listing.SHIPPED.read_text())["studies"]
    assert tuple(table) == names()
    for name, known in table.items():
        assert all(part.pop("seconds") >= part.pop("quick_seconds") > 0 for part in known["parts"].values())
        assert known == listing.sizes(load(name))
        assert sum(part["trials"] for part in known["parts"].values()) == plan(load(name)).count


def test_the_catalogue_comes_from_the_table(own_home: Path) -> None:
    entries = {entry.name: entry for entry in catalogue(workers=1)}
    assert tuple(entries) == names()
    demo = entries["demo"]
    assert (demo.rows, demo.trials, demo.data, demo.ready) == (12, 40, {"digits": "built in"}, True)
    assert demo.study == load("demo")
    assert not entries["table-imagenet"].ready
    lenet, vgg = entries["table-fashion-cnn"].parts
    assert (lenet.name, lenet.rows, lenet.trials) == ("lenet", 11, 95)
    assert lenet.seconds
    assert vgg.seconds
    assert entries["table-fashion-cnn"].seconds == lenet.seconds + vgg.seconds
    assert next(catalogue(workers=4)).seconds == pytest.approx(entries["ablation-alpha"].seconds / 4)  # type: ignore[operator]


def test_what_was_measured_here_goes_before_what_is_shipped(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apical.study.listing.names", lambda: ("approximation",))
    monkeypatch.setattr("apical.study.cost.seconds_of_step", lambda *_, **__: 1e6)
    (shipped,) = catalogue()
    (measured,) = catalogue(measure=True)
    assert measured.seconds
    assert shipped.seconds
    assert measured.seconds > 100 * shipped.seconds
    assert list(catalogue()) == [measured]
    path = own_home / "costs.json"
    for spoilt in (
        "{not json",
        "[]",
        '{"studies": {"approximation": {"what": 1}}}',
        path.read_text().replace(": 50", ": 7"),
    ):
        path.write_text(spoilt)
        assert list(catalogue()) == [shipped]


def test_a_study_that_no_table_has_is_listed_without_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("apical.study.listing.SHIPPED", tmp_path / "none.json")
    monkeypatch.setattr("apical.study.listing.names", lambda: ("demo",))
    (demo,) = catalogue()
    assert (demo.rows, demo.trials, demo.seconds, demo.quick_seconds) == (12, 40, None, None)


def test_a_study_file_of_ones_own_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "mine"\ntrials = 4\n[[parts]]\nname = "a"\ndata = "xor"\nmodel = "mlp-1"\n'
        '[[parts]]\nname = "b"\ndata = "digits"\nmodel = "mlp-1"\n[[rows]]\nunit = "relu"\n[[rows]]\nunit = "ada"\n'
    )
    one = listing.estimated(path, workers=1)
    assert (one.name, one.rows, one.trials) == (str(path), 4, 16)
    assert one.data == {"xor": "built in", "digits": "built in"}
    assert [part.name for part in one.parts] == ["a", "b"]
    assert one.seconds
    assert one.seconds == pytest.approx(sum(part.seconds or 0.0 for part in one.parts))
