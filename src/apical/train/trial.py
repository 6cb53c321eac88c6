"""`run`: one trial, trained to its end, continued where it was interrupted."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apical import env, files, imports
from apical.data import Corruption, DataSet, corrupt, load
from apical.data.corruptions import parse
from apical.data.inputs import Images
from apical.errors import DataError, InvalidArgumentError, TrainingError
from apical.limits import limit, raise_it
from apical.train import checkpoint, devices, losses, metrics
from apical.train.checkpoint import copy_into
from apical.train.loop import Callback, Reporter, Stop, fit, listening, validate
from apical.train.result import LAST, RESULT, SPEC, STACK, State, TrialResult, stored_spec
from apical.train.session import Session, build, json_number, preserve_rng
from apical.train.spec import LOGGERS, Execution, TrialSpec
from apical.train.stack import faster_as_stack, unstackable_reason
from apical.trust import grant, named

FOLDER = "runs"
RANGE_SAMPLES = 256
"""Training images, evenly spaced, from which the range of pixel values is taken."""


def run(
    spec: TrialSpec,
    execution: Execution | None = None,
    directory: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    *,
    trust: bool = False,
) -> TrialResult:
    """Train a trial in its folder (by default runs/<its name>) and never open the test split.

    A trial that was interrupted continues where its last checkpoint stands; a finished one is returned as it is.
    LeNet is trained as a stack of one on a CPU, which is faster, and says so in `execution.stacking`.
    SIGTERM, SIGINT and SIGUSR1 make it save and return with the state "stopped". `trust` allows the code that the spec
    names as `package.module:name`; `apical.trust.allow` does so for a module of yours.
    """
    allow_spec(spec, trust)
    how = execution or Execution()
    if how.stacking != "alone":
        raise InvalidArgumentError(f"stacking is {how.stacking!r}, but `run` trains one trial alone")
    folder = Path(directory) if directory is not None else Path(FOLDER) / spec.name
    if _as_stack(spec, how, folder):
        from apical.train.stack.trials import run_one  # noqa: PLC0415  it needs this module

        with ExitStack() as stack:
            return run_one(spec, how, folder, (*callbacks, *_loggers(how, spec, folder, stack)))
    runtime = devices.runtime(spec, how)
    return runtime.launch(_run, spec, how, folder, tuple(callbacks))  # type: ignore[no-any-return]


def _as_stack(spec: TrialSpec, how: Execution, folder: Path) -> bool:
    """True for a stack of one: where it is faster, or was begun so; never where it was begun or ended otherwise."""
    if any((folder / name).exists() for name in (RESULT, LAST)):
        return False
    path = folder / STACK
    begun = path.exists() and checkpoint.read_facts(path).get("composition") == [spec.digest]
    return faster_as_stack(spec, how) or (begun and unstackable_reason(spec, how) is None)


def _run(
    runtime: devices.SingleDevice, spec: TrialSpec, how: Execution, folder: Path, callbacks: tuple[Callback, ...]
) -> TrialResult:
    first = runtime.rank == 0
    with locked(folder) if first else nullcontext(), threads(how.threads), listening() as stop:
        if first:
            write_spec(folder, spec)
        if (folder / RESULT).exists():
            return TrialResult.load(folder)
        if first:
            files.sweep(folder)
        with preserve_rng(runtime.device):
            data = open_data(spec, how)
            session = Session(spec, how, runtime, data, folder)
            session.check()
            session.resume()
            with ExitStack() as stack:
                listeners = (*callbacks, *_loggers(how, spec, folder, stack)) if first else ()
                state = fit(session, stop=stop, report=_reporter(session, listeners))
            return _finish(session, state, data, stop)


def allow_spec(spec: TrialSpec, trust: bool) -> None:
    """With `trust`, allow the network that a spec names."""
    if trust:
        grant(*named(spec.model))


def open_data(spec: TrialSpec, how: Execution) -> DataSet:
    """The data set of a trial, padded and corrupted as it says; refused where it is not what the spec names."""
    changes = tuple(parse(text).for_trial(spec.seed) for text in spec.corruptions)
    key = (spec.data, how.root, spec.partial, spec.split, spec.size, spec.pad, changes, spec.loss, spec.metric)
    return _cached(key, lambda: _open_data(spec, how, changes))


def _open_data(spec: TrialSpec, how: Execution, changes: tuple[Corruption, ...]) -> DataSet:
    data = load(spec.data, how.root, spec.partial is not None, split=spec.split, size=spec.size)
    if data.partial != spec.partial:
        raise TrainingError(
            f"{spec.data} is {data.partial or 'whole'!r}, but the trial says partial={spec.partial!r}: "
            f"give partial={data.partial!r}, which is part of the trial's digest"
        )
    for name, allowed in (("loss", losses.names(data.task)), ("metric", metrics.names(data.task))):
        if getattr(spec, name) not in allowed:
            raise TrainingError(
                f"{name} is {getattr(spec, name)!r}, but {spec.data} is a {data.task} task: use {' or '.join(allowed)}"
            )
    _refuse_large_samples(data.shape, spec.pad)
    data = corrupt(data.padded(spec.pad) if spec.pad else data, *changes)
    counts = {name: len(split) for name, split in data.splits.items() if name != "test"}  # which stays closed
    if not all(counts.values()):
        said = ", ".join(f"{count} for {name}" for name, count in counts.items())
        raise DataError(f"{spec.data} has too few samples ({said}): a trial needs some of each")
    if data.class_names is not None and len(data.class_names) < 2:
        raise DataError(f"{spec.data} has only the class {data.class_names[0]!r}: a classifier needs at least two")
    return data


def _refuse_large_samples(shape: tuple[int, ...], pad: int) -> None:
    """Refuse padding that makes samples larger than images may be."""
    pixels, most = prod(n + 2 * pad for n in shape[-2:]), limit("pixels")
    if pad and pixels > most:
        raise InvalidArgumentError(
            f"pad is {pad}, which makes samples of {pixels:,} pixels, and at most {most:,} are made: "
            f"{raise_it('pixels', pixels)}"
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder made, and locked against other processes."""
    filelock = imports.optional("filelock", extra="lab")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / ".lock").is_symlink():  # opening the lock empties what it points at
            files.remove(folder / ".lock")
        held = filelock.FileLock(folder / ".lock").acquire(timeout=0)
    except filelock.Timeout as error:
        raise TrainingError(f"another process trains in {folder}: wait for it, or choose another folder") from error
    except OSError as error:
        raise TrainingError(f"cannot use the folder {folder}: {error.strerror or error}") from error
    with held:
        yield


