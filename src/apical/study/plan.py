"""What a study trains: a pure function of the study. Trials are named by the digest of their TrialSpec."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise, product
from math import ceil
from typing import Any

from apical.errors import InvalidArgumentError, StudyError
from apical.limits import limit, raise_it
from apical.nn import Unit, kinds
from apical.study.model import Part, Row, Study
from apical.train import TrialSpec, stack_key
from apical.train.spec import digest


@dataclass(frozen=True)
class Planned:
    """One trial of one setting of a row: `setting` as `settings` writes it, `trial` the seed."""

    digest: str
    row: str
    setting: str
    trial: int
    values: Mapping[str, Any] = field(repr=False, compare=False)
    first: "Planned | None" = field(default=None, repr=False, compare=False)
    """The first trial of the setting, whose spec differs by its seed alone: checking one of them is enough."""

    @cached_property
    def spec(self) -> TrialSpec:
        """The trial as `apical.train.run` takes it."""
        if self.first is not None:
            return self.first.spec.with_seed(self.trial)
        return TrialSpec.from_dict({**filled(self.values, self.setting), "seed": self.trial})


@dataclass(frozen=True)
class Plan:
    """Tuning first (`tuning`: every setting, its first `tune_trials` trials), then `finals` of each chosen setting.

    Trial k of every row of a part has seed `study.first_seed` + k, so that it sees the same data in the same order and
    starts from the same weights where shapes agree. The first finals are the tuning trials: they have the same digests.
    The rows of a part that is `tuned_on` another one have no tuning trials: `tuned_by` names the row that chooses.
    """

    study: Study
    tune_trials: int

    @cached_property
    def tuning(self) -> tuple[Planned, ...]:
        """All settings of all rows, in the order of the file."""
        return tuple(
            trial
            for row in self.study.trained
            if self.tuned_by(row) == row.key
            for setting in self.settings(row)
            for trial in self._trials(row, setting, self.tune_trials)
        )

    def tuned_by(self, row: Row) -> str:
        """The key of the row whose tuning trials choose the setting of this one: its own, or that of another part."""
        return f"{self.study.part(row.part).tuned_on or row.part}/{row.name}"

    def settings(self, row: Row | str) -> tuple[str, ...]:
        """What a row tries, as the function `settings` writes it; none for a quoted row."""
        return self._settings[_key(row)]

    def finals(self, row: Row | str, setting: str) -> tuple[Planned, ...]:
        """The trials of a chosen setting; the first ones are those that tuned it."""
        key = _key(row)
        if setting not in self._settings[key]:
            raise InvalidArgumentError(f"row {key!r} has no setting {setting!r}; available: {self._settings[key]}")
        return tuple(self._trials(self.study.row(key), setting, self.study.trials))

    @cached_property
    def tuning_stacks(self) -> tuple[tuple[Planned, ...], ...]:
        """The tuning trials, each once, in stacks."""
        return self.stacks(tuple({trial.digest: trial for trial in self.tuning}.values()))

    def stacks(self, planned: Sequence[Planned]) -> tuple[tuple[Planned, ...], ...]:
        """The trials in groups that can be trained as one, each of at most `study.stack`, in the given order."""
        return grouped(planned, self.study.stack)

    def possible(self, row: Row | str) -> Iterator[Planned]:
        """The trials of every setting that a row may choose."""
        return (trial for setting in self.settings(row) for trial in self.finals(row, setting))

    @property
    def count(self) -> int:
        """How many trials the study trains in the end."""
        tuning = (self.tune_trials * row.settings for row in self.study.trained if self.tuned_by(row) == row.key)
        return sum(tuning) + sum(map(self.more, self.study.trained))

    def more(self, row: Row) -> int:
        """How many trials of its chosen setting a row has beside those that tuned."""
        own = self.tuned_by(row) == row.key
        return max(0, self.study.trials - self.tune_trials) if own else self.study.trials

    def _trials(self, row: Row, setting: str, count: int) -> list[Planned]:
        """The first `count` trials of a setting: the same objects each time."""
        made, values = self._made.setdefault((row.key, setting), []), self._values[row.part]
        own, first_seed = filled(values, setting), self.study.first_seed
        for seed in range(first_seed + len(made), first_seed + count):
            name = digest({**own, "seed": seed})
            made.append(Planned(name, row.key, setting, seed, values, made[0] if made else None))
        return made[:count]

    @cached_property
    def _made(self) -> dict[tuple[str, str], list[Planned]]:
        return {}

    @cached_property
    def _settings(self) -> dict[str, tuple[str, ...]]:
        return {row.key: () if row.quoted else settings(row) for row in self.study.rows}

    @cached_property
    def _values(self) -> dict[str, dict[str, Any]]:
        return {part.name: spec_of(part).as_dict() for part in self.study.parts}


def plan(study: Study, *, tune_trials: int | None = None) -> Plan:
    """The plan of a study; `tune_trials` trials decide between the settings of a row, if not those that it says."""
    tune_trials = study.tune_trials if tune_trials is None else tune_trials
    if tune_trials < 1:
        raise InvalidArgumentError(f"tune_trials is {tune_trials}, but must be at least 1")
    planned, most = Plan(study, tune_trials), limit("trials")
    if planned.count > most:
        raise StudyError(
            f"the study {study.name!r} has {planned.count:,} trials with those that tune, but at most {most:,} are "
            f"allowed: {raise_it('trials', planned.count)}"
        )
    study.enable()
    return planned


def spec_of(part: Part, unit: str = "relu", seed: int = 0) -> TrialSpec:
    """A trial of a part: the paper's protocol for its data and network, with the part's own training settings."""
    own: dict[str, Any] = {"dims": part.dims, "corruptions": part.corruptions, "split": part.split}
    return TrialSpec.paper(part.data, part.model, **part.training, **own, partial=part.partial, unit=unit, seed=seed)


def grouped(planned: Sequence[Planned], size: int) -> tuple[tuple[Planned, ...], ...]:
    """The trials in groups of at most `size` that `run_many` can train as one; the others alone.

    Groups of one key differ by one trial at most: with a small last one, the worker that takes it waits for the others.
    """
    groups: dict[str, list[Planned]] = {}
    for trial, key in zip(planned, stack_keys(planned), strict=True):
        groups.setdefault(key or trial.digest, []).append(trial)
    return tuple(part for group in groups.values() for part in _evenly(group, size))


def _evenly(group: Sequence[Planned], size: int) -> Iterator[tuple[Planned, ...]]:
    count = ceil(len(group) / size)
    ends = [len(group) * i // count for i in range(count + 1)]
    return (tuple(group[start:end]) for start, end in pairwise(ends))


def stack_keys(planned: Iterable[Planned]) -> list[str | None]:
    """`stack_key` of each trial.

    It depends on the values of a unit only where one module serves all trials: for the other kinds one trial of each
    kind, part and seed is asked.
    """
    known: dict[tuple[int, str, int], str | None] = {}
    keys = []
    for trial in planned:
        alike = (id(trial.values), _stacked_as(trial.setting), trial.trial)
        if alike not in known:
            known[alike] = stack_key(trial.spec)
        keys.append(known[alike])
    return keys


@cache
def _stacked_as(setting: str) -> str:
    """What the key of a stack depends on: the kind, if its values may differ within a stack, or else the whole unit.

    And the dimensions of the network, where a row has its own.
    """
    chosen = fields_of(setting)
    unit = chosen["unit"]
    kind = kinds.get(unit.partition("(")[0])
    alike = kind is not None and kind.stack in ("fused", "values") and kinds.stackable(unit)
    return f"{kind.name if kind is not None and alike else unit} {chosen.get('dims', '')}"


RATE = "learning_rate"
"""The training setting that a row can tune beside the parameters of its unit and the dimensions of its network."""
_AND = ", "  # stands in no unit


def settings(row: Row) -> tuple[str, ...]:
    """The unit of a row with each combination of its tuned values, the first parameter varying slowest.

    Dimensions of the network and the learning rate follow the unit: "ada(alpha=0.3), width=90, learning_rate=0.003".
    """
    unit, own = Unit.parse(row.unit), kinds.open_parameters(row.unit)
    of_unit = {name: values for name, values in row.tune.items() if name in own}
    others = {name: values for name, values in row.tune.items() if name not in own}
    units = [unit.with_(**dict(zip(of_unit, values, strict=True))) for values in product(*of_unit.values())]
    behind = [
        "".join(f"{_AND}{name}={_written(name, value)}" for name, value in zip(others, values, strict=True))
        for values in product(*others.values())
    ]
    return tuple(f"{one}{rest}" for one in units for rest in behind)


def _written(name: str, value: Any) -> str:
    whole = name != RATE and isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else value if isinstance(value, str) else repr(float(value))


def fields_of(setting: str) -> dict[str, Any]:
    """The fields of a TrialSpec that a setting decides: the unit, and the learning rate and dims where it has them."""
    unit, *others = setting.split(_AND)
    values: dict[str, Any] = {name: _read(text) for name, _, text in (other.partition("=") for other in others)}
    rate = {RATE: float(values.pop(RATE))} if RATE in values else {}
    return {"unit": unit, **rate} | ({"dims": values} if values else {})


def _read(text: str) -> int | float | str:
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return text


def filled(values: Mapping[str, Any], setting: str) -> dict[str, Any]:
    """The fields of a part's trial with those that a setting decides."""
    chosen = fields_of(setting)
    dims = {"dims": {**values["dims"], **chosen["dims"]}} if "dims" in chosen else {}
    return {**values, **chosen, **dims}


def _key(row: Row | str) -> str:
    return row if isinstance(row, str) else row.key
