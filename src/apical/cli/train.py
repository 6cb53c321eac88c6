"""`apical train`."""

import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

from apical import files, trust
from apical.cli import echo
from apical.cli.options import Import, Limits, Root, Screen, Trust, command, shown
from apical.errors import InvalidArgumentError
from apical.train import Execution, TrialSpec

if TYPE_CHECKING:  # they need torch, and `--help` does not
    from collections.abc import Iterator

    from apical.train import Event, TrialResult
    from apical.train.loop import Callback

app = command()

STOPPED = 130


@app.command(
    epilog=shown(
        'apical train --data digits --model mlp-1 --unit "ada(alpha=0.3)" --epochs 5',
        "apical train --data fashion-mnist --model lenet --unit pynada",
        "apical train --data my-photos/ --model resnet-18 --set size=64 -o runs/photos",
        "apical train --data digits --model mlp-1 --unit bump --import mine   # mine.py calls register_unit",
        "apical train --resume runs/photos",
    )
)
def train(
    data: Annotated[str | None, typer.Option(help="A name from `apical data list`, or the path of your own.")] = None,
    model: Annotated[str | None, typer.Option(help="A network's name, or package.module:factory.")] = None,
    unit: Annotated[str, typer.Option(help='The unit, e.g. relu, "ada(alpha=0.3)", pynada.')] = "relu",
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs; by default the paper's, or 30.")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Batch size over all devices; by default the paper's, or 64.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of Adam; by default the paper's, or 0.001.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of initial weights, data order and dropout.")] = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Another field of the trial, as name=value.")] = None,
    dim: Annotated[list[str] | None, typer.Option(help="A dimension of the network, as name=value.")] = None,
    corrupt: Annotated[list[str] | None, typer.Option(help="A corruption of the data; may be repeated.")] = None,
    root: Root = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept a subset of the data, and mark the results.")
    ] = False,
    convert: Annotated[bool, typer.Option("--convert", help="Build with ReLU, then convert_ to the unit.")] = False,
    precision: Annotated[str, typer.Option(help="32, bf16-mixed or 16-mixed.")] = "32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Number of devices.")] = 1,
    strategy: Annotated[str, typer.Option(help="auto, ddp, or another of Lightning Fabric's.")] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of torch; by default 1 for MLPs and LeNet, else all cores."),
    ] = None,
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the network with torch.compile.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files too.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="Log to Weights & Biases too.")] = False,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="Log to MLflow too.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run's folder; by default runs/...")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    test: Annotated[bool, typer.Option("--test/--no-test", help="Open the test split, once, at the end.")] = True,
    import_: Import = None,
    trust_: Trust = False,
    limits: Limits = None,
) -> int:
    """Train one network on one data set; stop it at any time and start it again.

    What you leave out follows the paper's protocol for that data and network, if it has one. The folder of the run
    receives the trial (spec.json), a checkpoint after each epoch, the weights of the best epoch by validation, the
    history, and the test outputs. Exit status: 0; 130 if it was stopped (the last line says how to continue); 1 on an
    error.
    """
    from apical import models  # noqa: PLC0415  torch
    from apical.train import run  # noqa: PLC0415
    from apical.train.result import stored_spec  # noqa: PLC0415

    how = Execution(
        device=device, devices=devices, strategy=strategy, threads=threads, compile=compile_,
        tensorboard=tensorboard, wandb=wandb, mlflow=mlflow, root=None if root is None else str(root),
    )  # fmt: skip
    trust.grant(*trust.named(model or "", unit))
    if resume is not None:
        spec, out = stored_spec(resume), resume
    else:
        spec = _spec(data, model, how, partial, {
            "unit": unit, "epochs": epochs, "batch": batch, "learning_rate": lr, "seed": seed,
            "dims": _values(dim), "corruptions": tuple(corrupt or ()), "convert": convert, "precision": precision,
            **_values(set_),
        })  # fmt: skip
    if threads is None and models.stacks(spec.model):
        how = replace(how, threads=1)  # their steps are too short to share
    folder = out or Path("runs") / spec.name
    with showing(spec) as callback, _nothing_left(folder):
        result = run(spec, how, folder, [callback])
    return _conclude(result, folder, test=test)


