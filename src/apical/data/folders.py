"""Where apical keeps data: `APICAL_HOME`, or the cache folder of the platform."""

import os
import sys
from pathlib import Path


def home() -> Path:
    """The folder of everything apical keeps between runs; it may not exist yet."""
    given = os.environ.get("APICAL_HOME")
    return Path(given).expanduser() if given else _platform_cache() / "apical"


def raw_folder(store: str) -> Path:
    """Where a user puts the files of a data set that cannot be downloaded freely."""
    return home() / "raw" / store


def prepared_folder() -> Path:
    """Where prepared data sets live, one folder each."""
    return home() / "prepared"


def _platform_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
