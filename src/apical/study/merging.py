"""`merge`: the trials of study directories that were filled apart, in one."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from apical.errors import StudyError
from apical.study import files
from apical.study.facts import DAMAGED
from apical.study.facts import read as read_facts
from apical.study.file import Study
from apical.study.joining import differences, open_for
from apical.study.store import CHECKPOINT, LOCK, PROGRESS, STUDY, Store


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
        raise StudyError("say what to merge: apical study merge TARGET SOURCE...")
    into = _opened(Path(target), given)
    counts = [_copy(store, digest, into) for store in given for digest in store.finished()]
    return Merged(counts.count("copied"), counts.count("known"), counts.count("damaged"))


def _opened(target: Path, given: list[Store]) -> Store:
    """The target, with a study that holds all of the sources'."""
    stores = [*([Store.open(target)] if (target / STUDY).exists() else []), *given]
    studies = [Study.from_dict(store.header.study) for store in stores]
    largest = max(studies, key=lambda study: (len(study.rows), study.trials))
    for store, study in zip(stores, studies, strict=True):
        if faults := differences(study, largest):
            raise StudyError(
                f"{store.directory} cannot be merged into {target}: {'; '.join(faults[:3])}: "
                "merge directories of one study"
            )
        if store.header.tune_trials != stores[0].header.tune_trials:
            raise StudyError(
                f"{store.directory} cannot be merged into {target}: its settings were compared by "
                f"{store.header.tune_trials} trials, and there by {stores[0].header.tune_trials}"
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
            shutil.copytree(store.trial(digest), copy, ignore=shutil.ignore_patterns(CHECKPOINT, LOCK, PROGRESS))
            return "copied" if into.publish(lease, copy) else "known"
        except shutil.Error as error:
            raise OSError(str(error)) from error
        finally:
            files.remove(copy)
            lease.release()
