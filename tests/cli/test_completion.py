"""Completion files: what they offer is what there is. bash is asked itself; the others' files are read."""

import subprocess

import pytest

from apical import cli, models
from apical.cli import completion, tree

BASH = completion.bash()


def offered(*words: str) -> set[str]:
    """What bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in ("apical", *words))
    ask = f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _apical; printf "%s\\n" "${{COMPREPLY[@]}}"'
    code = f"{BASH}\n{ask}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], {*cli.COMMANDS, "--help", "--version"}),
        (["st"], {"study"}),
        (["data", "pre"], {"prepare"}),
        (["data", "prepare", "fash"], {"fashion-mnist"}),
        (["train", "--unit", "leaky_"], {"leaky_relu", "leaky_ada", "leaky_pynada"}),
        (["train", "--model", ""], set(models.list())),
        (["train", "--epochs", "3", "--un"], {"--unit"}),
        (["study", "run", "--quick", "table-fash"], {"table-fashion-mlp", "table-fashion-cnn"}),
        (["study", "merge", "data", "--he"], {"--help"}),
        (["completion", "f"], {"fish"}),
        (["nothing", "--w"], set()),
    ],
)
def test_bash_offers(words: list[str], expected: set[str]) -> None:
    assert offered(*words) == expected


def test_every_option_of_every_command_is_offered() -> None:
    for command in tree.flat():
        assert {*command.options, "--help"} <= offered(*command.path, "-"), command.path


def test_the_file_for_fish_describes_every_command_and_option() -> None:
    lines = completion.fish().splitlines()
    for command in tree.flat():
        assert any(f"-a {command.path[-1]} -d '" in line for line in lines), command.path
        for option in command.options if not command.commands else ():
            flag = f"-l {option[2:]} " if option.startswith("--") else f"-s {option[1:]} "
            where = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.path)
            assert any(f"-n '{where}' {flag}" in line for line in lines), option


def test_the_command_prints_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", "zsh"]) == 0
    assert capsys.readouterr().out == completion.zsh() + "\n"
    assert completion.zsh().endswith(completion.bash())
    assert cli.run(["completion", "tcsh"]) == 2
