"""Every command with its options, as plain data: what shell completion and the reference page are made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc
from typing import Any

import typer

from apical.cli import COMMANDS


@dataclass(frozen=True)
class Argument:
    """An option (`names` start with dashes) or an argument; a `flag` takes no value."""

    names: tuple[str, ...]
    help: str
    flag: bool = False
    default: str = ""
    required: bool = False

    @property
    def is_option(self) -> bool:
        return self.names[0].startswith("-")


@dataclass(frozen=True)
class Command:
    """One command: its words after `apical`, one sentence, what `--help` says of it, and what it takes."""

    path: tuple[str, ...]
    summary: str
    text: str
    examples: tuple[str, ...]
    parameters: tuple[Argument, ...]
    commands: tuple["Command", ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(name for p in self.parameters if p.is_option for name in p.names)


def commands() -> tuple[Command, ...]:
    """The commands of `apical`, in the order of its help, each with those below it."""
    return tuple(
        _command((name,), typer.main.get_command(import_module(f"apical.cli.{name}").app)) for name in COMMANDS
    )


def flat() -> Iterator[Command]:
    """Every command, those below another one after it."""
    for command in commands():
        yield command
        yield from command.commands


def _command(path: tuple[str, ...], given: Any) -> Command:
    below = getattr(given, "commands", {})
    text = cleandoc(given.help or "")
    summary = COMMANDS[path[0]] if len(path) == 1 else text.partition("\n\n")[0].replace("\n", " ").rstrip(".")
    examples = tuple(line.strip() for line in (given.epilog or "").splitlines()[2:])
    parameters = tuple(_parameter(p) for p in given.params)
    return Command(path, summary, text, examples, parameters, tuple(_command((*path, n), c) for n, c in below.items()))


def _parameter(given: Any) -> Argument:
    argument = given.param_type_name == "argument"
    names = (given.name,) if argument else (*given.opts, *given.secondary_opts)
    flag = getattr(given, "is_flag", False)
    bare = flag or given.default is None or callable(given.default)
    return Argument(
        names=names,
        help=given.help or "",
        flag=flag,
        default="" if bare else str(given.default),
        required=given.required,
    )
