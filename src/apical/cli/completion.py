"""`apical completion`: a file for the shell, made once, so that completing a word starts no Python."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated

import typer

from apical.cli import echo
from apical.cli.options import command, shown
from apical.cli.tree import Command, commands, flat

app = command()


class Shell(StrEnum):
    """The shells there is a file for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@app.command(
    no_args_is_help=True,
    epilog=shown(
        "apical completion bash > ~/.local/share/bash-completion/completions/apical",
        "apical completion zsh > ~/.apical-completion   # and in ~/.zshrc: source ~/.apical-completion",
        "apical completion fish > ~/.config/fish/completions/apical.fish",
    ),
)
def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script for your shell: commands, options and names.

    Put it where your shell looks for such files and open a new shell; do so again after an update of apical. The names
    of units, networks, data sets and studies are completed too.
    """
    echo({Shell.bash: bash, Shell.zsh: zsh, Shell.fish: fish}[shell]())


def values() -> dict[str, tuple[str, ...]]:
    """What may follow an option, and what a command (by its path) may take."""
    from apical import models, study  # noqa: PLC0415  they need torch, and `--help` does not
    from apical.data.registry import names  # noqa: PLC0415
    from apical.nn import Unit  # noqa: PLC0415
    from apical.study.engines.base import ENGINES  # noqa: PLC0415

    sets, studies = tuple(names()), tuple(study.names())
    words = {
        "--unit": Unit.kinds(),
        "--model": tuple(models.list()),
        "--data": sets,
        "--device": ("auto", "cpu", "cuda", "mps"),
        "--precision": ("32", "bf16-mixed", "16-mixed"),
        "--engine": tuple(ENGINES),
        "study run": studies,
        "report": studies,
        "completion": tuple(Shell),
    }
    return words | {f"data {name}": sets for name in ("prepare", "verify", "describe", "show")}


def bash() -> str:
    """For bash, and through its bashcompinit for zsh."""
    known, every = values(), tuple(flat())
    steps = "|".join(_quoted(f"{' '.join(c.path[:-1])} {c.path[-1]}") for c in every)
    after = _cases(((f"{option})", words) for option, words in known.items() if option.startswith("--")), "; return")
    below = _cases((f"{_quoted(' '.join(c.path))})", _words(c, known)) for c in every)
    top = " ".join([*(c.path[0] for c in commands()), "--help", "--version"])
    return f"""\
# Completion of apical for bash; see apical completion --help.
_apical() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" path="" words="" word i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        case "$path $word" in
            {steps}) path="${{path:+$path }}$word" ;;
        esac
    done
    case "$previous" in
{after}
    esac
    case "$path" in
        "") words="{top}" ;;
{below}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _apical apical"""


def zsh() -> str:
    """The bash file, by zsh's own bridge."""
    return f"autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n{bash()}"


def fish() -> str:
    """For fish, with a sentence beside each word."""
    known = values()
    lines = ["# Completion of apical for fish; see apical completion --help."]
    for top in commands():
        lines.append(_fish("__fish_use_subcommand", f"-f -a {top.path[0]}", top.summary))
        here = f"__fish_seen_subcommand_from {top.path[0]}"
        names = " ".join(c.path[1] for c in top.commands)
        for below in top.commands:
            none_yet = f"{here}; and not __fish_seen_subcommand_from {names}"
            lines.append(_fish(none_yet, f"-f -a {below.path[1]}", below.summary))
        for one in top.commands or (top,):
            lines += _fish_parameters(one, "; and ".join(f"__fish_seen_subcommand_from {p}" for p in one.path), known)
    return "\n".join(lines)


def _fish_parameters(one: Command, where: str, known: dict[str, tuple[str, ...]]) -> list[str]:
    lines = []
    if " ".join(one.path) in known:
        lines.append(_fish(where, f"-a '{' '.join(known[' '.join(one.path)])}'", ""))
    for parameter in one.parameters:
        for name in parameter.names if parameter.is_option else ():
            flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            value = f" -r -a '{' '.join(known[name])}'" if name in known else "" if parameter.flag else " -r"
            lines.append(_fish(where, flag + value, parameter.help))
    return lines


def _fish(where: str, what: str, sentence: str) -> str:
    described = " -d '" + sentence.replace("\\", "\\\\").replace("'", "\\'") + "'" if sentence else ""
    return f"complete -c apical -n '{where}' {what}{described}"


def _words(one: Command, known: dict[str, tuple[str, ...]]) -> Iterable[str]:
    return (*(c.path[-1] for c in one.commands), *known.get(" ".join(one.path), ()), *one.options, "--help")


def _cases(cases: Iterable[tuple[str, Iterable[str]]], end: str = "") -> str:
    answer: Callable[[str], str] = lambda words: (  # noqa: E731
        f'COMPREPLY=($(compgen -W "{words}" -- "$current")){end}' if end else f'words="{words}"'
    )
    return "\n".join(f"        {pattern} {answer(' '.join(words))} ;;" for pattern, words in cases)


def _quoted(text: str) -> str:
    return f'"{text}"'
