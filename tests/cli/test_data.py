"""`apical data`: what it prints, and how it fails."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apical.cli import run
from apical.data.registry import RECIPES
from apical.data.sets import fashion_mnist


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("APICAL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def moroco(tmp_path) -> Path:
    for part in ("train", "validation", "test"):
        folder = tmp_path / "MOROCO" / "preprocessed" / part
        folder.mkdir(parents=True)
        (folder / "samples.txt").write_text("1\tuna $x$ .\n2\tdouă .\n", encoding="utf-8")
        (folder / "dialect_labels.txt").write_text("1\t1\n2\t2\n")
    return tmp_path / "MOROCO"


def test_prepare_verify_list_show(moroco, tmp_path, capsys):
    assert run(["data", "prepare", "moroco", "--root", str(moroco), "--partial"]) == 0
    said = capsys.readouterr().out
    assert "2 train, 2 validation, 2 test; partial (6 of 33,564)" in said
    assert run(["data", "verify", "moroco", "--partial"]) == 0
    assert "moroco is intact in" in capsys.readouterr().out
    assert run(["data", "list"]) == 0
    said = capsys.readouterr().out
    assert "partial (6 of 33,564)" in said
    assert "not prepared" in said
    assert "built in" in said
    assert "APICAL_HOME" in said
    page = tmp_path / "page.png"
    assert run(["data", "show", "moroco", "--partial", "-o", str(page)]) == 0
    assert page.read_bytes().startswith(b"\x89PNG")
    assert "2 samples" in capsys.readouterr().out


def test_show_draws_corruptions_and_own_data(tmp_path, capsys):
    page = tmp_path / "page.svg"
    noise = ["--corrupt", "input-noise(sigma=0.3)", "--corrupt", "label-noise(fraction=0.3)"]
    assert run(["data", "show", "digits", "--split", "test", "--count", "6", *noise, "-o", str(page)]) == 0
    assert "<svg" in page.read_text()
    np.savez(tmp_path / "own.npz", x=np.zeros((20, 4)), y=np.arange(20) % 2)
    assert run(["data", "show", str(tmp_path / "own.npz"), "-o", str(tmp_path / "own.png")]) == 0


def test_describe_and_prepare_of_what_is_made_in_memory(capsys):
    assert run(["data", "describe", "crema-d"]) == 0
    assert "ODbL" in capsys.readouterr().out
    assert run(["data", "prepare", "xor"]) == 0
    assert run(["data", "verify", "xor"]) == 0
    assert capsys.readouterr().out.count("made in memory") == 2


def test_the_list_says_where_files_were_found(home, monkeypatch, tmp_path, capsys):
    recipe = RECIPES["fashion-mnist"]
    monkeypatch.setitem(RECIPES, "fashion-mnist", replace(recipe, system_folders=(tmp_path / "packaged",)))
    assert run(["data", "list"]) == 0
    assert "fashion-mnist: its files are in" not in capsys.readouterr().out
    (tmp_path / "packaged").mkdir()
    for name in fashion_mnist.FILES:
        (tmp_path / "packaged" / name).touch()
    assert run(["data", "list"]) == 0
    assert f"fashion-mnist: its files are in {tmp_path / 'packaged'} and will be used" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        ["data", "prepare", "digits"],
        ["data", "verify", "digits"],
        ["data", "show", "digits", "-o", "page.png"],
        ["train", "--data", "digits", "--model", "mlp-1"],
        ["study", "run", "demo"],
    ],
    ids=" ".join,
)
def test_a_root_that_is_not_there_is_an_error_though_the_data_is_ready(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run([*command, "--root", "nowhere"]) == 1
    assert "--root is nowhere, but there is no such folder or archive" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["prepare", "moroco"], "https://github.com/butnaruandrei/MOROCO"),
        (["prepare", "nothing"], "unknown data set 'nothing'"),
        (["verify", "moroco"], "apical data prepare moroco"),
        (["show", "digits", "-o", "/nowhere/page.png"], "does not exist"),
        (["show", "digits", "-o", "page.xyz"], "cannot write page.xyz"),
        (["show", "digits", "--split", "exam", "-o", "page.png"], "train, validation, test"),
        (["show", "digits", "--corrupt", "rain", "-o", "page.png"], "unknown corruption 'rain'"),
    ],
)
def test_errors_are_one_sentence(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["data", *arguments]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("apical: ")
    assert said.count("\n") == 1
    assert not list(tmp_path.glob("page*"))
