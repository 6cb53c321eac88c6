"""`apical predict`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.table import Table

from apical import files
from apical.cli import echo
from apical.cli.options import Import, Limits, Screen, Trust, command, shown
from apical.errors import InvalidArgumentError

if TYPE_CHECKING:  # it needs torch, and `--help` does not
    from apical.train import Prediction

app = command()


@app.command(
    epilog=shown(
        "apical predict runs/my-run shirt.png shoe.jpg", "apical predict runs/my-run new.npz --csv answers.csv"
    )
)
def show(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    inputs: Annotated[
        list[Path], typer.Argument(metavar="SAMPLE", help="Images, .wav clips, .txt texts, or .npz with an array x.")
    ],
    csv_: Annotated[Path | None, typer.Option("--csv", help="Write CSV to this file (- for the screen).")] = None,
    top: Annotated[int, typer.Option(min=1, help="Classes shown for each sample in the table.")] = 3,
    import_: Import = None,
    trust: Trust = False,
    limits: Limits = None,
) -> None:
    """Apply a trained network to new samples: prints a table, or CSV with every probability.

    The samples are processed like the training data: scaled, resized, cut or read from the end. An 8-bit image is
    resized and scaled to the range of the training images, and not inverted; an array in another range is an error.
    """
    if csv_ is not None and csv_ != Path("-") and not csv_.parent.is_dir():
        raise InvalidArgumentError(f"--csv is {csv_}, but the folder {csv_.parent} does not exist: create it first")
    from apical.train import predict  # noqa: PLC0415  torch

    predictions = predict(directory, inputs)
    if csv_ is None:
        _print_table(predictions, top)
    elif csv_ == Path("-"):
        _write_csv(predictions, sys.stdout)
    else:
        with csv_.open("w", encoding="utf-8", newline="") as file:
            _write_csv(predictions, file)
        echo(f"wrote {csv_}: {len(predictions)} samples")


def _print_table(predictions: "list[Prediction]", top: int) -> None:
    table = Table("sample", "prediction", "probabilities", box=None, pad_edge=False)
    for p in predictions:
        shares = list((p.probabilities or {}).items())[:top]
        table.add_row(p.source, p.best, ", ".join(f"{name} {share:.3f}" for name, share in shares))
    console = Screen()
    Screen(width=None if console.is_terminal else 200).print(table)


def _write_csv(predictions: "list[Prediction]", file: TextIO) -> None:
    classes = sorted(predictions[0].probabilities) if predictions and predictions[0].probabilities else []
    rows = ([p.source, p.best, *(f"{(p.probabilities or {})[name]:.6f}" for name in classes)] for p in predictions)
    file.write(files.csv_text(["sample", "prediction", *classes], rows))
