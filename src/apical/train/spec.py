"""What a trial is (TrialSpec: frozen, hashed) and how it is run (Execution: recorded, not hashed)."""

import hashlib
import json
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from typing import Annotated, Any, Self, TypeVar, get_type_hints

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from apical import files, imports
from apical.errors import InvalidArgumentError, near, unknown
from apical.limits import BOUNDS, COUNTS, TEXT
from apical.nn import Unit
from apical.train import losses, metrics

RESULTS_VERSION = 1
"""Changes where the same spec would give other numbers than before."""

VERSION_1 = frozenset((
    "data", "model", "unit", "dims", "convert", "split", "partial", "corruptions", "pad", "size", "augment", "loss",
    "metric", "optimiser", "learning_rate", "milestones", "decay", "l2", "clip", "epochs", "passes", "batch", "seed",
    "precision", "results_version",
))  # fmt: skip
"""The fields that always enter files and digests. One that is added later does so where it has not its default: a trial
that does not use it keeps its name."""

EVOLUTION = ("es", "cma-es")
"""Without gradients, by `apical.train.evolution`."""
OPTIMISERS = ("adam", "adamw", "sgd", *EVOLUTION)
PRECISIONS = ("32", "bf16-mixed", "16-mixed")
DEVICES = ("auto", "cpu", "cuda", "mps")
LOGGERS = ("tensorboard", "wandb", "mlflow")
"""The modules of `apical.train.loggers`; each is a field of Execution."""

T = TypeVar("T")
Many = Annotated[tuple[T, ...], BeforeValidator(lambda given: tuple(given) if isinstance(given, list) else given)]
Count = Annotated[int, Field(ge=1, le=65_536)]
"""Of devices and threads."""


def bounded(name: str) -> Any:
    """What pydantic is to check of a field, by its name in `limits.BOUNDS`."""
    least, largest = BOUNDS[name]
    return Field(ge=least, le=largest)


def few(name: str) -> Any:
    """The same for the length of a list or table, by its name in `limits.COUNTS`."""
    return Field(max_length=COUNTS[name])


Text = Annotated[str, Field(max_length=TEXT)]


# Records are written as JSON or TOML and read back equal; unknown fields are refused.


