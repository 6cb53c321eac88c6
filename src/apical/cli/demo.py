"""`apical demo`."""

from pathlib import Path
from typing import Annotated

import typer
from torch import nn

from apical import report, study
from apical.cli import screen
from apical.cli.options import command, shown
from apical.convert import convert_
from apical.errors import InvalidArgumentError
from apical.kernels import backend
from apical.report import illustrations
from apical.study import StudyResults

app = command()


@app.command(epilog=shown("apical demo -o demo"))
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for everything.")] = Path("apical-demo"),
    train: Annotated[bool, typer.Option("--train/--no-train", help="Run the two small studies, too.")] = True,
) -> None:
    """See what apical does, in three minutes at most, with no data needed."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"--output is {output}, where no folder can be made ({error.strerror})") from error
    _show_ada()
    _show_xor()
    _show_conversion()
    picture = output / "ada.svg"
    illustrations.draw_overview(picture, illustrations.ada_curves(), illustrations.xor_surface())
    print(f"\nwrote {picture}")
    if train:
        approximated = _run_study("approximation", output, "A hidden layer of 20 units learns sin(x) and sin(x)/x")
        digits = _run_study("demo", output, "Twelve kinds of neurons learn to read digits")
        page = report.write([digits, approximated], output / "report")
        print(f"\nwrote {page}: open it in a browser")


def _run_study(name: str, output: Path, words: str) -> StudyResults:
    """A quick study with its progress and its table."""
    print(f"\n{words}: tuned by validation, then tested once\n", flush=True)
    quick = study.load(name, quick=True)
    with screen.progress() as tell:
        results = study.run(quick, output / "studies" / quick.name, progress=tell)
    screen.print_results(results)
    return results


def _show_ada() -> None:
    (curve,) = illustrations.ada_curves(alphas=(1.0,))[:1]
    print("ADA(x) = max(0, x) * exp(c - alpha * x), here alpha = 1 and c = 0: it peaks at x = 1/alpha\n")
    print(illustrations.plot_text(curve))
    print(f"\ncomputed by {backend()}")


def _show_xor() -> None:
    outputs = illustrations.xor_neuron(illustrations.XOR_POINTS)
    print("\nOne neuron, ADA(5 a + 5 b - 4) with alpha = c = 1, computes XOR (Lemma 1 of the paper):\n")
    print("   a  b   output   rounded")
    for (a, b), value in zip(illustrations.XOR_POINTS.int().tolist(), outputs.tolist(), strict=True):
        print(f"   {a}  {b}    {value:.4f}   {round(value)}")


def _show_conversion() -> None:
    features = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(features, nn.Linear(16 * 36, 32), nn.GELU(), nn.Linear(32, 10))
    print("\nA network's activations, converted into pyramidal neurons by convert_(model, 'pynada(alpha=0.5)'):\n")
    print(convert_(model, "pynada(alpha=0.5)"))
