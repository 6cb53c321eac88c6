"""What `apical study list` shows: the shipped studies, their size, their time, their data.

To read and plan every study takes torch and seconds, to measure them minutes. So sizes and times stand in a table:
`costs.json` beside this module, which says where it was measured. `apical study list --measure` measures a few steps of
every network and writes such a table of this machine to APICAL_HOME; where there is one, its times are shown. A study
file of one's own stands in no table: a few steps of its networks are measured when it is asked for.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from apical import env, files
from apical.data import home, statuses
from apical.study.config.loading import load, names
from apical.study.model import Study
from apical.study.plan import plan
from apical.trust import Trust

TIMES = ("seconds", "quick_seconds")
SHIPPED = Path(__file__).with_name("costs.json")
ProgressCallback = Callable[[str, int, int], None]
Table = dict[str, Any]
"""`machine`, and `studies`: by name `what`, `beyond` and `parts`, by name `what`, rows, trials, data and times."""


@dataclass(frozen=True)
class Entry:
    """A study, or a part of one. `data`: states by data set. The times are None where nothing was measured.

    `beyond`: it asks a question of ours, none of the paper's.
    """

    name: str
    what: str
    rows: int
    trials: int
    data: dict[str, str]
    seconds: float | None
    quick_seconds: float | None
    beyond: bool = False
    parts: "tuple[Entry, ...]" = ()

    @property
    def ready(self) -> bool:
        """True where all its data is there."""
        return "not prepared" not in self.data.values()

    @cached_property
    def study(self) -> Study:
        """The study of that name."""
        return load(self.name)


def catalogue(
    *, measure: bool = False, workers: int | None = None, progress: ProgressCallback | None = None
) -> Iterator[Entry]:
    """The shipped studies, one after the other, with the time that `workers` processes take, by default one a core.

    With `measure`, a few steps of every network are measured first, here and now.
    """
    if measure:
        _write(measured(progress))
    shipped, own = _read(SHIPPED), _read(_path())
    states = {status.recipe.name: status.state for status in statuses()}
    count = workers or os.cpu_count() or 1
    for name in names():
        known = shipped.get(name) or sizes(load(name))
        known = own[name] if _sizes(own.get(name)) == _sizes(known) else known
        yield _entry(name, known, states, count)


def estimated(
    path: str | Path, *, workers: int | None = None, trust: Trust = False, progress: ProgressCallback | None = None
) -> Entry:
    """A study file of one's own: a few steps of its networks are measured, here and now. `trust`: as in `load`."""
    known = _costs(load(path, trust=trust), load(path, quick=True, trust=trust), {}, progress)
    states = {status.recipe.name: status.state for status in statuses()}
    return _entry(str(path), known, states, workers or os.cpu_count() or 1)


def _entry(name: str, known: dict[str, Any], states: dict[str, str], workers: int) -> Entry:
    parts = tuple(_part(key, values, states, workers) for key, values in known["parts"].items())
    return Entry(
        name=name,
        what=known["what"],
        rows=sum(part.rows for part in parts),
        trials=sum(part.trials for part in parts),
        data={key: state for part in parts for key, state in part.data.items()},
        seconds=_sum([part.seconds for part in parts]),
        quick_seconds=_sum([part.quick_seconds for part in parts]),
        beyond=known["beyond"],
        parts=parts,
    )


def machine() -> str:
    """Where the times were measured that `catalogue` tells."""
    return str(_table(_path()).get("machine") or _table(SHIPPED).get("machine"))


def _part(name: str, values: dict[str, Any], states: dict[str, str], workers: int) -> Entry:
    whole, quick = (None if (s := values.get(key)) is None else s / workers for key in TIMES)
    data = {values["data"]: states.get(values["data"], "yours")}
    return Entry(name, values["what"], values["rows"], values["trials"], data, whole, quick)


def _sum(seconds: list[float | None]) -> float | None:
    known = [s for s in seconds if s is not None]
    return sum(known) if len(known) == len(seconds) else None


# --- the table --------------------------------------------------------------------------------------------------------


def measured(progress: ProgressCallback | None = None) -> Table:
    """The table of this machine; equal steps are measured once."""
    steps: dict[str, float] = {}
    studies = {name: _costs(load(name), load(name, quick=True), steps, progress) for name in names()}
    return {"machine": env.facts()["processor"], "studies": studies}


def sizes(study: Study) -> dict[str, Any]:
    """What the table holds of a study, without times."""
    planned = plan(study)
    parts = {}
    for part in study.parts:
        rows = [row for row in study.trained if row.part == part.name]
        own = [row for row in rows if planned.tuned_by(row) == row.key]
        tuning = planned.tune_trials * sum(len(planned.settings(row)) for row in own)
        more = sum(map(planned.more, rows))
        parts[part.name] = {"what": part.title, "rows": len(rows), "trials": tuning + more}
        parts[part.name]["data"] = part.data
    return {"what": study.source or study.title, "beyond": study.question is not None, "parts": parts}


def _costs(study: Study, quick: Study, known: dict[str, float], progress: ProgressCallback | None) -> dict[str, Any]:
    """What the table holds of a study."""
    from apical.study.cost import calibrate, estimate, samples_of  # noqa: PLC0415  torch

    whole = sizes(study)
    for key, variant in zip(TIMES, (study, quick), strict=True):
        seconds = calibrate(variant, known, progress=progress)
        samples = {part.data: samples_of(part) for part in variant.parts}
        for name, value in estimate(plan(variant), seconds, samples).items():
            whole["parts"][name][key] = round(value, 1)
    return whole


def _sizes(known: Any) -> object:
    """All but the times, which are numbers; None of what is no entry of a table."""
    try:
        parts = {name: dict(part) for name, part in known["parts"].items()}
        times = [part.pop(key) for part in parts.values() for key in TIMES if key in part]
        return (known["what"], known["beyond"], parts) if all(isinstance(t, int | float) for t in times) else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _path() -> Path:
    return home() / "costs.json"


def _read(path: Path) -> dict[str, Any]:
    studies = _table(path).get("studies")
    return studies if isinstance(studies, dict) else {}


def _table(path: Path) -> Table:
    """A table of the user's is a cache: what cannot be read is not there."""
    return files.read_json(path) or {}


def _write(table: Table) -> None:
    _path().parent.mkdir(parents=True, exist_ok=True)
    files.write_json(_path(), table, durable=False)