class Record:
    """What TrialSpec and Execution share; subclasses are frozen dataclasses of plain values."""

    def __post_init__(self) -> None:
        for name, adapter in _adapters(type(self)).items():  # type: ignore[arg-type]  # mypy takes a class for its instances
            self._check(name, adapter)

    def _check(self, name: str, adapter: TypeAdapter[Any]) -> None:
        value = getattr(self, name)
        try:
            object.__setattr__(self, name, adapter.validate_python(value))
        except ValidationError as error:
            raise _sentence(name, value, error.errors()[0]) from None

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON knows values: lists for tuples."""
        return {name: _plain(value) for name, value in asdict(self).items()}  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The record with these fields; the others take their defaults."""
        names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        for key in values:
            if key not in names:
                close = near(str(key), names)
                hint = f"did you mean {close[0]!r}? " if close else ""
                raise InvalidArgumentError(f"{cls.__name__} has no field {key!r}; {hint}available: {', '.join(names)}")
        try:
            return cls(**values)
        except TypeError as error:  # a required field is missing
            raise InvalidArgumentError(f"{cls.__name__}: {str(error).split('__init__() ')[-1]}") from error

    def to_json(self) -> str:
        """JSON text with sorted keys."""
        return json.dumps(self.as_dict(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The record that `to_json` wrote."""
        try:
            values = files.parse_json(text)
        except ValueError as error:
            raise InvalidArgumentError(f"not the JSON of a {cls.__name__}: {error}") from error
        return cls._from_parsed(values)

    def to_toml(self) -> str:
        """TOML text; fields without a value are left out."""
        plain = {name: value for name, value in self.as_dict().items() if value is not None}
        tables = {name: value for name, value in plain.items() if isinstance(value, dict)}
        lines = [f"{name} = {_toml(value)}" for name, value in plain.items() if name not in tables]
        for name, table in tables.items():
            lines += ["", f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in table.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """The record that `to_toml` wrote."""
        try:
            values = files.parse_toml(text)
        except ValueError as error:
            raise InvalidArgumentError(f"not the TOML of a {cls.__name__}: {error}") from error
        return cls._from_parsed(values)

    @classmethod
    def _from_parsed(cls, values: Any) -> Self:
        if not isinstance(values, dict):
            raise InvalidArgumentError(f"a {cls.__name__} is a table of fields, not {values!r:.50}")
        return cls.from_dict(values)


_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_WORDS = {
    "string_type": "a text", "int_type": "a whole number", "float_type": "a finite number",
    "finite_number": "a finite number", "bool_type": "true or false", "tuple_type": "a list",
    "dict_type": "a table of names and values", "string_too_long": "a text of at most {max_length} characters",
    "too_long": "of at most {max_length} entries", "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}  # fmt: skip
"""What must be, by pydantic's name of the error."""


@cache
def _adapters(record: type) -> dict[str, TypeAdapter[Any]]:
    hints = get_type_hints(record, include_extras=True)
    return {name: TypeAdapter(hint, config=_STRICT) for name, hint in hints.items()}


def _sentence(name: str, value: Any, error: Any) -> InvalidArgumentError:
    own = error.get("ctx", {}).get("error")
    if isinstance(own, InvalidArgumentError):
        return own
    words = _WORDS.get(error["type"], error["msg"]).format(**error.get("ctx", {}))
    return InvalidArgumentError(f"{name} is {value!r:.200}, but must be {words}")


def _dims(values: dict[str, Any]) -> dict[str, Any]:
    return {key: _frozen(f"dims.{key}", value) for key, value in values.items()}


def _frozen(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) <= COUNTS["dims"]:
        return tuple(_frozen(name, item) for item in value)
    least, largest = BOUNDS["dims"]
    if isinstance(value, bool) or (isinstance(value, int | float) and least <= value <= largest):
        return value
    if isinstance(value, str) and len(value) <= TEXT:
        return value
    raise InvalidArgumentError(
        f"{name} is {value!r:.200}, but must be a text, true, false, a number from {least:,} to {largest:,}, "
        f"or a list of at most {COUNTS['dims']} of them"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):  # JSON's escapes are TOML's, but for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _key(name: str) -> str:
    plain = name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if plain else _toml(name)


@dataclass(frozen=True, kw_only=True)
class TrialSpec(Record):
    """One trial: two equal specs are the same trial, and `digest` names it.

    `data`, `model`, `unit`, `corruptions` are named as `apical.data.load`, `apical.models.create`, `Unit.parse` and
    `apical.data.corrupt` read them; `dims` are further arguments of the network. With `convert`, the network is built
    with ReLU and rewritten by `convert_`. `partial` is the mark of a subset, as the data set has it, and must match
    it. The learning rate is multiplied by `decay` at each epoch in `milestones`. `l2` is the weight of the penalty
    sum(w^2)/2 over weights (not biases, norms and activations). `batch` counts the samples of all devices
    together; an epoch is `passes` passes over the training samples. `robustness` is what is measured beside the metrics
    when the test split is opened, as `apical.train.assessment` reads it. With the optimiser "es" or "cma-es" a step is
    a generation of `population` networks with the deviation `sigma` (of "cma-es": the first) around the present one.
    """

    data: Text
    model: Text
    unit: Text = "relu"
    dims: Annotated[dict[str, Any], few("dims"), AfterValidator(_dims)] = field(default_factory=dict)
    convert: bool = False
    split: Text = "paper"
    partial: Text | None = None
    corruptions: Annotated[Many[Text], few("corruptions")] = ()
    pad: Annotated[int, bounded("pad")] = 0
    size: Annotated[int, bounded("size")] | None = None
    augment: bool = False
    loss: Text = "cross-entropy"
    metric: Text = "accuracy"
    optimiser: str = "adam"
    learning_rate: Annotated[float, bounded("learning_rate")] = 1e-3
    milestones: Annotated[Many[Annotated[int, bounded("milestones")]], few("milestones")] = ()
    decay: Annotated[float, bounded("decay")] = 0.1
    l2: Annotated[float, bounded("l2")] = 0.0
    clip: Annotated[float, bounded("clip")] | None = None
    epochs: Annotated[int, bounded("epochs")] = 30
    passes: Annotated[int, bounded("passes")] = 1
    batch: Annotated[int, bounded("batch")] = 64
    seed: Annotated[int, bounded("seed")] = 0
    precision: str = "32"
    results_version: int = RESULTS_VERSION
    robustness: Annotated[Many[Text], few("corruptions")] = ()
    population: Annotated[int, bounded("population")] = 100
    sigma: Annotated[float, bounded("sigma")] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "unit", str(Unit.parse(self.unit)))
        object.__setattr__(self, "corruptions", _parsed(self.corruptions))
        object.__setattr__(self, "robustness", _assessments(self.robustness))
        losses.find(self.loss)
        if self.metric not in metrics.names():
            raise InvalidArgumentError(
                unknown("metric", self.metric, metrics.names(), imports.adding("register_metric"))
            )
        _one_of("optimiser", self.optimiser, OPTIMISERS)
        _one_of("precision", self.precision, PRECISIONS)
        _check_evolution(self)

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def paper(cls, data: str, model: str, **changes: Any) -> Self:
        """The paper's protocol for this network on this data, with `changes`; the defaults where it has none."""
        return cls.from_dict({"data": data, "model": model} | paper_settings(data, model) | changes)

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON knows values; later ones than version 1 where they have not their default."""
        return without_later_defaults(super().as_dict())

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
        """The same trial with another seed; its other fields were checked when it was made."""
        other = copy(self)
        object.__setattr__(other, "seed", seed)
        other._check("seed", _adapters(TrialSpec)["seed"])
        other.__dict__.pop("digest", None)
        return other


def digest(values: Mapping[str, Any]) -> str:
    """The name of the trial with these fields, as `as_dict` gives them: sha256 of the canonical JSON."""
    text = json.dumps(without_later_defaults(values), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def without_later_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without those that came after version 1 and have their default."""
    return {
        name: value for name, value in values.items() if name not in LATER_DEFAULTS or value != LATER_DEFAULTS[name]
    }


LATER_DEFAULTS: dict[str, Any] = {f.name: _plain(f.default) for f in fields(TrialSpec) if f.name not in VERSION_1}


@dataclass(frozen=True, kw_only=True)
class Execution(Record):
    """How a trial is run. Results of one spec agree up to rounding, whichever execution gave them.

    `root` is where the data lies (as `apical.data.load` takes it). `threads`: of torch; left alone where None.
    `channels_last`: of torch; None decides by device, precision and network, and a result records True where that was
    the decision. `winograd`: 3x3 convolutions by Winograd's algorithm, on a CPU in float32; None decides by network,
    and a result records True likewise. `checkpoint_every`: seconds that must lie between two checkpoints; 0 writes one
    after each epoch. `tensorboard`, `wandb` and `mlflow` log each epoch there too. `stacking` records how the trial
    shared a program with others: `stacked(k, place)`, with k = 1 where our convolutions served a single trial, or
    `alone`.
    """

    device: str = "auto"
    devices: Count = 1
    strategy: str = "auto"
    threads: Count | None = None
    compile: bool = False
    channels_last: bool | None = None
    root: str | None = None
    checkpoint_every: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    dynamics: bool = True
    tensorboard: bool = False
    stacking: str = "alone"
    wandb: bool = False
    mlflow: bool = False
    winograd: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("device", self.device, DEVICES)

    def as_dict(self) -> dict[str, Any]:
        """The fields by name; those that came after version 1 only where they are not at their default."""
        later = {"wandb": False, "mlflow": False, "winograd": None}
        return {name: value for name, value in super().as_dict().items() if name not in later or value != later[name]}


def _parsed(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Corruptions as they write themselves."""
    if not texts:
        return ()
    from apical.data import corruptions  # noqa: PLC0415  torch

    return tuple(str(corruptions.parse(text)) for text in texts)


def _assessments(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Assessments as they write themselves."""
    if not texts:
        return ()
    from apical.train import assessment  # noqa: PLC0415  torch

    kinds = [assessment.parse(text).kind for text in texts]
    if len({*kinds}) < len(kinds):
        raise InvalidArgumentError(f"robustness is {list(texts)}, but must name each assessment at most once")
    return tuple(str(assessment.parse(text)) for text in texts)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgumentError(f"{name} is {value!r}, but must be one of {', '.join(allowed)}")


def _check_evolution(spec: TrialSpec) -> None:
    """Settings that belong to training with gradients, or without them, and not to the other."""
    if spec.optimiser not in EVOLUTION:
        for name in ("population", "sigma"):
            if getattr(spec, name) != LATER_DEFAULTS[name]:
                raise InvalidArgumentError(
                    f"{name} is {getattr(spec, name)}, but the optimiser {spec.optimiser!r} has no population: leave "
                    f"{name} out, or use optimiser='es' or 'cma-es'"
                )
        return
    if spec.optimiser == "es" and spec.population % 2:
        raise InvalidArgumentError(f"population is {spec.population}, but es needs an even number: it draws pairs")
    if spec.optimiser == "cma-es" and not 0.1 <= spec.learning_rate <= 1:
        raise InvalidArgumentError(
            f"learning_rate is {spec.learning_rate:g}, but with cma-es it is the share of a step that is taken and "
            "must lie in [0.1, 1]: use learning_rate=1"
        )
    if spec.clip is not None or spec.precision != "32":
        raise InvalidArgumentError(
            f"clip is {spec.clip} and precision is {spec.precision!r}, but {spec.optimiser} has no gradient to clip "
            "and computes in float32: leave both out"
        )


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
