"""`apical study`."""

import json
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import apical
from apical import study
from apical.cli import echo, screen
from apical.cli.options import Import, Limits, Root, Trust, group, shown, study_directory
from apical.errors import InvalidArgumentError, visible
from apical.study.config.toml import TEMPLATE
from apical.study.directory import HOME, STUDY
from apical.study.engines.base import ENGINES
from apical.study.model import Study

app = group(
    "Run the tables and figures of the paper, or your own comparison.",
    "apical study list",
    "apical study run table-fashion-mlp --quick",
    "apical study status table-fashion-mlp --watch",
    "apical study new my-study.toml",
)

STOPPED = 130

Name = Annotated[
    str, typer.Argument(metavar="STUDY", help="A name from `apical study list`, a study file, or a study directory.")
]
Where = Annotated[str, typer.Argument(metavar="STUDY", help="A study directory, or the name of the study in studies/.")]
Directory = Annotated[
    Path | None, typer.Option("--directory", "-d", help="The study directory; by default studies/NAME.")
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Change a field of the study file, as key=value.")]
Quick = Annotated[bool, typer.Option("--quick", help="The reduced variant: fewer epochs, trials and settings.")]


@app.command(
    epilog=shown(
        "apical study run table-fashion-mlp --quick",
        "apical study run my-study.toml --workers 4",
        "apical study run input-noise --part 'mlp-2-*'",
        "apical study run my-study.toml --set training.epochs=3 -d studies/short",
    )
)
def run(
    name: Name,
    directory: Directory = None,
    quick: Quick = False,
    part: Annotated[
        list[str] | None, typer.Option(help="Only these parts of the study; * matches any characters; repeatable.")
    ] = None,
    set_: Sets = None,
    tune_trials: Annotated[
        int | None,
        typer.Option(min=1, help="Trials that decide between the settings of a row; by default the study's."),
    ] = None,
    tune_c: Annotated[bool, typer.Option("--tune-c", help="Also tune c over 0 and 1.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Trials at the same time; by default all cores.")] = None,
    engine: Annotated[
        str, typer.Option(help=f"{', '.join(ENGINES)}, or one that a module of the study registers.")
    ] = "local",
    engine_option: Annotated[
        list[str] | None, typer.Option(help="An option of an engine of your own, as name=value; repeatable.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="The Ray cluster: auto, local or HOST:PORT.")] = None,
    cpus: Annotated[int, typer.Option("--cpus-per-trial", min=1, help="Cores and threads of one trial.")] = 1,
    gpus: Annotated[
        float, typer.Option("--gpus-per-trial", min=0, help="GPUs of one trial; 0.5 lets two share one.")
    ] = 0.0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    stack: Annotated[
        bool,
        typer.Option(
            "--stack/--no-stack", help="Train equal networks as one program, or each alone, the rows in turn."
        ),
    ] = True,
    memory: Annotated[
        float | None, typer.Option(min=0.001, help="GB that a worker may take for a stack of trials.")
    ] = None,
    root: Root = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept subsets of the data, and mark the results.")
    ] = False,
    import_: Import = None,
    trust: Trust = False,
    limits: Limits = None,
) -> int:
    """Tune, choose, train and test the rows of a study.

    Settings are compared on the validation data. The chosen ones are trained in all their trials, and each trial is
    evaluated once on the test data. The directory holds everything. Stop it at any time and start it again: finished
    trials are not run again. Several machines can run one directory at the same time. Exit status: 0; 1 if trials
    failed (`apical study retry` lets them run again); 130 if it was stopped.
    """
    how = apical.train.Execution(device=device, threads=cpus, root=None if root is None else str(root))
    only = [f"only_parts={json.dumps(part)}"] if part else []
    wanted = _study(name, quick=quick, sets=[*only, *(set_ or ())], tune_c=tune_c)
    folder = directory or (Path(name) if (Path(name) / STUDY).is_file() else Path(HOME) / wanted.name)
    rows, trials = (
        f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((len(wanted.trained), "row"), (wanted.trials, "trial"))
    )
    echo(f"{visible(wanted.title)}: {rows}, {trials} each, in {folder}", flush=True)
    for line in screen.comparisons(wanted):
        echo(line, flush=True)
    own = dict(_pair(text) for text in engine_option or ())
    given = study.Options(workers=workers, cpus=cpus, gpus=gpus, address=address, own=own)
    try:
        with screen.progress() as tell, _acknowledged():
            results = study.run(
                wanted, folder, engine=engine, options=given,
                tune_trials=tune_trials, stack=stack,
                memory=None if memory is None else 1e9 * memory, execution=how, partial=partial, progress=tell,
            )  # fmt: skip
    except KeyboardInterrupt:
        if (folder / STUDY).is_file():
            echo(f"stopped, nothing finished is lost; continue with: apical study run {folder}")
        else:
            echo("stopped before the study began; run the same command again")
        return STOPPED
    screen.print_results(results)
    return screen.print_end(results)


@app.command(epilog=shown("apical study status table-fashion-mlp"))
def status(
    where: Where,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it live until it is finished.")] = False,
    import_: Import = None,
    trust: Trust = False,
    limits: Limits = None,
) -> None:
    """Show trials, scores, the best so far and the time left.

    It also shows which machines run trials, and why trials failed.
    """
    folder = study_directory(where)
    if watch:
        screen.watch(folder)
    else:
        screen.print_status(folder)


@app.command(epilog=shown("apical study watch table-fashion-mlp"))
def watch(
    where: Where,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 0,
    refresh: Annotated[int, typer.Option(min=1, help="Seconds between updates of the page.")] = 10,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    import_: Import = None,
    trust: Trust = False,
    limits: Limits = None,
) -> None:
    """Serve the report of a study until it ends, or Ctrl-C.

    The page is served only on this machine, and shows the results so far.
    """

    def started(address: str) -> None:
        echo(f"the report of {where}, as it grows: {address} (it ends with the study, or with Ctrl-C)", flush=True)
        if open_:
            webbrowser.open(address)

    apical.report.watch(study_directory(where), port=port, refresh=refresh, started=started)


@app.command(epilog=shown("apical study show table-fashion-mlp", "apical study show table-fashion-mlp 3f2a91"))
def show(
    where: Where,
    trial: Annotated[
        str | None, typer.Argument(metavar="TRIAL", help="The start of a trial's digest; without it, all are listed.")
    ] = None,
    import_: Import = None,
    trust: Trust = False,
    limits: Limits = None,
) -> None:
    """List the trials of a study, or show one in detail."""
    if trial is None:
        screen.print_trials(study_directory(where))
    else:
        screen.print_trial(study_directory(where), trial)


@app.command(epilog=shown("apical study retry table-fashion-mlp"))
def retry(
    where: Where,
    trials: Annotated[
        list[str] | None, typer.Argument(metavar="DIGEST", help="Starts of digests; by default all that failed.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All that failed, which is the default.")] = False,
    import_: Import = None,
    trust: Trust = False,
    limits: Limits = None,
) -> None:
    """Let the next `run` repeat failed and damaged trials."""
    folder = study_directory(where)
    again = study.retry(folder, None if failed or not trials else trials)
    echo(f"{len(again)} trials will be run again by: apical study run {folder}" if again else "no trial has failed")


@app.command(epilog=shown("apical study export table-fashion-mlp -o results.parquet"))
def export(
    where: Where,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file: .parquet, .csv or .json.")],
    import_: Import = None,
    trust: Trust = False,
    limits: Limits = None,
) -> None:
    """Write every trial as a row of one table."""
    echo(f"wrote {study.export(study_directory(where), output)}")


@app.command(epilog=shown("apical study dataframe table-fashion-mlp"))
def dataframe(where: Where, import_: Import = None, trust_: Trust = False, limits: Limits = None) -> None:
    """Print every trial as a pandas data frame.

    In Python, `apical.study.read(directory).dataframe()` returns it.
    """
    echo(study.read(study_directory(where)).dataframe())


@app.command(epilog=shown("apical study merge studies/all studies/laptop studies/cluster"))
def merge(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="The directory to copy into; created if it does not exist.")
    ],
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE", help="Directories of the same study; they are not changed.")
    ],
    limits: Limits = None,
) -> None:
    """Combine the trials of several directories.

    They must belong to one study. Only finished trials are copied, each once.
    """
    done = study.merge(target, *sources)
    damaged = f", {done.damaged} are damaged and were left out" if done.damaged else ""
    echo(f"{done.copied} trials were copied into {target}, {done.known} were there already{damaged}")
    echo(f"run the rest with: apical study run {target}")


