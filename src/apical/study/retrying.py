"""`retry`: what failed, or is damaged, may be run again."""

from collections.abc import Iterable
from pathlib import Path

from apical.errors import InvalidArgumentError
from apical.study import files
from apical.study.agenda import look
from apical.study.reading import opened


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
            if digest in standing.damaged:
                files.remove(store.trial(digest))
            store.forget_failure(digest)
    return again
