"""The `apical` command: parse, one library call, print. The standard library alone, until a command needs more."""

import os
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TextIO

from apical.errors import ApicalError, MissingExtraError, unknown, visible

JOBS = {
    "Start here": {
        "demo": "see what apical does, in about a minute, with no data needed",
        "env": "show versions, CPU and which kernel runs, and why",
        "bench": "measure the activations on this machine",
    },
    "Use it in a network": {
        "units": "list the neurons and activations, with their settings",
        "models": "list the networks, with their dimensions",
        "convert": "show what conversion would do to a network, without writing anything",
        "train": "train one network on one data set, resumable at any time",
        "predict": "apply a trained network to new images, clips, texts or numbers",
        "attack": "attack a trained image classifier and measure the accuracy that is left",
    },
    "Compare activations": {
        "data": "prepare, check, list and look at data sets",
        "study": "run the tables and figures of the paper, or your own comparison",
        "report": "write the report of studies: a page, Markdown, LaTeX, CSV, figures",
    },
    "Set up": {
        "completion": "print the completion script for your shell",
    },
}
"""The map of the commands; command NAME lives in `apical.cli.NAME` as a typer application called `app`."""
COMMANDS = {name: summary for job in JOBS.values() for name, summary in job.items()}

INTERRUPTED = 130


def echo(*values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """`print`, for commands: what a name in a file could do to a terminal is shown instead of done."""
    print(visible(sep.join(map(str, values)), lines=True), end=end, file=file, flush=flush)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # who read our output, `head` perhaps, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0, 1 for an error said in one sentence, 2 for wrong usage."""
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    if not arguments or arguments[0] in ("--help", "-h"):
        echo(overview())
        return 0
    if arguments[0] == "--version":
        echo(f"apical {version('apical')}")
        return 0
    if arguments[0] not in COMMANDS:
        echo(f"apical: {unknown('command', arguments[0], COMMANDS, 'see apical --help')}", file=sys.stderr)
        return 2
    try:
        return _run_command(arguments[0], arguments[1:])
    except ApicalError as error:
        if debug:
            raise
        echo(f"apical: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        echo("apical: interrupted", file=sys.stderr)
        return INTERRUPTED


def overview() -> str:
    """The text of `apical --help`."""
    width = max(map(len, COMMANDS))
    lines = []
    for job, commands in JOBS.items():
        lines += ["", f"{job}:", *(f"  {name:<{width}}  {summary}" for name, summary in commands.items())]
    return "\n".join(
        [
            "Usage: apical COMMAND [OPTIONS]",
            "",
            "  Apical dendrite activations and pyramidal neurons, and the laboratory that compares them.",
            *lines,
            "",
            "Options:",
            "  -h, --help  Show this page; after a command, that command's own.",
            "  --version   Show the installed version.",
            "  --debug     Show the traceback of an error.",
            "",
            "Examples:",
            "  apical demo",
            '  apical train --data digits --model mlp-1 --unit "ada(alpha=0.3)" --epochs 5',
            "  apical study run table-fashion-mlp --quick",
        ]
    )


def _run_command(name: str, arguments: list[str]) -> int:
    typer = _lab()
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # modules of your own, such as those that a study names, are found where you work
    app = import_module(f"apical.cli.{name}").app
    command = import_module("apical.cli.options").like_a_shell(typer.main.get_command(app))
    try:
        result = command.main(arguments, prog_name=f"apical {name}", standalone_mode=False)
    except Exception as error:
        # typer carries its own copy of click's exceptions in some versions: know them by what they can do.
        show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
        if callable(show) and isinstance(code, int):
            show()
            return code
        if type(error).__name__ == "Abort":
            raise KeyboardInterrupt from error
        raise
    return result if isinstance(result, int) else 0


def _lab() -> ModuleType:
    try:
        return import_module("typer")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "the commands belong to the laboratory, which is not installed: pip install 'apical[lab]' "
            "(python -m apical.env works without it)"
        ) from error
