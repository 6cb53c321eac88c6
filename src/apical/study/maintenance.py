"""Export the trials of a study as a table, retry failed trials, and merge study directories."""

import errno
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from apical import files, imports
from apical.errors import InvalidArgumentError, StudyError
from apical.study.directory import CHECKPOINT, LOCK, PROGRESS, SCORES, STUDY, Store, differences, open_for
from apical.study.results import OUTPUTS, RowResults, StudyResults, TrialRecord, opened, read
from apical.study.state import DAMAGED, read_facts, snapshot

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
    trials = [
        _flat(results, row, setting, trial) for row in results.rows for (setting, _), trial in _trials(row).items()
    ]
    metrics = sorted({name for entry in trials for name in entry if name.startswith(("validation ", "test "))})
    return [{**entry, **{name: entry.get(name) for name in metrics}} for entry in trials]


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
        "unit": spec.unit,
        "learning_rate": spec.learning_rate,
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
    heads = list(rows[0]) if rows else []
    text = files.csv_text(heads, ([row.get(name) for name in heads] for row in rows))
    files.write(path, text.encode(), durable=False)


def _write_json(rows: Rows, path: Path) -> None:
    files.write_json(path, rows, durable=False)


def _write_parquet(rows: Rows, path: Path) -> None:
    arrow, parquet = imports.optional("pyarrow", extra="lab"), imports.optional("pyarrow.parquet", extra="lab")
    data = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows), data)
    files.write(path, data.getbuffer(), durable=False)


WRITERS: Final[dict[str, Callable[[Rows, Path], None]]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".json": _write_json,
}


# `retry`: what failed, or is damaged, may be run again.


def retry(directory: str | Path, trials: Iterable[str] | None = None) -> tuple[str, ...]:
    """Forget the failures of all trials, or of those whose digests begin so; the next `run` does them again."""
    store, planned = opened(directory)
    study_state = snapshot(planned, store, trust=False)
    failed = sorted(study_state.failed)
    asked = tuple(trials) if trials is not None else None
    for start in asked or ():
        if not any(digest.startswith(start) for digest in failed):
            raise InvalidArgumentError(
                f"no failed trial begins with {start!r}; failed: {', '.join(d[:8] for d in failed) or 'none'}"
            )
    again = tuple(d for d in failed if asked is None or d.startswith(asked))
    with files.using(store.directory):
        for digest in again:
            _forget(store, digest)
        for trial in study_state.left.values():  # answers whose scores are damaged: those are made again
            files.remove(store.trial(trial.digest) / SCORES)
    return again


def _forget(store: Store, digest: str) -> None:
    """Remove what failed: the note, and a folder that cannot be read, or tested, unless its test split was opened."""
    if not (store.trial(digest) / OUTPUTS).exists() or read_facts(store.trial(digest)).state == DAMAGED:
        files.remove(store.trial(digest))
    store.forget_failure(digest)
    for key in (store.key(digest), store.key(digest, test=True)):
        store.leases.clear(key)


# `merge`: the trials of study directories that were filled apart, in one.


@dataclass(frozen=True)
class Merged:
    """How many trials came in, and how many were there already or are damaged."""

    copied: int
    known: int
    damaged: int


def merge(target: str | Path, *sources: str | Path) -> Merged:
    """Copy the finished trials of `sources` into `target`, which is made where it is not there; sources stay.

    All must hold the same study, or one of which the target's is an extension. Each trial appears by one rename.
    """
    given = [Store.open(source) for source in sources]
    if not given:
        raise StudyError("no source to merge: write apical study merge TARGET SOURCE...")
    into = _opened(Path(target), given)
    counts = [_copy(store, digest, into) for store in given for digest in store.finished()]
    return Merged(counts.count("copied"), counts.count("known"), counts.count("damaged"))


def _opened(target: Path, given: list[Store]) -> Store:
    """The target, with a study that holds all of the sources'."""
    stores = [*([Store.open(target)] if (target / STUDY).exists() else []), *given]
    studies = [store.study for store in stores]
    largest = max(studies, key=lambda study: (len(study.rows), study.trials))
    for store, study in zip(stores, studies, strict=True):
        if faults := differences(study, largest):
            raise StudyError(
                f"{store.directory} cannot be merged into {target}: {'; '.join(faults[:3])}: "
                "merge directories of one study"
            )
        if store.header.tune_trials != stores[0].header.tune_trials:
            raise StudyError(
                f"{store.directory} cannot be merged into {target}: its tune_trials is "
                f"{store.header.tune_trials}, but that of the others is {stores[0].header.tune_trials}"
            )
    return open_for(largest, target, stores[0].header.tune_trials)


def _copy(store: Store, digest: str, into: Store) -> str:
    if into.trial(digest).exists():
        return "known"
    if read_facts(store.trial(digest)).state == DAMAGED:
        return "damaged"
    with files.using(into.directory):
        lease = into.leases.acquire(digest)
        if lease is None:
            return "known"
        copy = into.attempts / f"{digest}.{lease.token}"
        try:
            files.copy_folder(store.trial(digest), copy, without=(CHECKPOINT, LOCK, PROGRESS))
            return "copied" if into.publish(lease, copy) else "known"
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EINVAL):
                raise
            return "damaged"  # links, FIFOs and devices are none of a trial's files
        finally:
            files.remove(copy)
            lease.release()
