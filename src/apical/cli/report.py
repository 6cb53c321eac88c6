"""`apical report`."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from apical.cli import echo
from apical.cli.options import Import, Limits, Trust, command, shown, study_directory
from apical.report import write
from apical.study import read

app = command()


@app.command(
    no_args_is_help=True,
    epilog=shown(
        "apical report demo -o report",
        "apical report table-fashion-mlp table-fashion-cnn --open",
        "apical report studies/mine studies/theirs --compare",
    ),
)
def report(
    studies: Annotated[
        list[str], typer.Argument(metavar="STUDY", help="Study directories, or names of studies in ./studies.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the report.")] = Path("report"),
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Put two studies side by side.")] = False,
    import_: Import = None,
    trust: Trust = False,
    limits: Limits = None,
) -> None:
    """Write the report of studies, finished or not.

    One HTML page that needs nothing else, the same as Markdown and LaTeX, the tables as CSV, the figures as SVG and
    PDF. For an unfinished study it says what is missing.
    """
    page = write([read(study_directory(name)) for name in studies], output, compare=compare)
    echo(f"wrote {page} and, beside it, report.md, report.tex, tables/ and figures/")
    if open_:
        webbrowser.open(page.absolute().as_uri())
