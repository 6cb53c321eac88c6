"""`apical models`."""

import inspect
from typing import TYPE_CHECKING

import typer

from apical.cli.options import Import, aligned, command, shown

if TYPE_CHECKING:
    from apical.models import registry

app = command()


@app.command(epilog=shown("apical models", "apical models --import mine   # with the networks that mine.py registers"))
def models(import_: Import = None) -> None:
    """List the networks: one line for each, with what it is and its dimensions.

    `apical train --model NAME --dim name=value` sets a dimension. The paper's come first, then yours; for any other,
    write package.module:factory.
    """
    from apical.models import registry  # noqa: PLC0415  torch

    typer.echo(aligned([_row(name, registry.find(name)) for name in registry.names()]))


def _row(name: str, network: "registry.Network") -> tuple[str, str, str]:
    summary = (inspect.getdoc(network.factory) or "").partition("\n")[0]
    dims = [str(p.replace(annotation=p.empty)) for key, p in network.parameters.items() if key != "unit"]
    return name, summary, ", ".join(dims)
