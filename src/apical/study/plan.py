"""What a study trains: a pure function of the study. Trials are named by the digest of their TrialSpec."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from typing import Any

from apical.errors import InvalidArgumentError
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

    @cached_property
    def spec(self) -> TrialSpec:
        """The trial as `apical.train.run` takes it."""
        return TrialSpec.from_dict({**self.values, **fields_of(self.setting), "seed": self.trial})


@dataclass(frozen=True)
class Plan:
    """Tuning first (`tuning`: every setting, its first `tune_trials` trials), then `finals` of each chosen setting.

    Trial k of every row of a part has seed `study.first_seed` + k, so that it sees the same data in the same order and
    starts from the same weights where shapes agree. The first finals are the tuning trials: they have the same digests.
    """

    study: Study
    tune_trials: int

    @cached_property
    def tuning(self) -> tuple[Planned, ...]:
        """All settings of all rows, in the order of the file."""
        return tuple(
            trial
            for row in self.study.trained
            for setting in self.settings(row)
            for trial in self._trials(row, setting, self.tune_trials)
        )

    def settings(self, row: Row | str) -> tuple[str, ...]:
        """What a row tries, as the function `settings` writes it; none for a quoted row."""
        return self._settings[_key(row)]

    def finals(self, row: Row | str, setting: str) -> tuple[Planned, ...]:
        """The trials of a chosen setting; the first ones are those that tuned it."""
        key = _key(row)
        if setting not in self._settings[key]:
            raise InvalidArgumentError(f"row {key!r} has no setting {setting!r}: it has {self._settings[key]}")
        return tuple(self._trials(self.study.row(key), setting, self.study.trials))

    @cached_property
    def tuning_stacks(self) -> tuple[tuple[Planned, ...], ...]:
        """The tuning trials, each once, in stacks."""
        return self.stacks(tuple({trial.digest: trial for trial in self.tuning}.values()))

    def stacks(self, planned: Sequence[Planned]) -> tuple[tuple[Planned, ...], ...]:
        """The trials in groups that can be trained as one, each of at most `study.stack`, in the given order."""
        return grouped(planned, self.study.stack)

    def alone(self, trial: Planned) -> bool:
        """True where a trial cannot be part of a stack."""
        return stack_key(trial.spec) is None

    @property
    def count(self) -> int:
        """How many trials the study trains in the end."""
        more = max(0, self.study.trials - self.tune_trials)
        return len(self.tuning) + more * len(self.study.trained)

    def _trials(self, row: Row, setting: str, count: int) -> Iterator[Planned]:
        values = self._values[row.part]
        for seed in range(self.study.first_seed, self.study.first_seed + count):
            yield Planned(digest({**values, **fields_of(setting), "seed": seed}), row.key, setting, seed, values)

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
        raise InvalidArgumentError(f"tune_trials is {tune_trials}, but at least one trial must tune")
    return Plan(study.enable(), tune_trials)


def spec_of(part: Part, unit: str = "relu", seed: int = 0) -> TrialSpec:
    """A trial of a part: the paper's protocol for its data and network, with the part's own training settings."""
    own: dict[str, Any] = {"dims": part.dims, "corruptions": part.corruptions, "split": part.split}
    return TrialSpec.paper(part.data, part.model, **part.training, **own, partial=part.partial, unit=unit, seed=seed)


def grouped(planned: Sequence[Planned], size: int) -> tuple[tuple[Planned, ...], ...]:
    """The trials in groups of at most `size` that `run_many` can train as one; the others alone.

    The key of a stack depends on the values of a unit only where one module serves all trials: for the other kinds one
    trial of each kind, part and seed is asked.
    """
    keys: dict[tuple[int, str, int], str | None] = {}
    groups: dict[str, list[Planned]] = {}
    for trial in planned:
        alike = (id(trial.values), _stacked_as(trial.setting), trial.trial)
        if alike not in keys:
            keys[alike] = stack_key(trial.spec)
        groups.setdefault(keys[alike] or trial.digest, []).append(trial)
    return tuple(tuple(group[i : i + size]) for group in groups.values() for i in range(0, len(group), size))


@cache
def _stacked_as(setting: str) -> str:
    """What the key of a stack depends on: the kind, if its values may differ within a stack, or else the whole unit."""
    unit = fields_of(setting)["unit"]
    kind = kinds.get(unit.partition("(")[0])
    return kind.name if kind is not None and kind.stack in ("fused", "values") else unit


RATE = "learning_rate"
"""The training setting that a row can tune beside the parameters of its unit."""
_AND_RATE = f", {RATE}="


def settings(row: Row) -> tuple[str, ...]:
    """The unit of a row with each combination of its tuned values, the first parameter varying slowest.

    Where the learning rate is tuned it follows the unit: "ada(alpha=0.3), learning_rate=0.003".
    """
    unit = Unit.parse(row.unit)
    tune = dict(row.tune)
    rates = [f"{_AND_RATE}{float(rate)!r}" for rate in tune.pop(RATE, ())] or [""]
    choices: list[dict[str, Any]] = [dict(zip(tune, values, strict=True)) for values in product(*tune.values())]
    return tuple(f"{unit.with_(**choice)}{rate}" for choice in choices for rate in rates)


def fields_of(setting: str) -> dict[str, Any]:
    """The fields of a TrialSpec that a setting decides: the unit, and the learning rate where it is tuned."""
    unit, tuned, rate = setting.partition(_AND_RATE)
    return {"unit": unit, RATE: float(rate)} if tuned else {"unit": unit}


def _key(row: Row | str) -> str:
    return row if isinstance(row, str) else row.key
