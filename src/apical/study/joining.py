"""May this study go on in that directory? The same one may, and more rows, parts and trials may join it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apical.errors import StudyError
from apical.study.file import Study
from apical.study.leases import Limits
from apical.study.store import FOLDERS, STUDY, Header, Store


def open_for(study: Study, directory: Path, tune_trials: int | None, *, limits: Limits | None = None) -> Store:
    """The study's directory: made, opened as it is, or opened with what joins it; otherwise what differs is said."""
    if not (directory / STUDY).exists():
        if directory.is_dir() and any(directory.iterdir()) and not any((directory / name).is_dir() for name in FOLDERS):
            raise StudyError(f"{directory} has other things in it, and no study: choose an empty or new folder with -d")
        Store.create(directory, Header(study.to_dict(), tune_trials or 1), limits=limits)
    store = Store.open(directory, limits=limits)
    known = Study.from_dict(store.header.study)
    if faults := [*differences(known, study), *_tuning(store.header.tune_trials, tune_trials)]:
        raise StudyError(
            f"{directory} holds the study {known.name!r}, and this one differs: {'; '.join(faults[:5])}"
            f"{f'; and {len(faults) - 5} more' if len(faults) > 5 else ''}. More parts, rows and trials may join a "
            "directory, but what is there stays as it is: choose another directory with -d"
        )
    if known != study:
        store.rewrite(Header(study.to_dict(), store.header.tune_trials))
    return store


def differences(known: Study, wanted: Study) -> list[str]:
    """What keeps a study from going on in a directory, in words."""
    faults = [f"name was {known.name!r} and is {wanted.name!r}"] if known.name != wanted.name else []
    if wanted.quick != known.quick:
        faults.append("one of them is a quick variant")
    if wanted.trials < known.trials:
        faults.append(f"trials were {known.trials} and are {wanted.trials}")
    parts = {part.name: part.model_dump(mode="json") for part in wanted.parts}
    rows = {row.key: row.model_dump(mode="json") for row in wanted.rows}
    for part in known.parts:
        faults += _changed(f"part {part.name!r}", part.model_dump(mode="json"), parts.get(part.name), ("title", "x"))
    for row in known.rows:
        faults += _changed(
            f"row {row.key!r}", row.model_dump(mode="json"), rows.get(row.key), ("label", "paper", "group", "x")
        )
    return faults


def _changed(what: str, old: Mapping[str, Any], new: Mapping[str, Any] | None, words: tuple[str, ...]) -> list[str]:
    if new is None:
        return [f"{what} is gone"]
    return [f"{what}: {k} was {old[k]} and is {new.get(k)}" for k in old if k not in words and old[k] != new.get(k)]


def _tuning(known: int, wanted: int | None) -> list[str]:
    if wanted is None or wanted == known:
        return []
    return [f"settings were compared by {known} trials each and are by {wanted}"]
