"""`apical bench`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from apical import bench, env
from apical.errors import InvalidArgumentError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure apical on this machine.")


@app.callback()
def _group() -> None:
    """Measure apical on this machine."""


@app.command(epilog="Example: apical bench activations --rounds 15 --csv activations.csv")
def activations(
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the figures are medians over them.")] = 15,
    csv: Annotated[Path | None, typer.Option(help="Also write the table to this file, as CSV.")] = None,
) -> None:
    """Forward and backward of ADA against torch's SiLU and ReLU and the formula as printed in the paper."""
    if csv is not None and not csv.parent.is_dir():
        raise InvalidArgumentError(f"--csv is {csv}, but the folder {csv.parent} does not exist: create it first")
    cases = len(bench.activations.SHAPES) * len(bench.activations.DTYPES)
    with Progress(transient=True) as bar:
        task = bar.add_task("", total=cases * rounds)
        timings = bench.activations.activations(
            rounds=rounds, progress=lambda case, _, __: bar.update(task, advance=1, description=case)
        )
    print(bench.as_text(timings))
    facts = env.facts()
    print(f"forward + backward, {rounds} interleaved rounds, medians; ratios to SiLU below 1 are faster")
    print(f"{facts['processor']}, {facts['threads']} threads, torch {facts['torch']}, {facts['backend']}")
    if csv is not None:
        csv.write_text(bench.as_csv(timings), encoding="utf-8")
        print(f"wrote {csv}")
