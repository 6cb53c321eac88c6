"""`export`: every trial of a study as one row of a flat table, in a format that other tools read."""

import csv
import json
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from apical import extras
from apical.errors import InvalidArgumentError, StudyError
from apical.study.reading import read
from apical.study.results import RowResults, StudyResults, TrialRecord

Rows = list[dict[str, Any]]
VERSIONS = ("apical", "torch", "python")
"""What of a trial's environment its row names."""


def export(directory: str | Path, path: str | Path) -> Path:
    """Write all trials that are planned by now to a .parquet, .csv or .json file: the same rows in each."""
    target = Path(path)
    if target.suffix not in WRITERS:
        raise InvalidArgumentError(f"{target} ends in {target.suffix!r}, but must end in {', '.join(WRITERS)}")
    rows = gather(read(directory))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[target.suffix](rows, target)
    except OSError as error:
        raise StudyError(f"cannot write {target}: {error.strerror or error}: choose another place with -o") from error
    return target


def gather(results: StudyResults) -> Rows:
    """One flat table: for each row of the study its tuning trials and those of the chosen setting, each once."""
    found = [
        _flat(results, row, setting, trial) for row in results.rows for (setting, _), trial in _trials(row).items()
    ]
    metrics = sorted({name for entry in found for name in entry if name.startswith(("validation ", "test "))})
    return [{**entry, **{name: entry.get(name) for name in metrics}} for entry in found]


def _trials(row: RowResults) -> dict[tuple[str, str], TrialRecord]:
    tuning = [(s.setting, trial) for s in row.settings for trial in s.trials]
    finals = [(row.chosen or "", trial) for trial in row.trials]
    return {(setting, trial.digest): trial for setting, trial in (*tuning, *finals)}


def _flat(results: StudyResults, row: RowResults, setting: str, trial: TrialRecord) -> dict[str, Any]:
    spec = trial.spec
    flat: dict[str, Any] = {
        "study": results.study.name,
        "quick": results.study.quick,
        "part": row.part.name,
        "row": row.row.key,
        "label": row.row.label,
        "unit": setting,
        "chosen": setting == row.chosen,
        "best": row.best is not None and trial.digest == row.best.digest,
        "seed": trial.seed,
        "state": trial.state,
        "reason": trial.reason,
        "data": spec.data,
        "partial": spec.partial,
        "corruptions": " ".join(spec.corruptions),
        "model": spec.model,
        "epochs": spec.epochs,
        "metric": trial.metric,
        "best_epoch": trial.best_epoch,
        "learned": _learned(trial),
        "parameters": trial.parameters,
        "seconds": float(sum(trial.seconds)),
        "digest": trial.digest,
        "stacking": trial.execution.stacking if trial.execution else "",
        **{name: trial.environment.get(name, "") for name in VERSIONS},
    }
    flat |= {f"validation {name}": value for name, value in trial.validation.items()}
    tests = (trial.test or {}).items()
    return flat | {f"test {name}": value if isfinite(value) else None for name, value in tests}


def _learned(trial: TrialRecord) -> float | None:
    """The learned alpha (or beta) of the weights that are kept: the mean where there are several."""
    epochs = trial.history[: trial.best_epoch]
    values = list((epochs[-1].get("learned") or {}).values()) if epochs else []
    return fmean(values) if values and all(v is not None and isfinite(v) for v in values) else None


def _write_csv(rows: Rows, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _text(value) for name, value in row.items()} for row in rows)


def _text(value: Any) -> Any:
    """Numbers as Python writes them, which reads back equal; nothing for what is not there."""
    return "" if value is None else repr(value) if isinstance(value, float) else value


def _write_json(rows: Rows, path: Path) -> None:
    path.write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _write_parquet(rows: Rows, path: Path) -> None:
    arrow, parquet = extras.load("pyarrow", extra="lab"), extras.load("pyarrow.parquet", extra="lab")
    parquet.write_table(arrow.Table.from_pylist(rows), path)


WRITERS: Final[dict[str, Callable[[Rows, Path], None]]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".json": _write_json,
}
