"""`apical demo`."""

from pathlib import Path
from typing import Annotated

import typer
from torch import nn

from apical import report, study
from apical.cli import echo, screen
from apical.cli.options import command, shown
from apical.convert import convert_
from apical.errors import InvalidArgumentError
from apical.kernels import backend
from apical.report import illustrations
from apical.study import StudyResults

app = command()


@app.command(epilog=shown("apical demo -o demo"))
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the output.")] = Path("apical-demo"),
    train: Annotated[bool, typer.Option("--train/--no-train", help="Run the small study, too.")] = True,
) -> None:
    """See what apical does, in about a minute, with no data needed."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"--output is {output}, but cannot be created ({error.strerror})") from error
    parts = 3 if train else 2
    _announce(1, parts, "the activation, and one neuron that computes XOR", "a second")
    _show_ada()
    _show_xor()
    picture = output / "ada.svg"
    illustrations.draw_overview(picture, illustrations.ada_curves(), illustrations.xor_surface())
    echo(f"\nwrote {picture}")
    _announce(2, parts, "a network, converted into pyramidal neurons", "a second")
    _show_conversion()
    if train:
        _announce(3, parts, "a study: twelve kinds of neurons learn to read digits", "about a minute")
        results = _run_study("demo", output)
        page = report.write([results], output / "report")
        screen.print_sentence(results)
        echo(f"wrote {page}: open it in a browser")


def _announce(number: int, parts: int, words: str, duration: str) -> None:
    echo(f"{chr(10) if number > 1 else ''}{number} of {parts}: {words} ({duration})\n", flush=True)


def _run_study(name: str, output: Path) -> StudyResults:
    """A quick study with its progress and its table."""
    echo("alpha is tuned by validation; then three trials of each kind are trained and tested once\n", flush=True)
    quick = study.load(name, quick=True)
    with screen.progress() as tell:
        results = study.run(quick, output / "studies" / quick.name, progress=tell)
    screen.print_results(results)
    return results


def _show_ada() -> None:
    (curve,) = illustrations.ada_curves(alphas=(1.0,))[:1]
    echo("ADA(x) = max(0, x) * exp(c - alpha * x), here alpha = 1 and c = 0: it peaks at x = 1/alpha\n")
    echo(illustrations.plot_text(curve))
    echo(f"\ncomputed by {backend()}")


def _show_xor() -> None:
    echo("\nOne neuron, ADA(5 a + 5 b - 4) with alpha = c = 1, computes XOR (Lemma 1 of the paper):")
    echo("its output over both inputs, and at the four corners\n")
    echo(illustrations.surface_text(illustrations.xor_surface()))


def _show_conversion() -> None:
    features = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(features, nn.Linear(16 * 36, 32), nn.GELU(), nn.Linear(32, 10))
    echo("convert_(model, 'pynada(alpha=0.5)'):\n")
    echo(convert_(model, "pynada(alpha=0.5)"))
