"""`apical units`."""

import typer

from apical.cli.options import Import, aligned, command, shown
from apical.nn import kinds

app = command()


@app.command(epilog=shown("apical units", "apical units --import mine   # with the units that mine.py registers"))
def units(import_: Import = None) -> None:
    """List the units: one line for each kind of neuron or activation, with its label in tables and its settings.

    A setting marked learn can be learned: write "ada(alpha=learn)". Those of the paper come first, then torch's
    activations, then yours. pyramidal(basal=gelu,apical=ada) joins any two.
    """
    typer.echo(aligned([_row(kind) for kind in map(kinds.find, kinds.names())]))


def _row(kind: kinds.Kind) -> tuple[str, str, str]:
    settings = ", ".join(f"{p.name}={_shown(p)}" for p in kind.parameters)
    branches = " + ".join(kind.branches or ())
    return kind.name, kind.label, f"{branches}{': ' if branches and settings else ''}{settings}"


def _shown(parameter: kinds.Parameter) -> str:
    if parameter.default == kinds.LEARN:
        return f"{kinds.LEARN} (from {parameter.start:g})"
    default = parameter.default
    value = default if isinstance(default, str) else f"{default:g}"
    return f"{value} or {kinds.LEARN}" if parameter.learnable else value
