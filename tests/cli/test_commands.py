"""The command line as users meet it."""

import csv
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from apical import cli
from apical.cli import tree

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def apical(forked: Run, tmp_path: Path) -> Run:
    return partial(forked, "-c", "from apical.cli import main; main()", cwd=tmp_path)


def test_help_maps_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n{job}:\n" in text for job in cli.JOBS)
    assert all(f"\n  {name} " in text for name in cli.COMMANDS)
    assert "Examples:" in text


def test_help_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; from apical import cli; cli.run(['--help']);"
        "sys.exit(any(m in sys.modules for m in ('typer', 'rich', 'torch', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("command", ["train", "predict", "study list"])
def test_the_help_of_a_command_does_not_wait_for_torch(command: str) -> None:
    code = (
        f"import sys; from apical import cli; cli.run({[*command.split(), '--help']}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, "-h"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: apical {command}")
    assert "─" not in text  # one style, plain text
    assert re.search(rf"^  Examples?:\n    apical {command}", text, re.MULTILINE)


def test_every_command_below_another_explains_itself() -> None:
    for command in tree.flat():
        assert command.summary
        assert len(command.summary) <= 75, command.path  # it fits into the help of the command above
        assert command.examples, command.path
        assert all(line.startswith(f"apical {' '.join(command.path)}") for line in command.examples[:1])
        assert all(parameter.help.strip() for parameter in command.parameters), command.path


def test_examples_in_help_name_commands_and_options_that_exist() -> None:
    known = {command.path: {*command.options, "-h", "--help"} for command in tree.flat()}
    for command in tree.flat():
        for example in command.examples:
            words = shlex.split(example, comments=True)[1:]
            path = tuple(words[:2]) if tuple(words[:2]) in known else (words[0],)
            assert {word for word in words if re.match("--?[a-z]", word)} <= known[path], example


def test_unknown_command_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["trian"]) == 2
    assert "unknown command 'trian'; did you mean 'train'? available: demo" in capsys.readouterr().err
    assert cli.run(["xyz"]) == 2
    assert "unknown command 'xyz'; available: demo" in capsys.readouterr().err


def test_unknown_option_and_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["env", "--colour"]) == 2
    assert cli.run(["bench", "nothing"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import apical as package

    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"apical {package.__version__}\n"


def test_env_tells_backend_and_why(apical: Run) -> None:
    result = apical("env")
    assert result.returncode == 0
    assert "backend" in result.stdout
    assert "native: C library" in result.stdout
    forced = apical("env", APICAL_BACKEND="composite")
    assert "composite: APICAL_BACKEND asks for it" in forced.stdout
    wrong = apical("env", APICAL_BACKEND="gpu")
    assert "APICAL_BACKEND is 'gpu'" in wrong.stdout


def test_env_works_bare() -> None:
    code = (
        "import sys, runpy\n"
        "for name in ('typer', 'rich', 'numpy', 'torch'): sys.modules[name] = None\n"
        "runpy.run_module('apical.env', run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "torch is not installed" in result.stdout


def test_without_the_lab_the_install_command_is_shown() -> None:
    code = "import sys; sys.modules['typer'] = None; from apical.cli import main; main(['demo'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == (
        "apical: the commands belong to the laboratory, which is not installed: pip install 'apical[lab]' "
        "(python -m apical.env works without it)\n"
    )


def test_demo_prints_and_draws(apical: Run, tmp_path: Path) -> None:
    result = apical("demo", "--no-train", "-o", str(tmp_path / "pictures"))
    assert result.returncode == 0, result.stderr
    assert "computes XOR" in result.stdout
    assert (tmp_path / "pictures" / "ada.svg").read_text().startswith("<?xml")


def test_bench_writes_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from apical.bench import activations

    monkeypatch.setattr(activations, "SHAPES", ((4, 5), (2, 3, 4, 4)))
    file = tmp_path / "table.csv"
    assert cli.run(["bench", "activations", "--rounds", "2", "--csv", str(file)]) == 0
    assert "printed formula" in capsys.readouterr().out
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 2 * 2 * len(activations.candidates(3))
    assert {row["candidate"] for row in rows} == set(activations.candidates(3))
    assert all(float(row["ratio"]) > 0 for row in rows)


def test_bench_refuses_a_missing_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.run(["bench", "activations", "--csv", str(tmp_path / "none" / "x.csv")]) == 1
    assert "does not exist: create it first" in capsys.readouterr().err


def test_debug_shows_the_traceback(apical: Run, tmp_path: Path) -> None:
    result = apical("--debug", "bench", "activations", "--csv", str(tmp_path / "none" / "x.csv"))
    assert "Traceback" in result.stderr


def test_demo_says_where_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert cli.run(["demo", "-o", str(file)]) == 1
    assert "but cannot be created (File exists)" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error():
    command = [sys.executable, "-c", "from apical.cli import main; main(['--help'])"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "apical", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip() == cli.overview()
