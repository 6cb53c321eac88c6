"""`apical attack`."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apical import files
from apical.cli import echo
from apical.cli.options import Import, Limits, Root, Screen, Trust, aligned, command, network_from, shown
from apical.errors import ApicalError, InvalidArgumentError

if TYPE_CHECKING:  # they need torch, and `--help` does not
    from apical.robustness import AttackResult
    from apical.train.assessment import Subject

app = command()


@app.command(
    no_args_is_help=True,
    epilog=shown(
        "apical attack runs/my-run",
        "apical attack runs/my-run --eps 0.03 --source runs/relu --json attacked.json",
        "apical attack runs/my-run --attacks pgd,square --queries 2000 --csv samples.csv",
        "apical attack mynetworks:small --weights small.safetensors --data fashion-mnist",
    ),
)
def attack(
    target: Annotated[
        str, typer.Argument(metavar="RUN", help="The folder of a finished run, or package.module:factory of a network.")
    ],
    eps: Annotated[float, typer.Option(help="By how much each pixel may change; white is 1, black 0.")] = 0.1,
    attacks: Annotated[
        str | None, typer.Option(help="fgsm, pgd, transfer, square, separated by commas; by default all.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Images of the validation split that are attacked.")] = 500,
    steps: Annotated[int, typer.Option(min=1, help="Steps of PGD.")] = 20,
    restarts: Annotated[int, typer.Option(min=1, help="Starts of PGD.")] = 2,
    queries: Annotated[int, typer.Option(min=1, help="Queries of the square attack, at most.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of random starts and squares.")] = 0,
    source: Annotated[Path | None, typer.Option(help="Another run: the source network of the transfer attack.")] = None,
    weights: Annotated[Path | None, typer.Option(help="The safetensors file with the weights of a factory.")] = None,
    data: Annotated[
        str | None, typer.Option(help="The images for a factory: a name from `apical data list`, or a path.")
    ] = None,
    root: Root = None,
    json_: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")] = None,
    csv_: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write a line for each image.")] = None,
    import_: Import = None,
    trust_: Trust = False,
    limits: Limits = None,
) -> None:
    """Attack a trained image classifier and measure the accuracy that is left.

    White-box attacks (fgsm, pgd) follow the gradient, black-box ones (square; transfer, with --source) do not.
    If a black-box attack does better, the gradient is misleading, and the last line says so. The accuracy that counts
    is the worst case: a sample is right if no attack succeeds. The images come from the validation split, because the
    test split is opened only once, with the trial's own setting `robustness`.
    """
    for option, path in (("--json", json_), ("--csv", csv_)):
        if path is not None and not path.parent.is_dir():
            raise InvalidArgumentError(
                f"{option} is {path}, but the folder {path.parent} does not exist: create it first"
            )
    from apical.train.assessment import attack_images  # noqa: PLC0415  torch

    subject = _factory(target, weights, data, root) if ":" in target else _run(target, source, weights, data)
    with _progress() as tell:
        result = attack_images(
            subject, samples=samples, attacks=_names(attacks), progress=tell,
            eps=eps, steps=steps, restarts=restarts, queries=queries, seed=seed,
        )  # fmt: skip
    echo(
        aligned(
            [("none", _percent(result.clean_accuracy)), *((n, _percent(result.accuracy(n))) for n in result.survived)]
        )
    )
    echo(f"{result.summary}.")
    if json_ is not None:
        files.save(json_, (json.dumps(result.as_dict(), indent=2) + "\n").encode())
        echo(f"wrote {json_}")
    if csv_ is not None:
        _write_csv(csv_, subject, result)
        echo(f"wrote {csv_}: {len(result.clean)} samples")


def _run(folder: str, source: Path | None, weights: Path | None, data: str | None) -> "Subject":
    """The network of a run, and its validation split."""
    if weights is not None or data is not None:
        raise InvalidArgumentError(
            f"{folder} is a run, which has its own weights and data: leave --weights and --data out"
        )
    from apical.train import TrialResult, losses  # noqa: PLC0415  torch
    from apical.train.assessment import Subject  # noqa: PLC0415
    from apical.train.result import require_registered  # noqa: PLC0415
    from apical.train.trial import open_data  # noqa: PLC0415

    result = TrialResult.load(folder)
    require_registered(folder, result.spec.as_dict(), "model", "data")
    split = open_data(result.spec, result.execution).validation
    other = None if source is None else TrialResult.load(source).network()
    return Subject(result.network(), losses.find(result.spec.loss).answer, split, source=other)


def _factory(path: str, weights: Path | None, name: str | None, root: Path | None) -> "Subject":
    """The network that `package.module:factory` returns, with its weights, and the validation split of a data set."""
    if weights is None or name is None:
        raise InvalidArgumentError(f"{path} is a factory: give --weights (a safetensors file) and --data (the images)")
    from apical.data import load  # noqa: PLC0415  torch
    from apical.train.assessment import Subject  # noqa: PLC0415
    from apical.train.losses import log_probabilities  # noqa: PLC0415

    network = network_from(path)
    try:
        network.load_state_dict(files.read_weights(weights, follow=True))
    except (RuntimeError, OSError, ValueError) as error:
        raise InvalidArgumentError(f"{weights} does not fit {path}: {files.one_line(error)}") from error
    subject = Subject(network.eval(), log_probabilities, load(name, root).validation)
    try:
        answers = subject.logits(subject.pixels(1))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        if isinstance(error, ApicalError):
            raise
        raise InvalidArgumentError(f"{path} does not take the images of {name}: {files.one_line(error)}") from error
    if answers.ndim != 2 or answers.shape[1] < 2:
        raise InvalidArgumentError(
            f"{path} returns shape {tuple(answers.shape)} for an image of {name}, but must return (n, classes)"
        )
    return subject


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",")]


def _percent(share: float) -> str:
    return f"{100 * share:5.1f} %"


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Live on a terminal; elsewhere a line for each attack that is done, on stderr."""
    console = Screen(stderr=True)
    with console.status("", refresh_per_second=4) as status:

        def tell(name: str, done: int, count: int) -> None:
            if console.is_terminal:
                status.update(f"{name}: {done} of {count} samples")
            elif done == count:
                console.print(f"{name}: {count} samples")

        yield tell


def _write_csv(path: Path, subject: "Subject", result: "AttackResult") -> None:
    ids = subject.split.ids[subject.positions(len(result.clean))]
    labels = subject.labels(len(result.clean)).tolist()
    columns = [result.clean.int().tolist(), *(right.int().tolist() for right in result.survived.values())]
    rows = zip(ids.tolist(), labels, *columns, strict=True)
    files.save(path, files.csv_text(["id", "label", "right", *result.survived], rows).encode())
