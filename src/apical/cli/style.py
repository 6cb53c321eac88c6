"""One style for the help of every command: plain text, what it does, its options, examples that can be copied."""

from typing import Any

import typer

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


def shown(*lines: str) -> str:
    """Examples for the end of a help text, each on a line of its own."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  {line}" for line in lines)])


def _nothing() -> None:
    """Without a callback, typer takes a group of one command for that command."""
