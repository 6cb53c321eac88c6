"""`apical data`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from apical import data
from apical.cli import echo
from apical.cli.options import Limits, Root, Screen, group, shown
from apical.data.archives import Progress as Report
from apical.data.preparation import partial_mark
from apical.data.split import Parts
from apical.data.store import Store
from apical.errors import InvalidArgumentError

app = group(
    "Prepare, check, list and look at data sets. They are kept under APICAL_HOME, by default your cache folder.",
    "apical data list",
    "apical data prepare fashion-mnist",
    "apical data show fashion-mnist -o samples.png",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `apical data list`.")]
Partial = Annotated[
    bool, typer.Option("--partial", help="Accept a subset in the official layout, and mark the results.")
]


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A bar on stderr that library functions report to."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    console = Screen(stderr=True)
    show = console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not show) as bar:
        task = bar.add_task("")
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


@app.command(epilog=shown("apical data prepare fashion-mnist", "apical data prepare tiny-imagenet --root ~/Downloads"))
def prepare(
    name: Name,
    root: Root = None,
    partial: Partial = False,
    size: Annotated[int | None, typer.Option(min=8, help="Side in pixels, for the images of UTKFace.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Decoding processes; all cores by default.")] = None,
    limits: Limits = None,
) -> None:
    """Find or download a data set, verify it, make it ready.

    Fashion-MNIST is downloaded; for the others, fetch the official files yourself and give their folder or archive
    with --root: `apical data describe NAME` says which files. The data is converted once, for fast reading; a second
    call returns at once. If you stop it, it leaves no partial files.
    """
    with progress_bar() as report:
        folder = data.prepare(name, root, partial=partial, size=size, workers=workers, progress=report)
    if folder is None:
        echo(f"{name} is made in memory: there is nothing to prepare")
        return
    store = Store(folder)
    counts = zip(Parts._fields, store.manifest["splits"]["paper"]["counts"], strict=True)
    mark = partial_mark(store)
    echo(
        f"{name} is ready in {folder}: {', '.join(f'{n:,} {part}' for part, n in counts)}"
        + (f"; {mark}" if mark else "")
    )
    for note in store.manifest.get("notes", ()):
        echo(f"note: {note}")


@app.command(epilog=shown("apical data verify fashion-mnist"))
def verify(name: Name, root: Root = None, partial: Partial = False) -> None:
    """Check a prepared data set against its stored hashes.

    If something has changed, the exit status is 1, and the files are named.
    """
    with progress_bar() as report:
        folder = data.verify(name, root, partial=partial, progress=report)
    echo(f"{name} is made in memory: there is nothing to verify" if folder is None else f"{name} is intact in {folder}")


@app.command("list", epilog=shown("apical data list"))
def list_() -> None:
    """List the data sets, with state, size and location."""
    table = Table("name", "state", "size", "licence", box=None, pad_edge=False)
    places, waiting = [], []
    for status in data.statuses():
        size = f"{status.size / 1e6:,.0f} MB" if status.size else status.recipe.space
        table.add_row(status.recipe.name, status.state, size, status.recipe.licence)
        if status.where is not None and status.where not in places:
            places.append(status.where)
        if status.files is not None:
            waiting.append(
                f"{status.recipe.name}: its files are in {status.files} and will be used, nothing is downloaded"
            )
    Screen(width=None if Screen().is_terminal else 140).print(table)
    echo(f"data folder: {data.home()} (set APICAL_HOME to change it)")
    for place in places:
        echo(f"  {place}")
    echo(*waiting, sep="\n", end="\n" if waiting else "")


@app.command(epilog=shown("apical data describe crema-d"))
def describe(name: Name) -> None:
    """Show content, licence, citation, and what you must fetch."""
    echo(data.describe(name))


@app.command(epilog=shown('apical data show fashion-mnist --corrupt "input-noise(sigma=0.3)" -o noisy.png'))
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name from `apical data list`, or the path of your own data.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page: .png, .pdf or .svg.")],
    root: Root = None,
    partial: Partial = False,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    count: Annotated[int, typer.Option(min=1, max=120, help="How many samples.")] = 24,
    seed: Annotated[int, typer.Option(help="Which samples.")] = 0,
    corrupt: Annotated[list[str] | None, typer.Option(help="A corruption; may be given several times.")] = None,
    limits: Limits = None,
) -> None:
    """Draw a sheet of samples with their labels.

    Images, spectrograms or texts of one split, with corruptions if you like.
    """
    from apical.report import samples  # noqa: PLC0415  only this command draws

    if not output.parent.is_dir():
        raise InvalidArgumentError(f"-o is {output}, but the folder {output.parent} does not exist: create it first")
    with progress_bar() as report:
        loaded = data.load(name, root, partial=partial, progress=report)
    loaded = data.corrupt(loaded, *(corrupt or ()))
    panels = samples.gather(loaded, split=split, count=count, seed=seed)
    marks = [f"{name}, {split}", *([loaded.partial] if loaded.partial else []), *map(str, loaded.corruptions)]
    samples.draw(panels, output, title=", ".join(marks))
    echo(f"wrote {output}: {len(panels)} samples")
