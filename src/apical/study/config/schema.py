"""The study file as people write it, in TOML: its fields, what each may hold, and the JSON schema of it all.

This module checks single fields; `apical.study.config.loading` checks fields against each other.
"""

from collections.abc import Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from apical.errors import ApicalError, InvalidArgumentError, unknown
from apical.limits import BOUNDS, NAME, TEXT
from apical.nn import Unit, kinds
from apical.study.config.toml import slug
from apical.study.model import Form, Mark, Number, Place, Slug
from apical.train import TrialSpec, losses, metrics
from apical.train.spec import bounded, few

T = TypeVar("T")

# What the fields may hold, beyond their types. Each check gives the value, or a sentence that says what is wrong.

FIXED = ("data", "model", "unit", "dims", "split", "partial", "corruptions", "seed", "results_version")
"""Fields of a TrialSpec that are no training settings: the part, the row and the plan give them."""


def check_unit(text: str) -> str:
    """A unit as `Unit.parse` reads it; kept as it is written, since `ada(alpha=1)` is not to be tuned and `ada` is."""
    Unit.parse(text)
    return text


def check_model(name: str) -> str:
    """A network that there is; a factory is imported."""
    from apical.models.registry import find  # noqa: PLC0415  torch

    try:
        find(name)
    except ApicalError:
        raise
    except Exception as error:  # a factory's module may raise anything
        raise InvalidArgumentError(f"network {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    return name


def check_corruption(text: str) -> str:
    """A corruption as `apical.data.corrupt` reads it, in its canonical form."""
    from apical.data import corruptions  # noqa: PLC0415  torch

    return str(corruptions.parse(text))


def check_value(given: Any) -> Any:
    """A finite number, or a word: "learn", or a choice of the parameter."""
    if isinstance(given, str) and len(given) <= TEXT:
        return given
    least, largest = BOUNDS["value"]
    if isinstance(given, bool) or not isinstance(given, int | float) or not -inf < given < inf:
        raise ValueError(f"{given!r:.60} is neither a finite number nor a word")
    if not least <= given <= largest:
        raise ValueError(f"{given!r:.60} is a number that must lie between {least:g} and {largest:g}")
    return float(given)


def check_distinct(values: list[T]) -> list[T]:
    """No value twice: it would be trained twice."""
    if len(set(values)) < len(values):
        raise ValueError(f"{values} holds a value twice")
    return values


def check_data(name: str) -> str:
    """A data set that there is, or the user's own by its path; what is in it is seen when the study runs."""
    from apical.data import registry  # noqa: PLC0415

    if not _own(name):
        registry.get(name)
    elif not Path(name).expanduser().exists():
        raise InvalidArgumentError(
            f"there is no {name} in {Path.cwd()}: give a path from where you run apical, or a name"
        )
    return name


def _own(name: str) -> bool:
    """True for what `apical.data.load` takes for a path."""
    from apical.data import registry  # noqa: PLC0415

    path = any(sign in name for sign in "/\\") or name.endswith((".csv", ".npz"))
    return name not in registry.RECIPES and (path or Path(name).exists())


def check_split(name: str, wanted: str) -> str:
    """What is wrong with asking a data set for a split; "" if nothing is."""
    from apical.data import registry  # noqa: PLC0415

    splits = ("paper",) if _own(name) else registry.get(name).splits
    return "" if wanted in splits else f"{name} has no split {wanted!r}: it has {', '.join(map(repr, splits))}"


def check_dims(network: str, given: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with the arguments of a network, by name."""
    faults = {key: _fault({"dims": {key: item}}) for key, item in given.items()}
    allowed = arguments(network)
    if allowed is not None:
        own = f"network {network!r} has no such argument: it has {', '.join(allowed)}"
        faults |= {key: own for key in given if key not in allowed}
    return {key: fault for key, fault in faults.items() if fault}


def arguments(network: str) -> list[str] | None:
    """The arguments of a network but its unit; None where it takes any, or does not say."""
    from apical.models.registry import find  # noqa: PLC0415  torch

    try:
        parameters = find(network).parameters
    except (TypeError, ValueError):  # some functions written in C do not say
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    return [name for name in parameters if name != "unit"]


def check_task(data_name: str, network: str, settings: Mapping[str, Any]) -> str:
    """What is wrong with settings together, and with loss and metric for a data set that apical knows; "" if none."""
    from apical.data.registry import RECIPES  # noqa: PLC0415

    try:
        spec = TrialSpec.paper(data_name, network, **settings)
    except InvalidArgumentError as error:
        return str(error)
    if data_name not in RECIPES:
        return ""
    kind = RECIPES[data_name].task
    for name, allowed in (("loss", losses.names(kind)), ("metric", metrics.names(kind))):
        if getattr(spec, name) not in allowed:
            return f"{name} is {getattr(spec, name)!r}, but {data_name} is a {kind} task: use {' or '.join(allowed)}"
    return ""


def training_settings() -> list[str]:
    """The names of the training settings that a study file may give."""
    return [field.name for field in fields(TrialSpec) if field.name not in FIXED]


_EVOLVED = {"optimiser": "cma-es", "learning_rate": 1.0}
WITH: dict[str, dict[str, Any]] = {"optimiser": {"learning_rate": 1.0}, "population": _EVOLVED, "sigma": _EVOLVED}
"""What a setting stands beside while it is checked alone: some go with others only, and `check_task` sees them all."""


def check_training(given: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with training settings, by name. Every field of TrialSpec is one that is not in FIXED."""
    known = training_settings()
    faults = {
        key: "not a training setting: set it in the part or the row"
        if key in FIXED
        else _fault(WITH.get(key, {}) | {key: value})
        if key in known
        else unknown("training setting", key, known)
        for key, value in given.items()
    }
    return {key: fault for key, fault in faults.items() if fault}


def _fault(some: dict[str, Any]) -> str:
    """What a TrialSpec says of some of its fields; "" if nothing."""
    try:
        TrialSpec.from_dict({"data": "digits", "model": "mlp-1"} | some)
    except InvalidArgumentError as error:
        return str(error)
    except OverflowError:
        return "the number is too large"
    return ""


def check_tuning(text: str, parameter: str, value: Any) -> str:
    """What is wrong with trying a value of a parameter of a unit; "" if nothing is."""
    if parameter not in kinds.open_parameters(text):
        return f"unit {text!r} has no {parameter} to tune, or fixes it itself"
    try:
        Unit.parse(text).with_(**{parameter: value})
    except ApicalError as error:
        return str(error)
    return ""


# The tables of a study file.

Text = Annotated[str, Field(min_length=1, max_length=TEXT)]
Name = Annotated[str, Field(min_length=1, max_length=NAME)]
"""Of a part, with * for any letters."""
UnitText = Annotated[str, AfterValidator(check_unit)]
Setting = Annotated[
    Any, AfterValidator(check_value), WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})
]
Grid = Annotated[list[Setting], Field(min_length=1), few("values"), AfterValidator(check_distinct)]
Tune = Annotated[dict[str, Grid], few("parameters")]
"""Values to try of each parameter of a unit, by name; "learn" lets training find it where the unit allows that.

`learning_rate` and, in a row's own table, dimensions of the network can be tried too.
"""
Training = dict[str, Any]


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


