"""Seconds of a training step on this machine: a few steps of the real network on random data of the right shape.

One thread, as the local engine gives a trial by default. What was measured is kept in APICAL_HOME/calibration.json.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from apical import __version__
from apical.data import home, load
from apical.data.dataset import DataSet
from apical.data.inputs import Codes, Images, Input, Numbers
from apical.data.recipe import Recipe
from apical.data.registry import RECIPES
from apical.data.split import Parts
from apical.data.toy import in_memory
from apical.nn import Unit
from apical.study.cost import BRANCHES
from apical.study.file import Part, Study
from apical.study.plan import spec_of
from apical.train import TrialSpec
from apical.train.losses import BY_NAME
from apical.train.network import build, dims_for
from apical.train.optimisation import optimiser_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHAPES = {
    "fashion-mnist": (1, 28, 28),
    "moroco": (5000,),
    "utkface-gender": (3, 200, 200),
    "utkface-age": (3, 200, 200),
    "crema-d": (2, 257, 376),
    "tiny-imagenet": (3, 64, 64),
    "imagenet": (3, 224, 224),
}
"""Shapes of one sample of the data sets that are not made in memory."""
LONG = 0.1
"""Seconds: a step is repeated, and its share of a batch grows, until it takes so long."""
STANDARD, PYRAMIDAL = "ada", "pynada"

Progress = Callable[[str, int, int], None]


def calibrate(study: Study, *, measure: bool = True, progress: Progress | None = None) -> dict[str, float]:
    """Seconds of one step of each part with standard neurons.

    What was not measured before is measured now or, without `measure`, left out.
    """
    study.enable()
    known = _kept()
    found: dict[str, float] = {}
    for done, part in enumerate(study.parts):
        unit, branches = _unit(study, part)
        spec = spec_of(part, unit)
        key = _key(spec)
        if key not in known and measure:
            if progress is not None:
                progress(f"measuring {spec.model} on {spec.data}", done, len(study.parts))
            known[key] = seconds_of_step(spec)
            _keep(known)
        if key in known:
            found[part.name] = known[key] / branches
    return found


def _unit(study: Study, part: Part) -> tuple[str, int]:
    """What to measure, and what it costs in standard neurons: some networks are built of pyramidal ones alone."""
    units = [Unit.parse(row.unit) for row in study.trained if row.part == part.name]
    return (PYRAMIDAL, BRANCHES) if all(unit.pyramidal for unit in units) else (STANDARD, 1)


def samples_of(part: Part) -> tuple[int, int]:
    """Training and validation samples of a part's data; the user's own data is opened."""
    if part.data in RECIPES:
        return RECIPES[part.data].counts[:2]
    spec = spec_of(part)
    data = load(part.data, size=spec.size)
    return len(data.train), len(data.validation)


def seconds_of_step(spec: TrialSpec) -> float:
    """The time of a training step: forward, backward and the optimiser's step on one batch.

    A batch that takes long is measured by shares of it, 2 samples, 4, 8, until they take LONG; the line through the
    first and the last leads to the whole batch.
    """
    data = sketch(spec)
    with _one_thread(), torch.random.fork_rng(devices=[]):
        network = build(spec, dims_for(spec, data)).train()
        optimiser = optimiser_of(spec, network)
        few = n = min(2, spec.batch)
        first = took = _time(spec, network, optimiser, data, n)
        while n < spec.batch and (n == few or took < LONG):
            n = min(2 * n, spec.batch)
            took = _time(spec, network, optimiser, data, n)
    slope = max(0.0, took - first) / max(1, n - few)
    return took + slope * (spec.batch - n)


def _time(spec: TrialSpec, network: nn.Module, optimiser: Optimizer, data: DataSet, n: int) -> float:
    """The shortest of a few steps on n samples; the first one also makes the optimiser's state."""
    rows = np.arange(n) % len(data.train)
    inputs, labels = data.train.inputs(rows), torch.from_numpy(data.train.labels[rows])
    times: list[float] = []
    while len(times) < 2 or (sum(times) < LONG and len(times) < 50):
        start = perf_counter()
        loss = BY_NAME[spec.loss](network(inputs), labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        times.append(perf_counter() - start)
    return min(times)


def sketch(spec: TrialSpec) -> DataSet:
    """Random data of the shape that the spec's data set has; the data set itself where it is made in memory."""
    recipe = RECIPES.get(spec.data)
    if recipe is None or recipe.make is not None:
        data = load(spec.data, size=spec.size)
    else:
        data = _random(recipe, SHAPES[recipe.name])
    return data.padded(spec.pad) if spec.pad else data


def _random(recipe: Recipe, shape: tuple[int, ...]) -> DataSet:
    draw = np.random.default_rng(0)
    n = 8
    rows = np.arange(n)
    ids = [f"sample-{i}" for i in rows]
    names = recipe.class_names or (tuple(map(str, range(1000))) if recipe.task == "classification" else None)
    labels = draw.integers(len(names), size=n) if names else draw.random(n, dtype=np.float32)
    inputs: NDArray[Any] = draw.random((n, *shape), dtype=np.float32)
    how: Input = Numbers()
    if recipe.kind == "text":
        inputs, how = draw.integers(recipe.vocabulary or 2, size=(n, *shape)), Codes()
    elif recipe.kind in ("image", "files"):
        inputs, how = draw.integers(256, size=(n, *shape), dtype=np.uint8), Images()
    made = in_memory(recipe, inputs, labels, ids, Parts(rows, rows, rows), input=how, class_names=names)
    return replace(made, vocabulary=recipe.vocabulary)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --- what was measured before -----------------------------------------------------------------------------------------


def _path() -> Path:
    return home() / "calibration.json"


def _key(spec: TrialSpec) -> str:
    """All that the time depends on: the network, its input, the batch, the versions, the machine."""
    shape = SHAPES.get(spec.data, spec.data)
    what = [spec.model, spec.dims, spec.unit, shape, spec.pad, spec.size, spec.batch, spec.convert]
    where = [__version__, torch.__version__, platform.node(), platform.machine(), os.cpu_count()]
    return hashlib.sha256(json.dumps([what, where], sort_keys=True).encode()).hexdigest()[:32]


def _kept() -> dict[str, float]:
    try:
        found = json.loads(_path().read_text(encoding="utf-8"))
        return {str(key): float(value) for key, value in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):  # nothing yet, or nothing that can be read
        return {}


def _keep(known: dict[str, float]) -> None:
    """A cache: where it cannot be written, it is measured again next time."""
    draft = _path().with_suffix(f".{os.getpid()}")
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
        draft.replace(_path())
    except OSError:
        draft.unlink(missing_ok=True)
