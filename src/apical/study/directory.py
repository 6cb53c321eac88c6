"""The study directory: a finished trial is a folder, published by one rename.

    study.json                     the study, frozen when the directory was made
    trials/<digest>/               a finished trial: it never runs again
    attempts/<digest>.<token>/     a trial in training, by the process whose lease has this token
    claims/<key>.<number>.json     leases: who works on what (see `leases`)
    failed/<digest>.json           why a trial cannot be run
    commands.jsonl                 what was asked of this directory, when and where

Any number of processes on any number of machines may use it at once. A process that takes over an abandoned trial
renames the attempt to its own token and continues from the checkpoint. Should the former process resume, its folder is
gone: it can neither write into the new attempt nor publish. Nothing here imports torch.
"""

import json
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Self, TypeGuard

from apical import __version__, files
from apical.errors import StudyError
from apical.limits import BOUNDS
from apical.study.leases import Lease, Leases, Limits
from apical.study.model import Study

FORMAT: Final = 1
STUDY, COMMANDS = "study.json", "commands.jsonl"
ATTEMPT, PROGRESS, SCORES = "attempt.json", "progress.json", "scores.json"
RESULT, CHECKPOINT, STACK, LOCK = "result.json", "last.safetensors", "stack.safetensors", ".lock"
"""What `apical.train` calls its files: it cannot be asked without importing torch."""
HOME: Final = "studies"
"""Where studies lie that are given no directory."""
FOLDERS: Final = ("trials", "attempts", "claims", "failed")
TEST: Final = "-test"
"""Ends the key of the lease of a trial's test split."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Header:
    """What study.json says: the study as a table of JSON values, and how it is tuned."""

    study: Mapping[str, Any]
    tune_trials: int
    created: str = ""


class Store:
    """An open study directory."""

    def __init__(self, directory: Path, header: Header, *, limits: Limits | None = None) -> None:
        self.directory, self.header = directory, header
        self.trials, self.attempts, self.claims, self.failures = (directory / name for name in FOLDERS)
        self.leases = Leases(self.claims, limits)

    # --- opening -------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, directory: str | Path, header: Header, *, limits: Limits | None = None) -> Self:
        """Make a study directory, or open the one that is there; whoever comes first decides its header."""
        path = Path(directory)
        with files.using(path):
            new = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
            for name in FOLDERS:
                (path / name).mkdir(parents=True, exist_ok=True)
            _sync(*(folder.absolute().parent for folder in new))
            if not (path / STUDY).exists():
                files.create(path / STUDY, _written(header, datetime.now(UTC).isoformat(timespec="seconds")))
        return cls.open(path, limits=limits)

    @classmethod
    def open(cls, directory: str | Path, *, limits: Limits | None = None) -> Self:
        """The study directory that is there."""
        path = Path(directory)
        with files.using(path):
            for name in FOLDERS:
                files.refuse_link(path / name)
        return cls(path, _read_header(path), limits=limits)

    def rewrite(self, header: Header) -> None:
        """Change study.json: what joined it is planned from now on."""
        with files.using(self.directory):
            files.write_json(self.directory / STUDY, _written(header, self.header.created))
        self.header = Header(header.study, header.tune_trials, self.header.created)

    def record_command(self) -> None:
        """Append the command line of this process to the directory's log: one write, which nobody's can cut in two."""
        said = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": socket.gethostname(),
            "apical": __version__,
            "command": [Path(sys.argv[0]).name.replace("__main__.py", "apical"), *sys.argv[1:]],
        }
        with files.using(self.directory):
            files.append(self.directory / COMMANDS, (json.dumps(said) + "\n").encode())

    def commands(self) -> tuple[str, ...]:
        """The command lines that were given, in their order; damaged lines are left out."""
        try:
            log = files.read_bytes(self.directory / COMMANDS, limit=files.LIMIT, follow=False)
        except (OSError, ValueError):
            return ()
        return tuple(filter(None, map(_command, log.decode("utf-8", "replace").splitlines())))

    @property
    def study(self) -> Study:
        """The study that study.json holds, or a StudyError that names the file."""
        return Study.from_dict(self.header.study, origin=self.directory / STUDY)

    # --- what there is -------------------------------------------------------------------------------------------

    def finished(self) -> dict[str, int]:
        """The published trials, with the number that the file system gives the folder: one listing."""
        try:
            with os.scandir(self.trials) as entries:
                return {e.name: e.inode() for e in entries if _DIGEST.fullmatch(e.name)}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def failed(self) -> set[str]:
        """The trials that cannot be run as they are."""
        return {n.removesuffix(".json") for n in files.names(self.failures) if _DIGEST.fullmatch(n[:-5])}

    def failure(self, digest: str) -> dict[str, Any]:
        """Why a trial failed."""
        return files.read_json(self.failures / f"{digest}.json") or {"reason": "unknown: its file is damaged"}

    def trial(self, digest: str) -> Path:
        """The folder of a published trial."""
        return self.trials / digest

    def key(self, digest: str, *, test: bool = False) -> str:
        """The key of the lease that is needed to train a trial, or to open its test split."""
        return digest + TEST if test else digest

    def settled(self, key: str) -> bool:
        """True where nothing is to be done.

        Asked again once the lease is taken. A network file system may remember that a name is not there: a change of
        our own in the folder makes it look again.
        """
        digest = key.removesuffix(TEST)
        if (self.failures / f"{digest}.json").exists():
            return True
        mark = self.trials / f".look-{token_hex(8)}"
        mark.touch()
        mark.unlink()
        return (self.trial(digest) / (SCORES if key.endswith(TEST) else "")).exists()

    def progress(self, digest: str, token: str) -> dict[str, Any]:
        """What a running trial last said of itself."""
        with suppress(OSError):
            return files.read_json(self.attempts / f"{digest}.{token}" / PROGRESS) or {}
        return {}

    # --- one trial, for the holder of its lease ------------------------------------------------------------------

    def begin(self, lease: Lease) -> Path:
        """The folder of the holder's attempt: what a dead holder left goes on in it."""
        mine = self.attempts / f"{lease.key}.{lease.token}"
        left = [self.attempts / n for n in files.names(self.attempts) if n.startswith(f"{lease.key}.")]
        for other in sorted(left, key=_age):
            if not mine.exists() and not other.is_symlink():
                with suppress(FileNotFoundError):
                    other.rename(mine)
            else:
                files.remove(other)
        mine.mkdir(exist_ok=True)
        files.remove(mine / LOCK)  # a holder that sleeps may hold a lock on it still
        files.write_json(mine / ATTEMPT, {"token": lease.token, "number": lease.number, "host": socket.gethostname()})
        files.sync(self.attempts)
        return mine

    def publish(self, lease: Lease, attempt: Path) -> bool:
        """Make a finished attempt the trial; False where the lease went to somebody else."""
        if not lease.held():
            return False
        for name in (CHECKPOINT, STACK, LOCK, PROGRESS):
            files.remove(attempt / name)
        target = self.trial(lease.key)
        try:
            attempt.rename(target)
        except OSError as error:
            if files.fatal(error):
                raise
            # Gone, or there already. Over a network, a rename may have worked though it says that it did not.
            return (files.read_json(target / ATTEMPT) or {}).get("token") == lease.token
        files.sync(self.trials)
        return True

    def leave(self, lease: Lease) -> None:
        """Give back the lease of a trial that is not settled; drop an attempt at one that somebody else published."""
        if self.trial(lease.key).exists():
            files.remove(self.attempts / f"{lease.key}.{lease.token}")
        elif not self.settled(lease.key):
            lease.release()

    def fail(self, digest: str, reason: str, detail: str) -> None:
        """Record why a trial cannot be run; its attempt stays, so that a retry goes on from its checkpoint."""
        said = {"reason": reason, "detail": detail, "host": socket.gethostname(), "time": time.time()}
        files.create(self.failures / f"{digest}.json", said)

    def forget_failure(self, digest: str) -> None:
        """Let a failed trial be run again."""
        files.remove(self.failures / f"{digest}.json")


