"""What a trial is (TrialSpec: frozen, hashed) and how it is run (Execution: recorded, not hashed)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

from apical.errors import InvalidArgumentError, unknown
from apical.nn import Unit
from apical.train import losses, metrics
from apical.train.records import Record

RESULTS_VERSION = 1
"""Changes where the same spec would give other numbers than before."""

VERSION_1 = frozenset((
    "data", "model", "unit", "dims", "convert", "split", "partial", "corruptions", "pad", "size", "augment", "loss",
    "metric", "optimiser", "learning_rate", "milestones", "decay", "l2", "clip", "epochs", "passes", "batch", "seed",
    "precision", "results_version",
))  # fmt: skip
"""The fields that always enter files and digests. One that is added later does so where it has not its default: a trial
that does not use it keeps its name."""

OPTIMISERS = ("adam", "adamw", "sgd")
PRECISIONS = ("32", "bf16-mixed", "16-mixed")
DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True, kw_only=True)
class TrialSpec(Record):
    """One trial: two equal specs are the same trial, and `digest` names it.

    `data`, `model`, `unit`, `corruptions` are named as `apical.data.load`, `apical.models.create`, `Unit.parse` and
    `apical.data.corrupt` read them; `dims` are further arguments of the network. With `convert`, the network is built
    with ReLU and rewritten by `convert_`. `partial` is the mark of a subset, as the data set bears it, and must match
    it. The learning rate is multiplied by `decay` at each epoch in `milestones`. `l2` is the weight of the penalty
    sum(w^2)/2 over weights (not biases, norms and activations). `batch` counts the samples of all devices
    together; an epoch is `passes` passes over the training samples.
    """

    data: str
    model: str
    unit: str = "relu"
    dims: dict[str, Any] = field(default_factory=dict)
    convert: bool = False
    split: str = "paper"
    partial: str | None = None
    corruptions: tuple[str, ...] = ()
    pad: int = 0
    size: int | None = None
    augment: bool = False
    loss: str = "cross-entropy"
    metric: str = "accuracy"
    optimiser: str = "adam"
    learning_rate: float = 1e-3
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    l2: float = 0.0
    clip: float | None = None
    epochs: int = 30
    passes: int = 1
    batch: int = 64
    seed: int = 0
    precision: str = "32"
    results_version: int = RESULTS_VERSION

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "unit", str(Unit.parse(self.unit)))
        object.__setattr__(self, "corruptions", _parsed(self.corruptions))
        losses.find(self.loss)
        if self.metric not in metrics.names():
            raise InvalidArgumentError(unknown("metric", self.metric, metrics.names()))
        _one_of("optimiser", self.optimiser, OPTIMISERS)
        _one_of("precision", self.precision, PRECISIONS)
        _check_range(self, at_least={"epochs": 1, "passes": 1, "batch": 1, "seed": 0, "pad": 0, "l2": 0.0})
        _check_range(self, above={"learning_rate": 0.0, "decay": 0.0, "clip": 0.0})

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def paper(cls, data: str, model: str, **changes: Any) -> Self:
        """The paper's protocol for this network on this data, with `changes`; the defaults where it has none."""
        return cls.from_dict({"data": data, "model": model} | paper_settings(data, model) | changes)

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON knows values; later ones than version 1 where they have not their default."""
        return lasting(super().as_dict())

    @cached_property
    def digest(self) -> str:
        """The name of the trial, see `digest`."""
        return digest(self.as_dict())

    @property
    def name(self) -> str:
        """A folder name that people can read: data, network, kind of unit, seed, and the start of the digest."""
        parts = (self.data, self.model, Unit.parse(self.unit).kind, f"seed{self.seed}", self.digest[:8])
        return "-".join("".join(c if c.isalnum() or c in "._" else "-" for c in p).strip("-.")[-40:] for p in parts)

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return float(self.learning_rate * self.decay ** sum(epoch >= m for m in self.milestones))

    def with_seed(self, seed: int) -> Self:
        """The same trial with another seed."""
        return replace(self, seed=seed)


def digest(values: Mapping[str, Any]) -> str:
    """The name of the trial with these fields, as `as_dict` gives them: sha256 of the canonical JSON."""
    text = json.dumps(lasting(values), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def lasting(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without those that came after version 1 and have their default."""
    return {name: value for name, value in values.items() if name not in LATER or value != LATER[name]}


