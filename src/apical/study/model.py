"""What a study is, as plain data: parts x rows, frozen, written as JSON and read back equal. No torch in here.

A *part* is one condition (data, corruption, network, training settings); a *row* is one unit within one part. The TOML
that people write is `apical.study.config.schema`; `apical.study.load` turns it into a `Study`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_serializer, model_validator

from apical import imports, trust
from apical.errors import InvalidArgumentError, StudyError
from apical.limits import NAME, TEXT
from apical.nn import Unit, kinds
from apical.train import metrics
from apical.train.metrics import Metric
from apical.train.spec import bounded, few

T = TypeVar("T")

FORMAT = 1
"""The version of the layout of `Study.to_dict()`; a newer one is refused with a sentence."""

# Types of fields, with their bounds: a study may be read from anybody's file. The schema of study files has the same.
_SLUG = "[a-z0-9][a-z0-9._-]*"
Slug = Annotated[str, Field(pattern=f"^{_SLUG}$", max_length=NAME)]
"""A name: it becomes part of keys and of the names of files."""
Text = Annotated[str, Field(max_length=TEXT)]
Number = Annotated[float, bounded("value")]
Place = Annotated[float, bounded("x")]
Value = Number | Text
"""A value of a tuned parameter: a number, "learn", or one of its words."""
Grid = Annotated[tuple[Value, ...], Field(min_length=1), few("values")]
Color = Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]
Mark = Literal["", "dagger", "ddagger"]
"""Significance as the paper prints it: none, 0.05, 0.01."""
State = Literal["planned", "running", "done", "diverged", "failed"]
"""Of a trial."""
STATES: tuple[State, ...] = ("planned", "running", "done", "diverged", "failed")
FINISHED: tuple[State, ...] = ("done", "diverged")
Form = Literal["table", "curve", "approximation", "logic"]
"""How a report shows a study."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    later: ClassVar[tuple[str, ...]] = ()
    """Fields that were added after version 1: they enter files and digests only where they have not their default."""

    @model_serializer(mode="wrap")
    def _lasting(self, dump: Callable[[Self], dict[str, Any]]) -> dict[str, Any]:
        unused = {name for name in self.later if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in dump(self).items() if name not in unused}


class PaperNumber(_Frozen):
    """A number as the paper prints it: accuracies in per cent, MAE in years, seconds per epoch.

    `alpha` and `c` are those that the paper prints beside it; None where it prints none.
    """

    value: Number
    mark: Mark = ""
    alpha: Value | None = None
    c: Number | None = None


class Part(_Frozen):
    """One condition. `training` holds what differs from the paper's protocol for this data and network.

    `metric` is the one that selects and that the table shows. `x` is the place on the horizontal axis of a curve,
    `partial` the mark of a subset, as the data set has it. With `tuned_on` its rows take the settings that were chosen
    for the rows of that name in another part.
    """

    later: ClassVar[tuple[str, ...]] = ("tuned_on",)

    name: Slug
    title: Text
    data: Text
    model: Text
    dims: Annotated[dict[Text, Any], few("dims")] = {}
    corruptions: Annotated[tuple[Text, ...], few("corruptions")] = ()
    split: Text = "paper"
    partial: Text | None = None
    x: Place | None = None
    training: dict[Text, Any] = {}
    metric: Text = "accuracy"
    tuned_on: Slug | None = None


class Row(_Frozen):
    """One unit within one part; `unit` stands without the values in `tune`, whose grid gives the settings.

    `tune` holds parameters of the unit, dimensions of the network, and the learning rate.

    A `quoted` row holds somebody else's numbers and is never trained. `x` is its place on the horizontal axis, where
    the axis is a property of the unit (the alpha of the ablation).
    """

    key: Annotated[str, Field(pattern=f"^{_SLUG}/{_SLUG}$", max_length=2 * NAME + 1)]
    part: Slug
    label: Text
    unit: Text
    tune: Annotated[dict[Text, Grid], few("parameters")] = {}
    group: Slug | None = None
    paper: dict[Text, PaperNumber] = {}
    quoted: bool = False
    x: Place | None = None

    @property
    def name(self) -> str:
        """The key without its part: what groups call the row."""
        return self.key.partition("/")[2]

    @property
    def settings(self) -> int:
        """How many combinations of tuned values there are."""
        return prod(map(len, self.tune.values()))


class Group(_Frozen):
    """Rows that are compared with each other, by name, within each part.

    Tests are against `baseline` or, where the study trains no row of that name, the first of the group that it trains.
    """

    name: Slug
    title: Text
    baseline: Slug
    rows: Annotated[tuple[Slug, ...], few("rows")]


