"""Whatever a study file holds, it is a study or a StudyError that says where it is wrong."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apical.errors import StudyError
from apical.study import Study, load
from apical.study.config.loading import checked
from apical.study.config.toml import Document, changed, shipped
from apical.study.plan import plan

T = TypeVar("T")

TEXTS = {name: path.read_text(encoding="utf-8") for name, path in shipped().items()}
SNIPPETS = st.sampled_from(
    ["=", "[", "]", "{", "}", '"', "'", "\n", "#", "\x00", "é", "1e400", "-1", "nan", "inf", "true", "[[rows]]\n",
     "[quick]\n", "tune.c = [2]\n", "x = 1979-05-27\n", "9" * 400, "extends = 'demo'\n", "only_rows = []\n"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just(10**400), st.dates(),
    st.sampled_from(["learn", "relu", "ada(alpha=1)", "ada(alpha=1e999)", "mlp-1", "digits", "os:getcwd", ":", "..a:b",
                     "builtins:print", "*", "imbalance(keep=0.5)"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
few = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def made_or_said(make: Callable[[], T]) -> T | None:
    """What `make` gives; None where it says in a StudyError why not."""
    try:
        return make()
    except StudyError as error:
        said = str(error)
    assert said.strip()
    return None


def is_a_study_or_says_why(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")
    study = made_or_said(lambda: load(path))
    if study is not None:
        assert Study.from_dict(study.to_dict()) == study
        assert plan(study).tuning


@few
@given(st.sampled_from([*TEXTS]), st.integers(0, 10**6), st.integers(0, 12), SNIPPETS)
def test_damaged_text(tmp_path: Path, name: str, at: int, cut: int, snippet: str) -> None:
    text = TEXTS[name]
    at %= len(text)
    is_a_study_or_says_why(text[:at] + snippet + text[at + cut :], tmp_path / "mine.toml")


@few
@given(st.sampled_from(["demo", "logic", "table-imagenet", "imbalance"]), st.data())
def test_damaged_values(name: str, data: st.DataObject) -> None:
    values = tomllib.loads(TEXTS[name])
    target: Any = values
    while True:
        steps = sorted(target) if isinstance(target, dict) else range(len(target))
        step = data.draw(st.sampled_from(steps))
        if not isinstance(target[step], dict | list) or not target[step] or data.draw(st.booleans()):
            break
        target = target[step]
    target[step] = data.draw(VALUES)
    made_or_said(lambda: checked(Document(values)))


@few
@given(st.lists(st.text(max_size=12) | st.sampled_from(["rows.ada.tune=1", "parts.digits=2", "parts=3", "quick=1"])))
def test_any_changes_on_the_command_line(sets: list[str]) -> None:
    document = Document(tomllib.loads(TEXTS["demo"]))
    made_or_said(lambda: checked(changed(document, sets)))


@pytest.mark.parametrize("text", ["\ufeff", "a" * 100, "[" * 5_000, '"' * 7, "x = 0x" + "f" * 9_000])
def test_texts_that_are_no_toml(text: str, tmp_path: Path) -> None:
    is_a_study_or_says_why(text, tmp_path / "mine.toml")