def _written(header: Header, created: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "apical": __version__,
        "created": created,
        "tune_trials": header.tune_trials,
        "study": dict(header.study),
    }


def _read_header(directory: Path) -> Header:
    path = directory / STUDY
    with files.using(directory):
        if not path.is_file():
            raise StudyError(f"{directory} is not a study directory: it has no {STUDY}; apical study run makes one")
        values = files.read_json(path) or {}
    known = values.get("format")
    if isinstance(known, int) and known > FORMAT:
        raise StudyError(
            f"{directory} was made by apical {values.get('apical')} in format {known}, and this apical {__version__} "
            f"knows formats up to {FORMAT}: pip install --upgrade apical"
        )
    study, tune_trials = values.get("study"), values.get("tune_trials")
    if known != FORMAT or not isinstance(study, dict) or not _countable(tune_trials):
        raise StudyError(
            f"{path} is damaged: move it away and run the same study in {directory} again; its trials are safe"
        )
    return Header(study, tune_trials, str(values.get("created", "")))


def _countable(tune_trials: object) -> TypeGuard[int]:
    least, largest = BOUNDS["tune_trials"]
    return type(tune_trials) is int and least <= tune_trials <= largest


def _sync(*folders: Path) -> None:
    """Make the names in folders survive a power cut; a folder above that may not be read is left alone."""
    for folder in folders:
        with suppress(FileNotFoundError, PermissionError):
            files.sync(folder)