class Question(_Frozen):
    """What a study was made to answer, and the rule of the answer, fixed before it runs.

    `row` is compared with each of the rows `against`, by name, in each of `parts`. The score of a trial is its test
    `metric` or, where `reaches` is given, 1 if the metric reaches that value and 0 if not. `effect` is the smallest
    difference of interest, in the unit of the score (0.01 is a point of accuracy), `deviation` what one pair of trials
    was expected to have, `seeds` what then shows the effect with a probability of `power`. `yes`, `no` and `undecided`
    say in words what each answer would mean; `apical.report` gives it.
    """

    asks: Text
    hypothesis: Text
    row: Slug
    against: Annotated[tuple[Slug, ...], few("rows")]
    parts: Annotated[tuple[Slug, ...], few("parts")]
    metric: Text
    reaches: Number | None = None
    effect: Annotated[float, bounded("effect")]
    deviation: Annotated[float, bounded("deviation")]
    power: Annotated[float, bounded("power")]
    seeds: Annotated[int, bounded("trials")]
    yes: Text
    no: Text
    undecided: Text

    @property
    def meanings(self) -> dict[str, str]:
        """What each answer would mean."""
        return {"yes": self.yes, "no": self.no, "undecided": self.undecided}


class MetricFacts(_Frozen):
    """What tables and selection ask about a metric of the user's: fields of `apical.train.Metric`."""

    name: Text
    title: Text
    larger_is_better: bool
    task: Literal["classification", "regression"] | None = None
    right_or_wrong: bool = False
    by_trial: bool = False
    percent: bool = False
    unit: Text = ""
    format: Annotated[str, Field(pattern=metrics.FORMAT)] = ""


