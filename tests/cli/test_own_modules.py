"""`--import`: units, networks, data sets and metrics of a module in the folder one works in; and what lists them."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from apical import cli, models
from apical.models import registry
from apical.nn import Unit

MINE = """
import numpy as np
import torch
from torch import nn
import apical
from apical import train

apical.register_unit(
    "bump", function=lambda x, width: torch.exp(-((x / width) ** 2)), parameters={"width": 1.0}, label="Bump"
)


def small(unit, *, inputs=2, outputs=2):
    '''Eight neurons of mine.'''
    layers = unit.layers()
    return nn.Sequential(nn.Flatten(), layers.linear(inputs, 8), nn.Linear(8, outputs))


def points():
    x = np.random.default_rng(0).normal(size=(90, 2)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}


apical.models.register("small", small)
apical.data.register("points", points, shape=(2,), classes=2)
train.register_metric(
    name="hits", title="Hits", larger_is_better=True, task="classification",
    compute=lambda outputs, targets: float((outputs.argmax(1) == targets).float().mean()),
)
"""


@pytest.fixture
def apical(forked: Callable[..., subprocess.CompletedProcess[str]], folder: Path) -> Callable[..., str]:
    """What these commands print in one process that works in the folder; each has to end with 0."""

    def run(*commands: str) -> str:
        each = [command.split() for command in commands]
        code = f"from apical import cli\nfor words in {each!r}: assert cli.run(words) == 0, words"
        done = forked("-c", code, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    np.savez(tmp_path / "new.npz", x=np.array([[3.0, 0.0], [-3.0, 0.0]]))
    return tmp_path


def test_a_network_unit_data_set_and_metric_of_ones_own_are_trained_and_predict(apical: Callable[..., str]) -> None:
    small = "--data points --model small --unit bump(width=2) --set metric=hits --epochs 3 --lr 0.05 --threads 1"
    text = apical(f"train {small} -o run --import mine")
    assert "test hits" in text
    text = apical("predict run new.npz --import mine")
    assert [line.split()[0] for line in text.splitlines()] == ["sample", "new.npz[0]", "new.npz[1]"]


@pytest.mark.parametrize(
    ("trial", "what"),
    [
        ("--data digits --model mlp-1 --unit bump(width=2)", "unit 'bump'"),
        ("--data digits --model mlp-1 --unit pyramidal(basal=relu,apical=bump)", "unit 'bump'"),
        ("--data points --model small", "network 'small'"),
        ("--data digits --model mlp-1 --set metric=hits", "metric 'hits'"),
    ],
)
def test_a_trial_of_ones_own_asks_for_the_module_and_is_not_damaged(
    apical: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    trial: str, what: str,
) -> None:  # fmt: skip
    apical(f"train {trial} -o run --epochs 1 --threads 1 --no-test --import mine")
    monkeypatch.chdir(folder)
    said = (
        f" names the {what}, which is not known here: if a module of yours registers it, name the module with --import"
    )
    commands = ["predict run new.npz", "attack run", "train --resume run"]
    for command in commands:
        if "resume" in command:
            (folder / "run" / "result.json").unlink()
        assert cli.run(command.split()) == 1
        err = capsys.readouterr().err
        assert said in err, command
        assert err.count("\n") == 1


def test_a_data_set_of_ones_own_is_asked_for_where_it_is_needed(
    apical: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apical("train --data points --model mlp-1 -o run --epochs 1 --threads 1 --no-test --import mine")
    monkeypatch.chdir(folder)
    assert cli.run(["predict", "run", "new.npz"]) == 0, "the data is not needed"
    for command in ("train --resume run", "attack run"):
        assert cli.run(command.split()) == 1
        assert "names the data set or folder 'points', which is not known here" in capsys.readouterr().err


def test_units_and_networks_of_ones_own_are_listed_converted_and_measured(apical: Callable[..., str]) -> None:
    text = apical(
        "units --import mine",
        "models --import mine",
        "convert small --unit bump --import mine",
        "convert mlp-1 --unit bump",  # the same process has imported it
    )
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line]
    assert ["bump", "Bump          width=1 or learn"] in lines
    assert ["small", "Eight", "neurons", "of", "mine.", "inputs=2,", "outputs=2"] in [
        x.split() for x in text.splitlines()
    ]
    assert text.count("1 of 1") == 2


def test_bench_measures_units(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from apical.bench import activations

    monkeypatch.setattr(activations, "SHAPES", ((2, 3, 4, 4),))
    units = ["--unit", "gelu", "--unit", "ada(alpha=learn,scope=channel)", "--import", "json"]
    assert cli.run(["bench", "activations", "--rounds", "1", *units]) == 0
    text = capsys.readouterr().out
    assert text.count("gelu") == text.count("ada(alpha=learn,scope=channel)") == 2
    assert " .. " not in text, "one round has no interval"
    assert "an interval needs 6 rounds" in text
    assert cli.run(["bench", "activations", "--rounds", "1", "--unit", "pynada"]) == 1
    assert "'pynada' is pyramidal" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "convert mlp-1", "predict run x.png", "bench activations"])
def test_a_module_that_cannot_be_imported_is_one_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command.split(), "--import", "no_such_module"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("apical: --import no_such_module: there is no module of that name: name one that is")
    assert err.count("\n") == 1


def test_a_module_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_units.py").write_text("import apical\napical.register_unit('ada', basal='relu', apical='relu')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli.run(["units", "--import", "broken_units"]) == 1
    err = capsys.readouterr().err
    assert "was found but failed while it was imported (InvalidArgumentError: there is a unit 'ada' already" in err
    assert err.endswith(", broken_units.py:2)\n")


def test_there_is_a_line_for_each_unit_and_each_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["units"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(Unit.kinds())
    assert "leaky_ada     leaky ADA     alpha=1 or learn, c=0, leak=0.01, floor=on, noise=0, noise_in=alpha" in lines
    assert "pynswish      PyNSwish      relu + swish: beta=learn (from 1)" in lines
    assert cli.run(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(models.list())
    assert lines[0].split("  ")[0] == "mlp-1"
    assert lines[0].endswith("  inputs=784, hidden=100, outputs=10")


def test_the_page_of_networks_has_the_dimensions_that_models_lists() -> None:
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", page, re.MULTILINE))
    assert list(rows) == list(models.list())
    above: dict[str, str] = {}
    for name, text in rows.items():
        dims = {key: value.strip('"') for key, value in re.findall(r"`(\w+)=(.+?)`", text)}
        less = re.findall(r"without `(\w+)`", text)
        dims = {key: value for key, value in above.items() if key not in less} | dims if "the same" in text else dims
        parameters = registry.find(name).parameters
        assert dims == {key: str(p.default) for key, p in parameters.items() if key != "unit"}, name
        above = dims


def test_units_are_listed_without_torch() -> None:
    code = "import sys; from apical import cli; cli.run(['units']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