@app.command(epilog=shown("apical study schema -o study.schema.json"))
def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it here, for your editor.")] = None,
) -> None:
    """Print the JSON schema of study files."""
    text = json.dumps(study.schema(), indent=2)
    if output is None:
        echo(text)
        return
    _write(output, text + "\n")


@app.command(
    "list", epilog=shown("apical study list", "apical study list table-fashion-cnn", "apical study list my-study.toml")
)
def list_(
    name: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="Show the parts of one study: its name, or your study file.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure every network on this machine, once; takes minutes.")
    ] = False,
    import_: Import = None,
    trust: Trust = False,
    limits: Limits = None,
) -> None:
    """List the studies that come with apical.

    Shows rows, trials, whether the data is ready, and about how long it takes with one worker per core. The time comes
    from a table of measurements: apical's own, or this machine's after --measure. The networks of your study file are
    measured for a few steps.
    """
    screen.print_list(name, measure=measure)


@app.command(epilog=shown("apical study new my-study.toml"))
def new(path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]) -> None:
    """Write a commented study file to start from."""
    if path.exists():
        raise InvalidArgumentError(f"{path} exists already: name another file")
    _write(path, TEMPLATE.read_text(encoding="utf-8"))
    echo(f"change it to your needs, then: apical study run {path}")


def _study(name: str, *, quick: bool, sets: list[str] | None, tune_c: bool) -> Study:
    """The study of a name or file, or the one that a directory was made for.

    Where a shipped study has a directory of its name here, changes are changes of the shipped one.
    """
    changed = bool(quick or sets or tune_c)
    if not (Path(name) / STUDY).is_file() or (changed and name in study.names()):
        return study.load(name, quick=quick, sets=sets or (), tune_c=tune_c, trust="ask")
    if changed:
        raise InvalidArgumentError(
            f"{name} is a study directory, and its study cannot change: use --quick, --part, --set and --tune-c "
            "with the name of a study or a study file"
        )
    return study.frozen(name)


@contextmanager
def _acknowledged() -> Iterator[None]:
    """Ctrl-C is answered at once, though trials leave at their next batch."""

    def answer(*_: Any) -> None:
        echo("\nstopping: trials save and stop at their next batch", file=sys.stderr, flush=True)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, answer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InvalidArgumentError(f"--engine-option is {text!r}, but must be name=value")
    return name, value


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"cannot write {path}: {error.strerror or error}") from error
    echo(f"wrote {path}")
