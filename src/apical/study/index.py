"""What this machine has read of a study directory before: a cache, outside of it, that can be deleted at any time.

Published trials do not change, so that what was read once stays true as long as the folder is the same. Whatever goes
wrong here costs time and nothing else.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from apical.data.folders import home
from apical.study import files
from apical.study.facts import DAMAGED, Facts


class Index:
    """Facts about published trials by digest."""

    def __init__(self, directory: Path, path: Path | None = None) -> None:
        name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:24]
        self.path = path or home() / "index" / f"{name}.sqlite"

    def facts(self, found: Mapping[str, int], read: Callable[[str], Facts], *, trust: bool) -> dict[str, Facts]:
        """The facts of every published trial, given with its folder's number; `read` gets those that are not known.

        Without `trust`, everything is read again: a file inside a folder may have been damaged.
        """
        stored = self._stored() if trust else {}
        known = {digest: stored[digest, inode] for digest, inode in found.items() if (digest, inode) in stored}
        new = {digest: read(digest) for digest in found.keys() - known.keys()}
        sound = [(d, found[d], facts.to_json()) for d, facts in new.items() if facts.state != DAMAGED]
        if sound:  # a damaged folder may be replaced by a sound one of the same number
            self._store(sound)
        return known | new

    def _stored(self) -> dict[tuple[str, int], Facts]:
        try:
            with closing(self._open()) as base:
                rows = base.execute("SELECT digest, inode, facts FROM trials").fetchall()
            return {(digest, inode): Facts.from_json(text) for digest, inode, text in rows}
        except (sqlite3.Error, OSError, ValueError, TypeError, KeyError, RecursionError):
            files.remove(self.path)
            return {}

    def _store(self, rows: list[tuple[str, int, str]]) -> None:
        try:
            with closing(self._open()) as base, base:
                base.executemany("INSERT OR REPLACE INTO trials VALUES (?, ?, ?)", rows)
        except (sqlite3.Error, OSError):
            files.remove(self.path)

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        base = sqlite3.connect(self.path, timeout=5.0)
        try:
            base.execute("CREATE TABLE IF NOT EXISTS trials (digest TEXT PRIMARY KEY, inode INTEGER, facts TEXT)")
        except sqlite3.Error:
            base.close()
            raise
        return base
