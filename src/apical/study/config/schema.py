"""The study file as people write it, in TOML: its fields, what each may hold, and the JSON schema of it all.

Every check that needs one field alone stands here; those between fields are in `apical.study.config.loading`.
"""

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from apical.study.config import checks
from apical.study.config.toml import slug
from apical.study.model import Form, Mark, Value

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)]
Text = Annotated[str, Field(min_length=1)]
Unit = Annotated[str, AfterValidator(checks.unit)]
Learnable = Annotated[
    Any, AfterValidator(checks.value), WithJsonSchema({"anyOf": [{"type": "number"}, {"const": "learn"}]})
]
Grid = Annotated[list[Learnable], Field(min_length=1), AfterValidator(checks.distinct)]
Numbers = Annotated[list[float], Field(min_length=1), AfterValidator(checks.distinct)]
Training = dict[str, Any]
MOST_TRIALS = 10_000


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Tune(_Table):
    """Values to try of each parameter of a unit; "learn" lets training find alpha."""

    alpha: Grid | None = None
    c: Numbers | None = None
    leak: Numbers | None = None

    def grids(self) -> dict[str, tuple[Value, ...]]:
        """The parameters that are given, in the order in which they vary, the slowest first."""
        given = {"alpha": self.alpha, "c": self.c, "leak": self.leak}
        return {name: tuple(values) for name, values in given.items() if values is not None}


class Printed(_Table):
    """What a paper prints of one row in one part: accuracies in per cent, errors and seconds per epoch as they are."""

    accuracy: float | None = None
    weighted_accuracy: Annotated[float | None, Field(alias="weighted-accuracy")] = None
    top_5: Annotated[float | None, Field(alias="top-5")] = None
    cross_entropy: Annotated[float | None, Field(alias="cross-entropy")] = None
    mae: float | None = None
    mse: float | None = None
    seconds: float | None = None
    mark: Annotated[Mark, Field(description="significance: dagger 0.05, ddagger 0.01")] = ""
    alpha: Learnable | None = None
    c: float | None = None


class PartTable(_Table):
    """One condition: data, corruption, network and training settings."""

    name: Slug
    title: str = ""
    data: Annotated[Text, AfterValidator(checks.data), Field(description="a name from `apical data list`, or a path")]
    model: Annotated[Text, AfterValidator(checks.model), Field(description="a network, or package.module:factory")]
    dims: Annotated[dict[str, Any], Field(description="further arguments of the network")] = {}
    corruptions: list[Annotated[str, AfterValidator(checks.corruption)]] = []
    split: Text = "paper"
    partial: Annotated[Text | None, Field(description="the mark of a subset, as `apical data list` shows it")] = None
    x: Annotated[float | None, Field(description="the place on the horizontal axis of a curve")] = None
    training: Training = {}


class RowTable(_Table):
    """One unit, in all parts or in those that `parts` names (* stands for any letters)."""

    unit: Unit
    name: Annotated[Slug | None, Field(description="what keys call the row; made of the unit if left out")] = None
    label: Annotated[Text | None, Field(description="what tables call the row")] = None
    parts: Annotated[list[Text], Field(min_length=1)] = ["*"]
    group: Slug | None = None
    tune: Tune | None = None
    paper: Annotated[dict[str, Printed], Field(description="the printed numbers, by part")] = {}
    quoted: Annotated[bool, Field(description="somebody else's numbers: never trained")] = False
    x: float | None = None

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


class QuickTable(_Table):
    """What `--quick` changes; left out: 2 trials, a tenth of the epochs, two values of each tuned parameter."""

    always: Annotated[bool, Field(description="true: this study is itself a reduced one")] = False
    trials: Annotated[int | None, Field(ge=1, le=MOST_TRIALS)] = None
    samples: Annotated[int | None, Field(ge=1, description="at most so many of each split; all, if left out")] = None
    training: Training = {}
    tune: Tune = Tune()


class StudyTable(_Table):
    """A study file."""

    format: Literal[1] = 1
    extends: Annotated[
        Text | None, Field(description="a shipped study, or the path of a file, that this one varies")
    ] = None
    name: Annotated[Slug | None, Field(description="the name of the file, if left out")] = None
    title: Text
    source: str = ""
    notes: list[Text] = []
    form: Form = "table"
    axis: str = ""
    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)] = 5
    stack: Annotated[int, Field(ge=1, le=1024, description="how many trials may share one program; 1: none")] = 8
    imports: Annotated[list[Text], Field(description="modules that register your units and networks")] = []
    training: Annotated[Training, Field(description="training settings of all parts")] = {}
    tune: Annotated[Tune, Field(description="what every row tries whose unit has the parameter")] = Tune()
    only_parts: list[Text] | None = None
    only_rows: list[Text] | None = None
    parts: Annotated[list[PartTable], Field(min_length=1)]
    rows: Annotated[list[RowTable], Field(min_length=1)]
    groups: list[GroupTable] | None = None
    quick: QuickTable = QuickTable()


def fields_at(path: tuple[str | int, ...]) -> list[str]:
    """The names of the fields that the table at a path may have."""
    names = [step for step in path if isinstance(step, str)]
    inner: dict[str, type[BaseModel]] = {
        "parts": PartTable,
        "rows": RowTable,
        "groups": GroupTable,
        "quick": QuickTable,
    }
    table = inner.get(names[0], StudyTable) if names else StudyTable
    if "tune" in names:
        table = Tune
    elif names[1:2] == ["paper"]:
        table = Printed
    return [field.alias or name for name, field in table.model_fields.items()]


def schema() -> dict[str, Any]:
    """The JSON schema of a study file, for editors and other programs."""
    found = StudyTable.model_json_schema(by_alias=True)
    needed = found.pop("required")
    found["$defs"]["PartTable"]["required"] = ["name"]  # the rest may come from the study that is extended
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "anyOf": [{"required": ["extends"]}, {"required": needed}],
    }
