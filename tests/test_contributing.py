"""docs/contributing.md: its diffs apply and do what the page says; its words are defined once."""

import ast
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from apical.train import TrialSpec

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
DIFFS = {
    re.search(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE)[1]: text
    for text in re.findall(r"^```diff\n(.*?)^```$", PAGE, re.M | re.S)
}
STUDY = re.search(r'^```toml title="mine.toml"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)[1]
OUTSIDE = [name for name in DIFFS if "/" not in name]
APICAL = Path(sys.executable).with_name("apical")


def apply(name: str, folder: Path) -> None:
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, input=DIFFS[name], text=True, check=True)


@pytest.fixture(scope="module")
def run(forked: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., None]:
    """Runs `apical ARGUMENTS` in a folder; it has to end with 0."""

    def finish(folder: Path, *arguments: str) -> None:
        done = forked(APICAL, *arguments, cwd=folder, APICAL_HOME=str(folder / "home"), GIT_DIR="/nowhere")
        assert done.returncode == 0, done.stdout + done.stderr

    return finish


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def reported(run: Callable[..., None], folder: Path, text: str, *options: str) -> tuple[str, list[dict[str, str]]]:
    """The page and the table of a study that was run in `folder`."""
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    run(folder, "study", "run", "mine.toml", "--trust", "--workers", "1", *options)
    run(folder, "report", "mine", "-o", "report")
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    return page, table(folder / "report" / "tables" / "mine-rings.csv")


@pytest.fixture(scope="module")
def everything(
    run: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, list[dict[str, str]]]:
    """The study of the page, with every extension, run and reported."""
    folder = tmp_path_factory.mktemp("extensions")
    for name in OUTSIDE:
        apply(name, folder)
    shown = reported(run, folder, STUDY, "--engine", "inline")
    run(folder, "study", "export", "mine", "-o", "trials.csv")
    return folder, *shown


def test_the_page_shows_each_kind_of_extension() -> None:
    calls = "register_unit models.register data.register register_metric register_loss register_engine register_figure"
    written = "".join(DIFFS.values())
    assert [call for call in calls.split() if f"{call}(" not in written] == []
    assert [name for name in DIFFS if name not in OUTSIDE] == ["src/apical/train/spec.py"]


def test_an_activation_is_tuned_and_stands_in_the_report_with_label_colour_and_parameter(everything) -> None:
    folder, page, rows = everything
    assert [row["label"] for row in rows] == ["ReLU", "Bump", "Bump, narrow"]
    units = {row["unit"] for row in table(folder / "trials.csv")}
    assert units == {"relu", *(f"bump(width={w})" for w in (0.5, 2, 0.1, 0.2))}
    assert [row["parameter"] != "" for row in rows] == [False, True, True]
    assert "#7b1fa2" in page.lower()
    assert "#7b1fa2" in (folder / "studies" / "mine" / "study.json").read_text()


def test_a_metric_selects_in_its_direction_and_has_its_column(everything) -> None:
    folder, page, rows = everything
    assert "mean entropy" in page
    assert "nats" in page
    assert {row["metric"] for row in rows} == {"entropy"}
    best = min(rows, key=lambda row: float(row["ours"]))
    assert [row["best_of_group"] for row in rows] == [str(row is best) for row in rows]
    for row in rows:
        tried = [trial for trial in table(folder / "trials.csv") if trial["row"] == row["row"]]
        chosen = min(tried, key=lambda trial: float(trial["validation entropy"]))
        assert chosen["digest"] == row["best_trial"]


def test_network_data_loss_and_engine_are_what_the_trials_say(everything) -> None:
    folder, page, _ = everything
    for trial in (folder / "studies" / "mine" / "trials").iterdir():
        spec = json.loads((trial / "spec.json").read_text())
        assert (spec["data"], spec["model"], spec["loss"], spec["metric"]) == ("rings", "funnel", "focal", "entropy")
    assert "--engine inline" in page


def test_a_figure_is_drawn(everything) -> None:
    folder, page, _ = everything
    assert "Size of the networks" in page
    assert (folder / "report" / "figures" / "mine-size.svg").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTSIDE)
def test_each_extension_works_alone(name: str, run: Callable[..., None], tmp_path: Path) -> None:
    """With one of them in `imports`, and digits, mlp-1 and the usual loss for the rest."""
    apply(name, tmp_path)
    module = name.removesuffix(".py")
    text = re.sub(r"^imports = .*$", f'imports = ["{module}"]', STUDY, flags=re.MULTILINE)
    if module != "rings":
        text = text.replace('data = "rings"', 'data = "digits"')
    if module != "funnel":
        text = text.replace('model = "funnel"\ndims = { width = 24 }', 'model = "mlp-1"')
    if module != "focal":
        text = text.replace(', loss = "focal", metric = "entropy"', "")
    if module != "bump":
        text = text[: text.index('[[rows]]\nunit = "bump"')]
    options = ("--engine", "inline") if module == "inline" else ()
    page, rows = reported(run, tmp_path, text, *options)
    assert len(rows) == (3 if module == "bump" else 1)
    assert ("Size of the networks" in page) == (module == "size")


def test_a_protocol_option_is_one_change_and_leaves_digests_alone(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    apply("src/apical/train/spec.py", tmp_path)
    code = (
        "from apical.train import TrialSpec; from apical import study;"
        "old, new = TrialSpec(data='digits', model='mlp-1'), TrialSpec(data='digits', model='mlp-1', warmup=4);"
        "part = study.load('mine.toml').parts[0];"
        "print(old.digest, new.digest != old.digest, [new.rate(e) / old.rate(e) for e in range(5)], part.training)"
    )
    (tmp_path / "mine.toml").write_text(
        'title = "t"\ntraining.warmup = 4\n[[parts]]\nname = "d"\ndata = "digits"\nmodel = "mlp-1"\n'
        '[[rows]]\nunit = "relu"\n'
    )
    own = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=True).stdout
    digest = TrialSpec(data="digits", model="mlp-1").digest
    assert printed.split(" ", 1) == [digest, "True [0.25, 0.5, 0.75, 1.0, 1.0] {'warmup': 4}\n"]


def test_the_glossary_is_short_and_each_of_its_classes_is_defined_once() -> None:
    section = PAGE.split("## Glossary")[1].split("\n## ")[0]
    words = re.findall(r"^\| ((?:`\w+`(?:, )?)+|\w+) \|", section, re.MULTILINE)[1:]
    assert 10 < len(words) <= 20
    classes = Counter(
        node.name
        for path in (ROOT / "src" / "apical").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    named = re.findall(r"`(\w+)`", " ".join(words))
    assert {name: classes[name] for name in named if classes[name] != 1} == {}