class Study(_Frozen):
    """A study: what is trained, how often, how it is compared, and what the paper printed.

    `base` is the shipped study that this one is or varies ("" for others): the paper's claims are about it. `quick`
    marks a reduced variant. Trial k has the seed `first_seed` + k; `tune_trials` of them decide between the settings of
    a row. `stack` is how many trials may share one program. `imports` are modules that register
    units, networks, metrics and the like: `enable` imports them. `question` is what a study of one's own is to answer.
    `metrics` and `colors` (of kinds of units, on light
    and on dark pages) are what these modules say about what the study uses; `described` fills them in.
    """

    later: ClassVar[tuple[str, ...]] = ("metrics", "colors", "first_seed", "tune_trials", "question")

    format: int = FORMAT
    name: Slug
    title: Text
    source: Text = ""
    notes: Annotated[tuple[Text, ...], few("notes")] = ()
    base: Text = ""
    quick: bool = False
    form: Form = "table"
    axis: Text = ""
    trials: Annotated[int, bounded("trials")] = 5
    stack: Annotated[int, bounded("stack")] = 8
    imports: Annotated[tuple[Text, ...], few("imports")] = ()
    parts: Annotated[tuple[Part, ...], few("parts")]
    rows: Annotated[tuple[Row, ...], few("rows")]
    groups: Annotated[tuple[Group, ...], few("groups")] = ()
    metrics: Annotated[tuple[MetricFacts, ...], few("groups")] = ()
    colors: Annotated[dict[Text, tuple[Color, Color]], few("groups")] = {}
    first_seed: Annotated[int, bounded("first_seed")] = 0
    tune_trials: Annotated[int, bounded("tune_trials")] = 1
    question: Question | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Parts, rows and groups that name each other are there, each once."""
        if len(self._parts) < len(self.parts) or len(self._rows) < len(self.rows):
            raise ValueError("a part or row occurs twice")
        groups = {group.name for group in self.groups}
        for row in self.rows:
            if row.part not in self._parts or not row.key.startswith(f"{row.part}/"):
                raise ValueError(f"row {row.key!r} names part {row.part!r}, which does not exist or is not in its key")
            if row.group is not None and row.group not in groups and not row.quoted:
                raise ValueError(f"row {row.key!r} is in group {row.group!r}, which does not exist")
            source = self._parts[row.part].tuned_on
            if source is not None and not row.quoted and f"{source}/{row.name}" not in self._rows:
                raise ValueError(f"row {row.key!r} is tuned on part {source!r}, which has no such row")
        for part in self.parts:
            if part.tuned_on is not None and self._parts[part.tuned_on].tuned_on is not None:
                raise ValueError(f"part {part.name!r} is tuned on {part.tuned_on!r}, which is itself tuned on another")
        return self

    def part(self, name: str) -> Part:
        """The part of that name."""
        return _found("part", name, self._parts)

    def row(self, key: str) -> Row:
        """The row of that key, `<part>/<name>`."""
        return _found("row", key, self._rows)

    def group(self, name: str) -> Group:
        """The group of that name."""
        return _found("group", name, {group.name: group for group in self.groups})

    def baseline(self, row: Row) -> Row | None:
        """What a row is tested against: its group's baseline in the same part; None for the baseline itself."""
        if row.group is None:
            return None
        key = f"{row.part}/{self._baselines[self.group(row.group).name]}"
        return None if key == row.key else self._rows.get(key)

    def place(self, row: Row) -> float | None:
        """Where a row stands on the horizontal axis of a curve."""
        return row.x if row.x is not None else self.part(row.part).x

    @property
    def trained(self) -> tuple[Row, ...]:
        """The rows that are not quoted."""
        return tuple(row for row in self.rows if not row.quoted)

    @property
    def pairs(self) -> tuple[tuple[Row, Row], ...]:
        """The rows that are compared, each with what it is compared with."""
        pairs = ((row, self.baseline(row)) for row in self.trained)
        return tuple((row, base) for row, base in pairs if base is not None and not base.quoted)

    def metric(self, name: str) -> Metric:
        """The facts of a metric: a built-in or registered one, or else one that the study was made with."""
        stored = {facts.name: facts for facts in self.metrics}
        if name in stored and name not in metrics.names():
            return Metric(**stored[name].model_dump())
        return metrics.find(name)

    def modules(self, *, networks: bool = True, loaded: bool = True) -> tuple[str, ...]:
        """The modules whose code this study names; those of its `networks` are needed to train, not to read.

        Without `loaded`, units that are classes of modules imported already are left out: they bring no code.
        """
        models = [part.model for part in self.parts] if networks else []
        units = (trust.named if loaded else kinds.foreign)(*(row.unit for row in self.rows))
        places = (*trust.named(*models), *units)
        return tuple(dict.fromkeys([*self.imports, *(place.partition(":")[0] for place in places)]))

    def enable(self) -> Self:
        """Import the modules that register what this study uses; call it before a unit is parsed."""
        import_all(self.imports)
        return self

    def described(self) -> Self:
        """The study with the facts of the user's metrics and kinds of units that it uses, or that it imports."""
        used = {part.metric for part in self.parts} | {name for row in self.rows for name in row.paper}
        own = [
            m for m in metrics.registered() if m.name in used or getattr(m.compute, "__module__", "") in self.imports
        ]
        facts = tuple(MetricFacts(**{name: getattr(m, name) for name in MetricFacts.model_fields}) for m in own)
        names = dict.fromkeys(Unit.parse(row.unit).kind for row in self.rows)
        colors = {name: pair for name in names if (pair := kinds.color(name)) and not kinds.built_in(name)}
        return self.model_copy(update={"metrics": facts, "colors": colors})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A changed study; what was worked out for this one does not go with it."""
        copied = super().model_copy(update=update, deep=deep)
        for name in ("digest", "_parts", "_rows", "_baselines"):
            copied.__dict__.pop(name, None)
        return copied

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, origin: object = "this") -> Self:
        """The study that `to_dict` wrote, or a StudyError about `origin`."""
        given = values.get("format") if isinstance(values, Mapping) else None
        if isinstance(given, int) and given > FORMAT:
            raise StudyError(f"{origin} has format {given}, but this apical reads up to {FORMAT}: update apical")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            where = ".".join(map(str, fault["loc"]))[:NAME]
            said = f"{where}: {fault['msg']}" if where else fault["msg"].removeprefix("Value error, ")
            raise StudyError(f"{origin} is not a valid study: {said}") from error

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical JSON."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _parts(self) -> dict[str, Part]:
        return {part.name: part for part in self.parts}

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return {row.key: row for row in self.rows}

    @cached_property
    def _baselines(self) -> dict[str, str]:
        """By group, the name of the row that its rows are tested against."""
        trained = dict.fromkeys(row.name for row in self.trained)
        first = {row.group: row.name for row in reversed(self.trained)}
        return {g.name: g.baseline if g.baseline in trained else first.get(g.name, g.baseline) for g in self.groups}


def _found(what: str, name: str, there: Mapping[str, T]) -> T:
    if name not in there:
        raise InvalidArgumentError(f"the study has no {what} {name!r}; available: {', '.join(there) or 'none'}")
    return there[name]


# Modules of the user's that register units and networks.


def import_all(modules: Iterable[str]) -> None:
    """Import each module, or say which one cannot be, or was not allowed."""
    for name in modules:
        trust.require("imports:", name)
        try:
            imports.of_user(name)
        except InvalidArgumentError as error:
            raise StudyError(f"imports: {name!r}: {error}") from error
