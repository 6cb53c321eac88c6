"""Seconds of a training step on this machine: a few steps of the real network on random data of the right shape.

One thread, as the local engine gives a trial by default. What was measured is kept in APICAL_HOME/calibration.json.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from apical import __version__
from apical.data import home, load
from apical.data.dataset import DataSet
from apical.data.inputs import Codes, Images, Input, Numbers
from apical.data.recipe import Recipe
from apical.data.registry import RECIPES
from apical.data.split import Parts
from apical.data.toy import in_memory
from apical.nn import Unit
from apical.study.cost import BRANCHES, Step
from apical.study.file import Part, Study
from apical.study.plan import spec_of
from apical.study.timing import step_alone, step_stacked
from apical.train import TrialSpec, why_alone

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
STANDARD, PYRAMIDAL = "ada", "pynada"

Progress = Callable[[str, int, int], None]


def calibrate(study: Study, *, measure: bool = True, progress: Progress | None = None) -> dict[str, Step]:
    """Seconds of one step of each part with standard neurons, alone and in a stack.

    What was not measured before is measured now or, without `measure`, left out.
    """
    study.enable()
    known = _kept()
    found: dict[str, Step] = {}
    for done, part in enumerate(study.parts):
        unit, branches = _unit(study, part)
        spec = spec_of(part, unit)
        largest = study.stack if why_alone(spec) is None else 1
        keys = {size: _key(spec, size) for size in (1, largest)}
        left = [size for size, key in keys.items() if measure and key not in known]
        if left and progress is not None:
            progress(f"measuring {spec.model} on {spec.data}", done, len(study.parts))
        for size in left:
            known[keys[size]] = seconds_of_step(spec, stack=size)
            _keep(known)
        if all(key in known for key in keys.values()):
            found[part.name] = Step(known[keys[1]] / branches, largest, known[keys[largest]] / branches)
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


def seconds_of_step(spec: TrialSpec, *, stack: int = 1) -> float:
    """The time of a training step of one trial, or of a stack of trials."""
    data = sketch(spec)
    return step_alone(spec, data) if stack == 1 else step_stacked(spec, data, stack)


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


# --- what was measured before -----------------------------------------------------------------------------------------


def _path() -> Path:
    return home() / "calibration.json"


def _key(spec: TrialSpec, stack: int) -> str:
    """All that the time depends on: the network, its input, the batch, the stack, the versions, the machine."""
    shape = SHAPES.get(spec.data, spec.data)
    what = [spec.model, spec.dims, spec.unit, shape, spec.pad, spec.size, spec.batch, spec.convert, stack]
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
