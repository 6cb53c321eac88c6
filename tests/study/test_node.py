"""What a node of a cluster does with a job: a process that knows nothing of the driver but its message."""

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apical import study, trust
from apical.study.directory import open_for
from apical.study.engines.base import Context, Job
from apical.study.engines.node import Place
from apical.study.plan import plan
from apical.train import Execution

NODE = """
import pickle, sys
from pathlib import Path
from apical.study.engines.node import perform
place, job = pickle.loads(Path(sys.argv[1]).read_bytes())
assert "torch" not in sys.modules
outcomes = perform(place, job)
import json
threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 0
print(json.dumps([[o.status, o.reason] for o in outcomes]), threads)
"""


@pytest.fixture
def place(make_tiny: Any, tmp_path: Path) -> Place:
    """What a driver with one thread a trial tells of itself."""
    return Place.of_driver(context(make_tiny(epochs=1), tmp_path / "s"), threads=1)


def context(what: study.Study, folder: Path, imports: tuple[str, ...] = ()) -> Context:
    open_for(what, folder, None).record_command()
    return Context(directory=folder, execution=Execution(threads=1), imports=imports)


def perform(place: Place, what: study.Study, tmp_path: Path) -> tuple[list[list[str]], int]:
    """The outcomes of the first trial, and torch's threads, on a node that starts in another folder."""
    message = tmp_path / "message"
    message.write_bytes(pickle.dumps((place, pickle.dumps(Job("train", plan(what).tuning[:1])))))
    said = subprocess.run(
        [sys.executable, "-c", NODE, str(message)], cwd="/", capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    outcomes, _, threads = said.stdout.rpartition(" ")
    return json.loads(outcomes), int(threads)


def test_a_node_does_what_it_is_told_with_the_threads_of_a_trial(place: Place, make_tiny: Any, tmp_path: Path) -> None:
    assert perform(place, make_tiny(epochs=1), tmp_path) == ([["done", ""]], 1)
    assert len(list(tmp_path.glob("s/trials/*/result.json"))) == 1


def test_a_node_that_does_not_see_the_directory_says_so(place: Place, make_tiny: Any, tmp_path: Path) -> None:
    elsewhere = replace(place, directory=tmp_path / "elsewhere")
    ((status, reason),), _ = perform(elsewhere, make_tiny(epochs=1), tmp_path)
    assert status == "fatal"
    assert f"does not see the study directory {tmp_path / 'elsewhere'}: put it on a file system that all" in reason


def test_another_directory_of_the_same_study_is_not_taken_for_the_drivers(
    place: Place, make_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["apical", "study", "run", "on another day"])
    open_for(make_tiny(epochs=1), tmp_path / "other", None).record_command()
    assert place.seen()
    assert not replace(place, directory=tmp_path / "other").seen()


def test_the_log_may_grow_while_nodes_work(place: Place, make_tiny: Any, tmp_path: Path) -> None:
    open_for(make_tiny(epochs=1), tmp_path / "s", None).record_command()
    assert place.seen()


def test_a_node_with_another_apical_says_so(place: Place, make_tiny: Any, tmp_path: Path) -> None:
    ((status, reason),), _ = perform(replace(place, version="0.0.1"), make_tiny(epochs=1), tmp_path)
    assert status == "fatal"
    assert "and the driver has 0.0.1: install the same version on every node" in reason


def test_the_users_modules_and_data_are_found_as_the_driver_finds_them(
    make_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("import apical\napical.models.register('mine', lambda unit, **_: None)\n")
    images, labels = np.arange(40 * 64, dtype=np.float32).reshape(40, 8, 8), np.arange(40) % 2
    np.savez(tmp_path / "mine.npz", x=images, y=labels)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    trust.grant("mine")
    tiny = make_tiny(epochs=1)
    part = tiny.parts[0].model_copy(update={"data": "mine.npz"})
    what = tiny.model_copy(update={"parts": (part,), "imports": ("mine",)})
    place = Place.of_driver(context(what, tmp_path / "s", ("mine",)), threads=1)
    assert perform(place, what, tmp_path) == ([["done", ""]], 1)
