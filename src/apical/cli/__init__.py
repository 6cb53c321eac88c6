"""The `apical` command: parse, one library call, print. The standard library alone, until a command needs more."""

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType

from apical.errors import ApicalError, MissingExtraError

COMMANDS = {
    "demo": "see what apical does, in three minutes at most, with no data needed",
    "data": "prepare, check, list and look at data sets",
    "train": "train one network on one data set, resumable at any time",
    "study": "run the tables and figures of the paper, or your own comparison",
    "predict": "let a trained network name new images, clips, texts or numbers",
    "report": "write the report of studies: a page, Markdown, LaTeX, CSV, figures",
    "bench": "measure the activations on this machine",
    "convert": "show what conversion would do to a network, without writing anything",
    "env": "show versions, CPU and which kernel serves, and why",
}
"""Name and one-line summary; command NAME lives in `apical.cli.NAME` as a typer application called `app`."""

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0, 1 for an error said in one sentence, 2 for wrong usage."""
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    if not arguments or arguments[0] in ("--help", "-h"):
        print(overview())
        return 0
    if arguments[0] == "--version":
        print(f"apical {version('apical')}")
        return 0
    if arguments[0] not in COMMANDS:
        print(
            f"apical: {arguments[0]!r} is no command; there are {', '.join(COMMANDS)}: see apical --help",
            file=sys.stderr,
        )
        return 2
    try:
        return _run_command(arguments[0], arguments[1:])
    except ApicalError as error:
        if debug:
            raise
        print(f"apical: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("apical: interrupted", file=sys.stderr)
        return INTERRUPTED


def overview() -> str:
    """The text of `apical --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: apical COMMAND [OPTIONS]",
            "",
            "Apical dendrite activations and pyramidal neurons, and the laboratory that compares them.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            "  --help     this page; after a command, that command's own",
            "  --version  the installed version",
            "  --debug    show the traceback of an error",
            "",
            "example: apical demo",
        ]
    )


def _run_command(name: str, arguments: list[str]) -> int:
    typer = _lab()
    app = import_module(f"apical.cli.{name}").app
    command = typer.main.get_command(app)
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