def _spec(data: str | None, model: str | None, how: Execution, partial: bool, given: dict[str, Any]) -> TrialSpec:
    """The paper's protocol for this data and network, with what was given; the task decides what is left open."""
    if data is None or model is None:
        missing = [option for option, value in (("--data", data), ("--model", model)) if value is None]
        raise InvalidArgumentError(
            f"nothing to train without {' and '.join(missing)}: give {'both' if len(missing) > 1 else 'it too'}, or "
            "--resume and the folder of a run"
        )
    changes = {name: value for name, value in given.items() if value is not None}
    spec = TrialSpec.paper(data, model, **changes)
    from apical.data import load  # noqa: PLC0415  numpy and torch are there only now

    loaded = load(data, how.root, partial, split=spec.split, size=spec.size)
    defaults: dict[str, Any] = {"partial": loaded.partial}
    if loaded.task == "regression" and spec.loss == "cross-entropy":
        defaults |= {"loss": "l1", "metric": "mae"}
    return replace(spec, **(defaults | {k: v for k, v in changes.items() if k in defaults}))


def _values(pairs: list[str] | None) -> dict[str, Any]:
    """name=value pairs, the values as TOML reads them, or as text where it cannot."""

    values: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name.isidentifier():
            raise InvalidArgumentError(f"{pair!r} is not understood: write name=value")
        try:
            values[name] = files.parse_toml(f"value = {text}")["value"]
        except ValueError:
            values[name] = text
    return values


@contextmanager
def _nothing_left(folder: Path) -> "Iterator[None]":
    """A run that fails before its first checkpoint leaves no folder behind, unless there was one."""
    from apical.study.directory import CHECKPOINT  # noqa: PLC0415  torch

    new = next((path for path in (*reversed(folder.parents), folder) if not path.exists()), None)
    try:
        yield
    except Exception:
        if new is not None and not (folder / CHECKPOINT).exists():
            shutil.rmtree(new, ignore_errors=True)
        raise


@contextmanager
def showing(spec: TrialSpec) -> "Iterator[Callback]":
    """Live progress on a terminal; elsewhere one line for each epoch, on stderr."""
    console = Screen(stderr=True)
    every = max(1, spec.epochs // 100)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=spec.epochs, words="")

        def show(event: "Event") -> None:
            done = event.epoch - 1 + event.batch / event.batches
            bar.update(task, description=f"epoch {event.epoch}/{event.epochs}", completed=done, words=_words(event))
            if event.record is not None and (event.epoch % every == 0 or event.epoch == event.epochs):
                value = event.record["validation"][spec.metric]
                said = "not finite" if value is None else f"{value:.4f}"
                line = f"epoch {event.epoch}/{event.epochs}: {_words(event)}, validation {spec.metric} {said}"
                console.print(line, soft_wrap=True)  # a line of a log stays one line

        yield show


def _words(event: "Event") -> str:
    minutes, seconds = divmod(int(event.seconds_left), 60)
    return f"loss {event.loss:.4f}, {event.samples_per_second:,.0f} samples/s, {minutes}:{seconds:02d} left"


def _conclude(result: "TrialResult", folder: Path, *, test: bool) -> int:
    """The final line, of the first process alone."""
    from apical.train.evaluation import OUTPUTS, TestResult, evaluate  # noqa: PLC0415  torch

    if os.environ.get("LOCAL_RANK", "0") != "0":
        return 0
    if result.state == "stopped":
        echo(f"stopped by {result.reason}; continue with: apical train --resume {folder}")
        return STOPPED
    if result.state == "diverged":
        echo(f"diverged: {result.reason}; the last finite model is kept")
    name = result.spec.metric
    words = [f"validation {name} {result.metric:.4f} (epoch {result.best_epoch})"]
    if test:
        tested = TestResult.load(folder) if (folder / OUTPUTS).exists() else evaluate(result)
        words.append(f"test {name} {tested.scores[name]:.4f}")
    echo(", ".join([*words, f"folder {folder}"]))
    return 0
