"""`apical convert`."""

import re
from typing import Annotated, Any

import typer

from apical import trust
from apical.cli import echo
from apical.cli.options import Import, command, network_from, shown
from apical.errors import ConversionError, InvalidArgumentError

app = command()


@app.command(
    no_args_is_help=True,
    epilog=shown(
        "apical convert mynetworks:resnet --unit pynada",
        "apical convert lenet --unit bump --import mine   # mine.py calls register_unit",
        'apical convert mynetworks:resnet --unit "pynada(alpha=0.3,c=1)" --input 8,3,224,224',
        "apical convert mynetworks:resnet --unit leaky_ada --kinds relu,tanh --only layer4",
    ),
)
def convert(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A name from `apical models`, or package.module:factory.")
    ],
    unit: Annotated[str, typer.Option(help='The unit to convert to, e.g. ada or "pynada(alpha=0.3,c=1)".')] = "ada",
    only: Annotated[
        str | None, typer.Option(help="Convert only activations whose name matches this regular expression.")
    ] = None,
    kinds: Annotated[str | None, typer.Option(help="Kinds of activations to convert, separated by commas.")] = None,
    shape: Annotated[
        str | None, typer.Option("--input", help="Shape of a random input, to show shares of inputs; not for tokens.")
    ] = None,
    keep_function: Annotated[bool, typer.Option(help="Start apical branches at zero.")] = False,
    import_: Import = None,
) -> None:
    """Show what convert_ would do to a network: a row for each activation. Nothing is written.

    The network is one of `apical models`, with ReLU, or what the function or class package.module:factory returns when
    it is called without arguments; modules of the working directory are found too. Each row says what the activation
    was, what it becomes, or why it stays. Exit status: 1 if nothing can be converted.
    """
    import torch  # noqa: PLC0415 - after the arguments are read, so that --help answers at once

    from apical.convert import convert_  # noqa: PLC0415

    trust.grant(*trust.named(unit))
    pattern = _pattern(only)
    network, inputs = _network(model), None if shape is None else torch.randn(_shape(shape))
    try:
        report = convert_(
            network,
            unit,
            filter_fn=None if pattern is None else lambda name, module: pattern.search(name) is not None,
            example_inputs=inputs,
            keep_function=keep_function,
            kinds=None if kinds is None else [kind.strip() for kind in kinds.split(",")],
        )
    except ConversionError as error:
        options = [f"{name} is {option}" for name, option in _OPTIONS.items() if name in str(error)]
        raise ConversionError(f"{error} (here {', '.join(options)})" if options else str(error)) from error
    echo(report)


_OPTIONS = {"example_inputs": "--input", "filter_fn": "--only", "keep_function": "--keep-function", "kinds=": "--kinds"}
"""What the arguments of `convert_`, which its errors name, are called in the terminal."""


def _network(path: str) -> Any:
    """A network by its name, with ReLU, or what `package.module:factory` returns."""
    from apical import models  # noqa: PLC0415  torch

    if path in models.list():
        return models.create(path, "relu" if models.takes_unit(path) else None)
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise InvalidArgumentError(
            f"unknown network {path!r}: write package.module:factory, e.g. mypackage.nets:resnet, or one of "
            + ", ".join(models.list())
        )
    return network_from(path)


def _pattern(only: str | None) -> re.Pattern[str] | None:
    try:
        return None if only is None else re.compile(only)
    except re.error as error:
        raise InvalidArgumentError(f"--only is {only!r}, which is not a regular expression ({error})") from error


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise InvalidArgumentError(f"--input is {text!r}, but must be a shape like 8,3,224,224") from None