LATER: dict[str, Any] = {f.name: f.default for f in fields(TrialSpec) if f.name not in VERSION_1}


@dataclass(frozen=True, kw_only=True)
class Execution(Record):
    """How a trial is run. Results of one spec agree up to rounding, whichever execution gave them.

    `root` is where the data lies (as `apical.data.load` takes it). `threads`: of torch; left alone where None.
    `channels_last`: None decides by device. `checkpoint_every`: seconds that must lie between two checkpoints; 0 writes
    one after each epoch. `stacking` records how the trial shared a program with others.
    """

    device: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    threads: int | None = None
    compile: bool = False
    channels_last: bool | None = None
    root: str | None = None
    checkpoint_every: float = 0.0
    dynamics: bool = True
    tensorboard: bool = False
    stacking: str = "alone"

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("device", self.device, DEVICES)
        _check_range(self, at_least={"devices": 1, "threads": 1, "checkpoint_every": 0.0})


def _parsed(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Corruptions as they write themselves."""
    if not texts:
        return ()
    from apical.data import corruptions  # noqa: PLC0415  torch

    return tuple(str(corruptions.parse(text)) for text in texts)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgumentError(f"{name} is {value!r}, but must be one of {', '.join(allowed)}")


def _check_range(
    record: Record, *, at_least: dict[str, float] | None = None, above: dict[str, float] | None = None
) -> None:
    for name, bound in (at_least or {}).items():
        value = getattr(record, name)
        if value is not None and value < bound:
            raise InvalidArgumentError(f"{name} is {value}, but must be at least {bound}")
    for name, bound in (above or {}).items():
        value = getattr(record, name)
        if value is not None and value <= bound:
            raise InvalidArgumentError(f"{name} is {value}, but must be above {bound}")


# How the paper trains each network on each data set; values that it leaves out are those of its authors' code.

_SMALL: dict[str, Any] = {"epochs": 30, "batch": 64, "learning_rate": 1e-3, "milestones": (15,)}
_PADDED = {"pad": 2}  # 28 x 28 pixels become 32 x 32
_TEXT: dict[str, Any] = {"epochs": 50, "batch": 128, "learning_rate": 5e-4, "loss": "binary"}
_CURVE: dict[str, Any] = {
    "epochs": 50,
    "passes": 100,  # 5,000 steps: the batch is the whole curve
    "batch": 1000,
    "learning_rate": 1e-2,
    "loss": "mse",
    "metric": "mse",
}

_LOGIC: dict[str, Any] = {
    "epochs": 20,
    "passes": 100,  # 2,000 steps: the batch is the four points
    "batch": 4,
    "learning_rate": 1e-2,
    "loss": "squared",
}

PROTOCOLS: dict[tuple[str, str], dict[str, Any]] = {
    ("fashion-mnist", "mlp-1"): _SMALL,
    ("fashion-mnist", "mlp-2"): _SMALL,
    ("fashion-mnist", "lenet"): _SMALL | _PADDED,
    ("fashion-mnist", "vgg-9"): _PADDED
    | {"epochs": 100, "batch": 64, "learning_rate": 1e-4, "milestones": (50,), "l2": 5e-4},
    ("moroco", "char-cnn"): _TEXT,
    ("moroco", "char-cnn-se"): _TEXT,
    ("utkface-gender", "resnet-50"): {"epochs": 15, "batch": 10, "learning_rate": 1e-4},
    ("utkface-age", "resnet-50"): {
        "epochs": 100,
        "batch": 10,
        "learning_rate": 1e-4,
        "loss": "l1",
        "metric": "mae",
    },
    ("crema-d", "resnet-18"): {"epochs": 70, "batch": 16, "learning_rate": 5e-4, "augment": True},
    ("tiny-imagenet", "resnet-18"): {"epochs": 120, "batch": 200, "learning_rate": 1e-3},
    ("imagenet", "resnet-50"): {"epochs": 300, "batch": 800, "learning_rate": 1e-4, "metric": "top-5"},
    ("sin", "mlp-approx"): _CURVE,
    ("sinc", "mlp-approx"): _CURVE,
    ("xor", "neuron"): _LOGIC,
    ("and", "neuron"): _LOGIC,
    ("or", "neuron"): _LOGIC,
}


def paper_settings(data: str, model: str) -> dict[str, Any]:
    """The settings of the paper's protocol, or none where it has no such trial."""
    return dict(PROTOCOLS.get((data, model), {}))