def _command(line: str) -> str | None:
    try:
        words = files.parse_json(line)["command"]
        return " ".join(map(str, words)) if isinstance(words, list) else None
    except (ValueError, KeyError, TypeError):
        return None


def _age(attempt: Path) -> float:
    """Smaller for the attempt that came further: the one with the newest checkpoint."""
    for name in (RESULT, CHECKPOINT, STACK):
        with suppress(OSError):
            return -(attempt / name).stat().st_mtime
    return 0.0


# May this study go on in that directory? The same one may, and more rows, parts and trials may join it.


def open_for(study: Study, directory: Path, tune_trials: int | None, *, limits: Limits | None = None) -> Store:
    """The study's directory: made, opened as it is, or opened with what joins it; otherwise what differs is said."""
    if not files.is_text(str(directory.absolute())):
        raise StudyError(
            f"{str(directory)!r} is not a Unicode name, and weights cannot be stored there: choose another with -d"
        )
    with files.using(directory):
        new = not (directory / STUDY).exists()
        there = [name for name in files.names(directory) if not name.startswith(f".{STUDY}.")] if new else []
        if there and not any((directory / name).is_dir() for name in FOLDERS):
            raise StudyError(f"{directory} has other files in it, but no study: choose an empty or new folder with -d")
    if new:
        Store.create(directory, Header(study.to_dict(), tune_trials or study.tune_trials), limits=limits)
    store = Store.open(directory, limits=limits)
    with files.using(directory):
        _sync(directory.absolute().parent, directory, store.trials)  # for who died before that
    known = store.study
    if faults := [*differences(known, study), *_tuning(store.header.tune_trials, tune_trials)]:
        raise StudyError(
            f"{directory} holds the study {known.name!r}, and this one differs: {'; '.join(faults[:5])}"
            f"{f'; and {len(faults) - 5} more' if len(faults) > 5 else ''}. You can add parts, rows and trials to a "
            "directory, but not change what is there: choose another directory with -d"
        )
    if known != study:
        store.rewrite(Header(study.to_dict(), store.header.tune_trials))
    return store


def differences(known: Study, wanted: Study) -> list[str]:
    """What keeps a study from going on in a directory, in words."""
    faults = [f"name was {known.name!r} and is {wanted.name!r}"] if known.name != wanted.name else []
    if wanted.quick != known.quick:
        faults.append("one of them is a quick variant")
    faults += [
        f"{name} was {getattr(known, name)} and is {getattr(wanted, name)}"
        for name in ("first_seed", "tune_trials")
        if getattr(wanted, name) != getattr(known, name)
    ]
    if wanted.question != known.question:
        faults.append("the question differs, and it is fixed before the first trial")
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
    return [f"tune_trials was {known} and is {wanted}"]
