"""What users add in a module of their own, which a study imports: it is planned, run and read as what is built in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from apical.errors import StudyError
from apical.study import load
from apical.study.plan import plan

Write = Callable[..., Path]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Write a module that the study can import. Names are registered for good: each test takes its own."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)

    return write


SWELL = """
import torch
from apical import register_unit
from apical.nn import kinds

def swell(x, beta, shape):
    return torch.nn.functional.softplus(x * beta) if shape == "soft" else torch.relu(x * beta)

register_unit(
    "swell", function=swell, label="Swell", group="leaky",
    parameters={
        "beta": kinds.Parameter(0.5, above=0.0, learnable=True, tune=(0.5, 2.0)),
        "shape": kinds.Parameter("soft", choices=("soft", "hard")),
    },
)
"""
SWELLING = """
title = "swelling"
imports = ["swelling_units"]

[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"

[[rows]]
unit = "relu"

[[rows]]
unit = "swell"

[[rows]]
unit = "swell(beta=1)"

[[rows]]
unit = "swell"
name = "tuned"
tune = { shape = ["soft", "hard"], beta = [1, "learn"] }
"""


def test_parameters_of_ones_own_units_are_tuned(write: Write, module: Callable[[str, str], None]) -> None:
    module("swelling_units", SWELL)
    study = load(write(SWELLING))
    settings = {row.name: plan(study).settings(row) for row in study.rows}
    assert settings["swell"] == ("swell", "swell(beta=2)"), "the values that its kind declares"
    assert settings["swell-beta-1"] == ("swell(beta=1)",)
    assert settings["tuned"] == (
        "swell(beta=1)", "swell(beta=1,shape=hard)", "swell(beta=learn)", "swell(beta=learn,shape=hard)"
    )  # fmt: skip
    assert [(row.label, row.group) for row in study.rows[:3]] == [
        ("ReLU", "standard"), ("Swell", "leaky"), ("Swell (beta=1)", "leaky")
    ]  # fmt: skip
    common = load(write(SWELLING.replace('"swelling"', '"swelling"\ntune.beta = [3]', 1)))
    assert plan(common).settings("digits/swell") == ("swell(beta=3)",)
    for good, wrong, said in (("hard", "wide", "one of soft, hard"), ("[1, ", "[0, ", "must be greater than 0")):
        with pytest.raises(StudyError, match=said):
            load(write(SWELLING.replace(good, wrong)))
