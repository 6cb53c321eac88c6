"""`apical convert` shows the report of a network named by its factory, and writes nothing."""

from pathlib import Path

import pytest

from apical.cli import run

NETWORK = """
from torch import nn

def factory():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2))

def of_width(width):
    return nn.Linear(width, width)

LIST = [1]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "convert_me.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_report_is_shown_and_nothing_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path for path in folder.rglob("*") if "__pycache__" not in path.parts}
    assert run(["convert", "convert_me:factory", "--unit", "pynada(alpha=0.3,c=1)", "--input", "16,4"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 of 2 activations converted to pynada(alpha=0.3,c=1)\n")
    assert "Linear + ReLU  PyramidalLinear" in shown
    assert "% inactive" in shown
    assert {path for path in folder.rglob("*") if "__pycache__" not in path.parts} == before


def test_only_and_kinds_choose(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "convert_me:factory", "--only", "^3$"]) == 0
    assert run(["convert", "convert_me:factory", "--kinds", "gelu, silu"]) == 0
    assert capsys.readouterr().out.count("1 of 1 activation converted to ada") == 2


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "--help"]) == 0
    assert "apical convert mynetworks:resnet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["convert_me"], "unknown network 'convert_me': write package.module:factory"),
        (["nowhere.net:make"], "'nowhere.net:make' cannot be imported (No module named 'nowhere')"),
        (["convert_me:make"], "convert_me has no function or class 'make'"),
        (["convert_me:LIST"], "convert_me has no function or class 'LIST'"),
        (["convert_me:factory", "--input", "4x4"], "--input is '4x4', but must be a shape like"),
        (["convert_me:factory", "--only", "("], "which is not a regular expression"),
        (["convert_me:factory", "--only", "layer1"], "filter_fn accepts none of the activations"),
        (["convert_me:factory", "--unit", "pynad"], "did you mean 'pynada'"),
        (["convert_me:factory", "--unit", "pynada", "--keep-function"], "3 is gelu, but the basal activation"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", *arguments]) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_factory_that_fails_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "convert_me:of_width"]) == 1
    error = capsys.readouterr().err
    assert "convert_me:of_width cannot be called without arguments (TypeError" in error
    assert len(error.splitlines()) == 1
