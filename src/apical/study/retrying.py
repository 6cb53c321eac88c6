"""`retry`: what failed, or is damaged, may be run again."""

from collections.abc import Iterable
from pathlib import Path

from apical.errors import InvalidArgumentError
from apical.study import files
from apical.study.agenda import look
from apical.study.facts import DAMAGED, read
from apical.study.reading import opened
from apical.study.results import OUTPUTS
from apical.study.store import SCORES, Store


def retry(directory: str | Path, trials: Iterable[str] | None = None) -> tuple[str, ...]:
    """Forget the failures of all trials, or of those whose digests begin so; the next `run` does them again."""
    store, planned = opened(directory)
    standing = look(planned, store, trust=False)
    failed = sorted(standing.failed)
    asked = tuple(trials) if trials is not None else None
    for start in asked or ():
        if not any(digest.startswith(start) for digest in failed):
            raise InvalidArgumentError(
                f"no failed trial begins with {start!r}: there are {', '.join(d[:8] for d in failed) or 'none'}"
            )
    again = tuple(d for d in failed if asked is None or d.startswith(asked))
    with files.using(store.directory):
        for digest in again:
            _forget(store, digest)
        for trial in standing.left.values():  # answers whose scores are damaged: those are made again
            files.remove(store.trial(trial.digest) / SCORES)
    return again


def _forget(store: Store, digest: str) -> None:
    """Remove what failed: the note, and a folder that cannot be read, or tested, unless its test split was opened."""
    if not (store.trial(digest) / OUTPUTS).exists() or read(store.trial(digest)).state == DAMAGED:
        files.remove(store.trial(digest))
    store.forget_failure(digest)
    for key in (store.key(digest), store.key(digest, test=True)):
        store.leases.clear(key)
