"""Where a study lies that the user names."""

from pathlib import Path

from apical.errors import InvalidArgumentError
from apical.study.driver import FOLDER
from apical.study.store import STUDY


def study_directory(where: str) -> Path:
    """The directory of that path, or of that name in the usual folder."""
    usual = Path(FOLDER) / where
    for folder in (Path(where), usual):
        if (folder / STUDY).is_file():
            return folder
    quick = Path(FOLDER) / f"{where}-quick"
    hint = f"did you mean {quick.name!r}?" if (quick / STUDY).is_file() else f"run it with `apical study run {where}`"
    raise InvalidArgumentError(f"{where!r} is no study directory, and neither is {usual}: {hint}")