def write_spec(folder: Path, spec: TrialSpec) -> None:
    """Write the spec into a trial's folder, or refuse one that holds another."""
    if not (folder / SPEC).exists():
        files.save(folder / SPEC, spec.to_json().encode())
    elif stored_spec(folder) != spec:
        raise TrainingError(f"{folder} holds another trial: choose another folder, or delete it")


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """torch's thread count for a block; None leaves it alone."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(count or before)
        yield
    finally:
        torch.set_num_threads(before)


def _loggers(how: Execution, spec: TrialSpec, folder: Path, stack: ExitStack) -> Iterator[Callback]:
    """The callbacks of the loggers that were asked for; `stack` ends them."""
    for name in LOGGERS:
        if getattr(how, name):
            yield stack.enter_context(import_module(f"apical.train.loggers.{name}").log(spec, folder))


def _reporter(s: Session, callbacks: tuple[Callback, ...]) -> Reporter:
    return Reporter(callbacks, epochs=s.spec.epochs, batches=len(s.train), samples=s.spec.passes * len(s.train.split))


def _finish(s: Session, state: State, data: DataSet, stop: Stop) -> TrialResult:
    """The result of a run that ended; written unless it was stopped, so that it can go on."""
    best = s.best["epoch"]
    reason = stop.reason or ""
    validation: dict[str, float | None] = {}
    if state == "diverged":
        reason = f"loss or weights were not finite in epoch {s.epoch + 1}, after {s.batch} batches of it"
        best, validation = _last_finite(s)
    elif best:
        validation = s.history[best - 1]["validation"]
    result = TrialResult(
        directory=s.folder, spec=s.spec, execution=s.execution, state=state, reason=reason, best_epoch=best,
        validation=validation, history=s.history, timings=s.timings,
        parameters=sum(p.numel() for p in s.network.parameters()),
        environment=env.facts(), data=s.identity, input=input_facts(s.dims, data),
    )  # fmt: skip
    if state != "stopped" and s.runtime.rank == 0:
        finish(result, s.state() if state == "diverged" else s.best_weights)
    return result


def finish(result: TrialResult, weights: Mapping[str, Tensor]) -> None:
    """Write the weights that are kept, then the result, which marks the trial as finished."""
    facts = {"spec": result.spec.digest, "epoch": result.best_epoch, "state": result.state}
    checkpoint.save(result.weights, {f"model:{name}": t for name, t in weights.items()}, facts)
    result.save()


def _last_finite(s: Session) -> tuple[int, dict[str, float | None]]:
    """Put the last finite weights into the network: those before the fatal step, or of the last checkpoint."""
    epoch = s.epoch
    if not s.finite():
        path = s.folder / LAST
        if path.exists():
            stored = checkpoint.load(path)
            copy_into(s.state(), stored.part("model"), what=str(path))
            epoch = stored.facts["epoch"]
        else:
            s.network.load_state_dict(build(s.spec, s.dims, s.train.split).state_dict())
            epoch = 0
    return epoch, {name: json_number(value) for name, value in (validate(s) or {}).items()}


def input_facts(dims: Mapping[str, Any], data: DataSet) -> dict[str, Any]:
    """What `predict` must know to treat a new sample as the trial's own."""
    how = data.train.input
    seen: dict[str, Any] = {}
    if isinstance(how, Images):
        pixels = data.train.raw(np.linspace(0, len(data.train) - 1, RANGE_SAMPLES).astype(np.int64))
        seen["range"] = [float(pixels.min()), float(pixels.max())]
    return {
        "kind": type(how).__name__,
        "settings": asdict(how),  # type: ignore[call-overload]
        "shape": list(data.train.source.shape),
        **seen,
        "classes": None if data.class_names is None else list(data.class_names),
        "dims": {name: list(v) if isinstance(v, tuple) else v for name, v in dims.items()},
    }


# Data that stays open between the trials of one process: a worker that trains hundreds opens it once.
#
# Only inside `dataset_cache()`; elsewhere the data of a trial goes when the trial ends.

_datasets: dict[Hashable, DataSet] | None = None


@contextmanager
def dataset_cache() -> Iterator[None]:
    """Keep the data set that was opened last, with the inputs that were made of it."""
    global _datasets  # noqa: PLW0603  one process trains one trial at a time
    before, _datasets = _datasets, {}
    try:
        yield
    finally:
        _datasets = before


def _cached(key: Hashable, make: Callable[[], DataSet]) -> DataSet:
    """The data set of that key, made where it is not the last one; another one goes first, to make room."""
    if _datasets is None:
        return make()
    if key not in _datasets:
        _datasets.clear()
        _datasets[key] = make()
    return _datasets[key]
