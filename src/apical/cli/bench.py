"""`apical bench`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from apical import bench, env
from apical.cli import echo
from apical.cli.options import Import, group, shown
from apical.errors import InvalidArgumentError

app = group("Measure apical on this machine.", "apical bench activations")


@app.command(
    epilog=shown(
        "apical bench activations --rounds 15 --csv activations.csv",
        "apical bench activations --unit gelu --unit bump --import mine   # mine.py calls register_unit",
        "apical bench activations --device cuda",
    )
)
def activations(
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the figures are medians over them.")] = 15,
    device: Annotated[str, typer.Option(help="Where to measure: cpu, cuda, cuda:1, xpu or mps.")] = "cpu",
    csv: Annotated[Path | None, typer.Option(help="Also write the table to this file, as CSV.")] = None,
    unit: Annotated[list[str] | None, typer.Option(help="Measure this standard unit too; may be repeated.")] = None,
    import_: Import = None,
) -> None:
    """Compare the speed of ADA with torch's SiLU and ReLU.

    It measures forward and backward, and the formula as the paper prints it too. Six cases: three shapes, float32
    and bfloat16. The candidates of a case take turns within each round, so that a machine that slows down slows all
    of them, and the ratios are medians over the rounds. It takes a minute or two. On a GPU the clock waits for the
    device, and the table has the share of the memory bandwidth that a copy reaches there.
    """
    if csv is not None and not csv.parent.is_dir():
        raise InvalidArgumentError(f"--csv is {csv}, but the folder {csv.parent} does not exist: create it first")
    cases = len(bench.activations.SHAPES) * len(bench.activations.DTYPES)
    with Progress(transient=True) as bar:
        task = bar.add_task("", total=cases * rounds)
        timings = bench.activations.activations(
            rounds=rounds,
            units=unit or (),
            progress=lambda case, _, __: bar.update(task, advance=1, description=case),
            device=device,
        )
    echo(bench.as_text(timings))
    few = f"; an interval needs {bench.measure.FEWEST} rounds" if rounds < bench.measure.FEWEST else ""
    echo(f"forward + backward, {rounds} interleaved rounds, medians; ratios to SiLU below 1 are faster{few}")
    echo(env.machine(device))
    if csv is not None:
        csv.write_text(bench.as_csv(timings), encoding="utf-8")
        echo(f"wrote {csv}")
