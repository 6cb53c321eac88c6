"""What users add in a module of their own: its label, colour, parameters, title and figure are in the report."""

import csv
import re
from pathlib import Path

import pytest

from apical import study as studies
from apical.errors import InvalidArgumentError
from apical.nn import kinds
from apical.report import figures, gather, register_figure, write
from apical.report.charts import Bar, Bars, Gallery, Palette
from apical.train import metrics

MODULE = """
import numpy as np
import torch

from apical import register_unit
from apical.report import register_figure
from apical.report.charts import Bar, Bars
from apical.train import register_metric


def ripple(x, beta):
    return x + torch.sin(beta * x)


def doubt(log_probabilities, labels):
    return float((1 - log_probabilities.exp().gather(1, labels[:, None])).double().mean())


def doubts(outputs, labels):
    return 1 - np.exp(np.take_along_axis(outputs, labels[:, None], 1)[:, 0].astype(float))


def sizes(results):
    bars = tuple(Bar(r.row.label, r.row.unit, r.best.parameters) for r in results.rows if r.best)
    return Bars("sizes", "Parameters", "The parameters of each row.", "parameters", bars)


register_unit("ripple", function=ripple, parameters={"beta": 0.5}, label="Ripple", color=("#1A2B3C", "#4d5e6f"))
register_metric("doubt", compute=doubt, larger_is_better=False, title="mean doubt", unit="nats", format=".3f",
                per_sample=doubts)
register_figure("Size of the networks", sizes)
"""
STUDY = """
title = "ripples"
imports = ["ripples_of_mine"]
trials = 2

[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"
training = { metric = "doubt" }

[[rows]]
unit = "relu"

[[rows]]
unit = "ripple"
tune.beta = [0.25, 2.0]
"""


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    for module in (kinds, metrics, figures):
        monkeypatch.setattr(module, "_REGISTERED", dict(module._REGISTERED))


@pytest.fixture
def ripples(registries, tmp_path, make, monkeypatch):
    (tmp_path / "ripples_of_mine.py").write_text(MODULE)
    (tmp_path / "ripples.toml").write_text(STUDY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "ripples_of_mine", raising=False)
    study = studies.load(tmp_path / "ripples.toml", trust=True)
    return make(study, tmp_path / "study", lambda row: 0.9 if "ripple" in row else 0.7)


def test_the_users_kind_metric_and_figure_are_in_every_format(ripples, tmp_path: Path) -> None:
    page = write([ripples], tmp_path / "report")
    text = page.read_text(encoding="utf-8")
    assert "test mean doubt (nats)" in text
    assert "beta = 0.25" in text
    assert "--u-ripple:#1a2b3c" in text
    assert "var(--u-ripple)" in text
    assert "Size of the networks" in text
    assert (page.parent / "figures" / "ripples-sizes.svg").is_file()
    for name in ("report.md", "tables/ripples-digits.tex"):
        told = (page.parent / name).read_text(encoding="utf-8")
        assert "mean doubt" in told
        assert "beta = 0.25" in told
    with (page.parent / "tables" / "ripples-digits.csv").open(encoding="utf-8") as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    assert rows["digits/ripple"]["metric"] == "doubt"
    assert rows["digits/ripple"]["parameter"] == "beta = 0.25"


def test_the_users_metric_is_printed_compared_and_tested_by_its_facts(ripples) -> None:
    (table,) = gather([ripples], pictures=False).sections[0].tables
    relu, ripple = table.lines
    assert re.fullmatch(r"0\.\d{3}", ripple.ours.text)
    assert (ripple.best, relu.best) == (True, False)  # less doubt is better
    assert ripple.baseline.test.test == "bootstrap"
    assert ripple.baseline.test.difference < 0 < ripple.baseline.decision.difference


def test_a_colour_stored_in_a_study_serves_where_its_kind_is_not_registered() -> None:
    palette = Palette({"ripple": ("#112233", "#445566"), "relu": ("#000000", "#ffffff")})
    assert palette.colour("ripple") == "#112233"
    assert palette.colour("relu") == Palette().colour("relu")
    assert palette.themed["#112233"] == "var(--u-ripple)"
    assert Palette().variable("ripple").startswith("--u-spare-")


def test_a_figure_is_registered_once_and_may_have_nothing_to_show(registries, fashion) -> None:
    bars = Bars("one", "title", "alt", "axis", (Bar("ReLU", "relu", 1.0),))
    before = figures.galleries("s", fashion)
    register_figure("nothing", lambda _: None)
    register_figure("mine", lambda _: bars)
    register_figure("several", lambda _: Gallery("Several", "caption", (bars,)))
    *others, mine, several = figures.galleries("s", fashion)
    assert others == before
    assert (mine.title, mine.charts[0].name) == ("mine", "s-one")
    assert several.caption == "caption"
    with pytest.raises(InvalidArgumentError, match="there is a figure 'mine' already"):
        register_figure("mine", lambda _: None)
