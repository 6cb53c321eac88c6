"""Studies in files that tests write."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apical.study import Part, Row, Study

SMALL = """
title = "small"

[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"

[[rows]]
unit = "relu"

[[rows]]
unit = "ada"
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a study file and give its path."""

    def write_(text: str = SMALL, name: str = "mine.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_


# --- studies that run in seconds, and processes that run them ---------------------------------------------------------


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for each test: the index lies there."""
    monkeypatch.setenv("APICAL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def make_tiny(*, epochs: int = 2, trials: int = 2, alphas: tuple[float, ...] = (0.3, 1.0), stack: int = 1) -> Study:
    part = Part(
        name="digits", title="digits", data="digits", model="mlp-1", dims={"hidden": 8},
        training={"epochs": epochs, "batch": 256, "learning_rate": 0.01},
    )  # fmt: skip
    rows = (
        Row(key="digits/relu", part="digits", label="ReLU", unit="relu"),
        Row(key="digits/ada", part="digits", label="ADA", unit="ada", tune={"alpha": alphas}),
    )
    return Study(name="tiny", title="tiny", parts=(part,), rows=rows, trials=trials, stack=stack)


@pytest.fixture(name="make_tiny", scope="session")
def _make_tiny() -> Callable[..., Study]:
    return make_tiny


@pytest.fixture
def tiny() -> Study:
    """Two rows, one of them tuned, on real digits: five trials of a fraction of a second."""
    return make_tiny()


@pytest.fixture
def python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start programs in new processes with one thread each; they end with the test."""
    started = []

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        started.append(subprocess.Popen(command, text=True, env=environment, **pipes))  # type: ignore[call-overload]
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def numbers(directory: Path) -> dict[str, Any]:
    """All that must not depend on who trained when: histories, validation, test answers, by trial."""
    from apical.study import read

    results = read(directory)
    assert results.finished, results.missing
    assert not results.states["failed"]
    trials = {t.digest: t for row in results.rows for t in (*(t for s in row.settings for t in s.trials), *row.trials)}
    chosen = {row.row.key: (row.chosen, row.best.digest if row.best else None) for row in results.rows}
    return {"chosen": chosen} | {
        digest: (t.state, t.history, dict(t.validation), t.test and t.outputs().outputs.tobytes())
        for digest, t in trials.items()
    }


@pytest.fixture(name="numbers", scope="session")
def _numbers() -> Callable[[Path], dict[str, Any]]:
    return numbers