SECONDS = "seconds"
"""What tables print beside metrics: of an epoch."""


def printable() -> tuple[str, ...]:
    """What a paper can print of a row: every metric, built in and registered, and the seconds of an epoch."""
    return (*metrics.names(), SECONDS)


class Printed(_Table):
    """What a paper prints of one row in one part, by metric: shares in per cent, other values as they are."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number]
    mark: Annotated[Mark, Field(description="significance: dagger 0.05, ddagger 0.01")] = ""
    alpha: Setting | None = None
    c: Number | None = None


class PartTable(_Table):
    """One condition: data, corruption, network and training settings."""

    name: Slug
    title: Annotated[str, Field(max_length=TEXT)] = ""
    data: Annotated[Text, AfterValidator(check_data), Field(description="a name from `apical data list`, or a path")]
    model: Annotated[Text, AfterValidator(check_model), Field(description="a network, or package.module:factory")]
    dims: Annotated[dict[str, Any], few("dims"), Field(description="further arguments of the network")] = {}
    corruptions: Annotated[list[Annotated[Text, AfterValidator(check_corruption)]], few("corruptions")] = []
    split: Text = "paper"
    partial: Annotated[Text | None, Field(description="the mark of a subset, as `apical data list` shows it")] = None
    x: Annotated[Place | None, Field(description="the place on the horizontal axis of a curve")] = None
    training: Training = {}
    tuned_on: Annotated[Slug | None, Field(description="the part whose trials choose the settings of this one")] = None


class RowTable(_Table):
    """One unit, in all parts or in those that `parts` names (* matches any characters)."""

    unit: UnitText
    name: Annotated[Slug | None, Field(description="what keys call the row; made of the unit if left out")] = None
    label: Annotated[Text | None, Field(description="what tables call the row")] = None
    parts: Annotated[list[Name], Field(min_length=1), few("parts")] = ["*"]
    group: Slug | None = None
    tune: Tune | None = None
    paper: Annotated[dict[str, Printed], Field(description="the printed numbers, by part")] = {}
    quoted: Annotated[bool, Field(description="somebody else's numbers: never trained")] = False
    x: Place | None = None

    @property
    def called(self) -> str:
        """The name of the row, given or made of its unit."""
        return self.name or slug(self.unit)

    def stands_in(self, part: str) -> bool:
        """True where the row belongs to that part."""
        return any(fnmatchcase(part, pattern) for pattern in self.parts)


class GroupTable(_Table):
    """Rows that are compared with each other, and the one that the others are tested against."""

    name: Slug
    title: Text
    baseline: Slug


GROUPS = (
    GroupTable(name="standard", title="Standard neurons", baseline="relu"),
    GroupTable(name="leaky", title="Leaky standard neurons", baseline="leaky-relu"),
    GroupTable(name="pyramidal", title="Pyramidal neurons", baseline="pynrelu"),
)
"""The paper's three groups, within which models have the same number of parameters."""


