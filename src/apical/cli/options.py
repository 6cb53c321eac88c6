"""Options that several commands have."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from apical import files, limits, trust
from apical.errors import InvalidArgumentError, near, visible
from apical.study.config.toml import shipped
from apical.study.directory import HOME, STUDY

if TYPE_CHECKING:
    from torch import nn


def _there(root: Path | None) -> Path | None:
    """Refuse a path that is not there, though data that is prepared already would not need it."""
    if root is not None and not root.expanduser().exists():
        raise InvalidArgumentError(f"--root is {root}, but there is no such folder or archive: fix or omit it")
    return root


Root = Annotated[
    Path | None, typer.Option(callback=_there, help="The folder or archive that holds the official files.")
]


def _imported(modules: list[str] | None) -> list[str] | None:
    for name in (name for words in modules or () for name in words.split(",")):
        try:
            trust.allow(name)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"--import {name}: {error}") from error
    return modules


Import = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        callback=_imported,
        help="Import your module with units, networks, data or metrics, and allow files to name it; several: a,b.",
    ),
]


def _trusted(value: bool) -> bool:
    if value:
        trust.grant(trust.ALL)
    return value


Trust = Annotated[
    bool,
    typer.Option(
        "--trust", callback=_trusted, help="Import any code that these files name. It runs with your permissions."
    ),
]


def _limits(given: str | None) -> str | None:
    if given:
        os.environ[limits.VARIABLE] = given  # processes that are started for the work see it too
        limits.limit("pixels")
    return given


Limits = Annotated[
    str | None,
    typer.Option(
        "--limits",
        callback=_limits,
        help=f"Raise a limit, e.g. pixels=400000000; limits: {', '.join(limits.RAISABLE)}.",
    ),
]


# Where a study lies that the user names.


def study_directory(where: str) -> Path:
    """The directory of that path, or of that name in the usual folder."""
    usual = Path(HOME) / where
    for folder in (Path(where), usual):
        if (folder / STUDY).is_file():
            return folder
    quick, known = Path(HOME) / f"{where}-quick", [*shipped()]
    if (quick / STUDY).is_file():
        hint = f"did you mean {quick.name!r}?"
    elif where in known or Path(where).is_file():
        hint = f"run it with `apical study run {where}`"
    else:
        close = " or ".join(map(repr, near(where, known)))
        hint = f"did you mean {close}? " if close else ""
        hint += "`apical study list` shows the studies that come with apical"
    raise InvalidArgumentError(f"there is no study directory {where!r} or {str(usual)!r}: {hint}")


def network_from(path: str) -> "nn.Module":
    """The network that the user's factory `package.module:name` makes."""
    from torch import nn  # noqa: PLC0415

    trust.grant(path)
    factory = trust.factory(path, "network")
    try:
        network = factory()
    except Exception as error:  # it is the user's own code, and may raise anything
        what = "cannot be called" if isinstance(error, TypeError) else "failed when it was called"
        raise InvalidArgumentError(
            f"{path} {what} without arguments ({type(error).__name__}: {files.one_line(error)}): "
            "name a factory that returns the network; --debug shows where it failed"
        ) from error
    if not isinstance(network, nn.Module):
        raise InvalidArgumentError(f"{path} returns {type(network).__name__}, but must return an nn.Module")
    return network


class Screen(Console):
    """A console of rich's on which texts are texts: no markup, and no control characters but its own."""

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, highlight=False, **how)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text, lines=True), **how)


# One style for the help of every command: plain text, what it does, its options, examples that can be copied.

_PLAIN: dict[str, Any] = {
    "add_completion": False,  # `apical completion` does that, without loading a command
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["--help", "-h"], "max_content_width": 100},
}


def command() -> typer.Typer:
    """The application of a command that does one thing."""
    return typer.Typer(**_PLAIN)


def group(summary: str, *examples: str) -> typer.Typer:
    """The application of a command with commands of its own; without one of them it shows its help."""
    return typer.Typer(**_PLAIN, no_args_is_help=True, help=summary, epilog=shown(*examples), callback=_nothing)


METAVARS = {
    "directory": "DIR", "out": "DIR", "resume": "DIR", "root": "DIR", "output": "PATH", "csv": "FILE",
    "set_": "KEY=VALUE", "dim": "NAME=VALUE", "engine_option": "NAME=VALUE", "import_": "MODULE",
    "address": "HOST:PORT",
}  # fmt: skip
"""What the help calls the value of an option, where its own name would not do."""


def like_a_shell(given: Any) -> Any:
    """The command with usage lines as shells' manuals have them: `STUDY`, `--directory DIR`; no types in brackets."""
    for parameter in given.params:
        if parameter.param_type_name == "argument":
            name = parameter.metavar or parameter.name.upper()
            usage = f"{name}..." if parameter.nargs != 1 else name
            parameter._usage_display_name = lambda usage=usage, need=parameter.required: usage if need else f"[{usage}]"
            parameter.display_type_rich = lambda ctx: ""
        elif not getattr(parameter, "is_flag", False):
            parameter.metavar = parameter.metavar or METAVARS.get(parameter.name, parameter.name.strip("_").upper())
    for below in getattr(given, "commands", {}).values():
        like_a_shell(below)
    return given


def shown(*lines: str) -> str:
    """Examples for the end of a help text, each on a line of its own."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  {line}" for line in lines)])


def _nothing() -> None:
    """Without a callback, typer takes a group of one command for that command."""


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns of text, a line for each row."""
    rows = [tuple(map(visible, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