class QuestionTable(_Table):
    """What the study is to answer, and by which rule: written before it runs."""

    asks: Annotated[Text, Field(description="the question, in one sentence")]
    hypothesis: Annotated[Text, Field(description="the answer that is expected, and why")]
    row: Annotated[Slug, Field(description="the row that the question is about")]
    against: Annotated[list[Slug], Field(min_length=1, description="the rows that it is compared with"), few("rows"),
                       AfterValidator(check_distinct)]  # fmt: skip
    parts: Annotated[
        list[Name], Field(min_length=1, description="where it is compared; * matches any characters"), few("parts")
    ] = ["*"]
    metric: Annotated[Text | None, Field(description="the metric that decides; the parts' own, if left out")] = None
    reaches: Annotated[Number | None, Field(description="a trial counts 1 where its metric reaches this, else 0")] = (
        None
    )
    effect: Annotated[
        float, bounded("effect"), Field(description="the smallest difference of interest, in the unit of the score")
    ]
    deviation: Annotated[
        float, bounded("deviation"), Field(description="of the difference of two trials with equal seeds, expected")
    ]
    power: Annotated[
        float, bounded("power"), Field(description="the probability to show the effect where it is there")
    ] = 0.8
    yes: Annotated[Text, Field(description="what it means if every comparison is supported")]
    no: Annotated[Text, Field(description="what it means if one is contradicted or negligible")]
    undecided: Annotated[Text, Field(description="what it means otherwise")]


class QuickTable(_Table):
    """What `--quick` changes; left out: 2 trials, a tenth of the epochs, two values of each tuned parameter."""

    always: Annotated[bool, Field(description="true: this study is itself a reduced one")] = False
    trials: Annotated[int, bounded("trials")] | None = None
    samples: Annotated[
        Annotated[int, bounded("samples")] | None, Field(description="at most so many of each split; all, if left out")
    ] = None
    training: Training = {}
    tune: Tune = {}


class StudyTable(_Table):
    """A study file."""

    format: Literal[1] = 1
    extends: Annotated[
        Text | None, Field(description="a shipped study, or the path of a file, that this one varies")
    ] = None
    name: Annotated[Slug | None, Field(description="the name of the file, if left out")] = None
    title: Text
    source: Annotated[str, Field(max_length=TEXT)] = ""
    notes: Annotated[list[Text], few("notes")] = []
    form: Form = "table"
    axis: Annotated[str, Field(max_length=TEXT)] = ""
    trials: Annotated[int, bounded("trials")] = 5
    first_seed: Annotated[int, bounded("first_seed"), Field(description="the seed of the first trial")] = 0
    tune_trials: Annotated[
        int, bounded("tune_trials"), Field(description="trials that decide between the settings of a row")
    ] = 1
    stack: Annotated[int, bounded("stack"), Field(description="how many trials may share one program; 1: none")] = 8
    imports: Annotated[
        list[Text], few("imports"), Field(description="modules that register your units, networks, metrics, ...")
    ] = []
    training: Annotated[Training, Field(description="training settings of all parts")] = {}
    tune: Annotated[Tune, Field(description="what every row tries whose unit has the parameter")] = {}
    only_parts: Annotated[list[Name], few("parts")] | None = None
    only_rows: Annotated[list[Name], few("rows")] | None = None
    parts: Annotated[list[PartTable], Field(min_length=1), few("parts")]
    rows: Annotated[list[RowTable], Field(min_length=1), few("rows")]
    groups: Annotated[list[GroupTable], few("groups")] | None = None
    question: QuestionTable | None = None
    quick: QuickTable = QuickTable()


def fields_at(path: tuple[str | int, ...]) -> list[str]:
    """The names of the fields that the table at a path may have."""
    names = [step for step in path if isinstance(step, str)]
    if names[-1:] == ["training"]:
        return training_settings()
    inner: dict[str, type[BaseModel]] = {
        "parts": PartTable,
        "rows": RowTable,
        "groups": GroupTable,
        "question": QuestionTable,
        "quick": QuickTable,
    }
    table = inner.get(names[0], StudyTable) if names else StudyTable
    return [field.alias or name for name, field in table.model_fields.items()]


def schema() -> dict[str, Any]:
    """The JSON schema of a study file, for editors and other programs."""
    described = StudyTable.model_json_schema(by_alias=True)
    needed = described.pop("required")
    described["$defs"]["PartTable"]["required"] = ["name"]  # the rest may come from the study that is extended
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **described,
        "anyOf": [{"required": ["extends"]}, {"required": needed}],
    }
