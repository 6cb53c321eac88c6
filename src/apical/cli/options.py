"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from apical.errors import InvalidArgumentError


def _there(root: Path | None) -> Path | None:
    """Refuse a path that is not there, though data that is prepared already would not need it."""
    if root is not None and not root.expanduser().exists():
        raise InvalidArgumentError(f"--root is {root}, but there is no such folder or archive: mend it or leave it out")
    return root


Root = Annotated[
    Path | None, typer.Option(callback=_there, help="The folder or archive that holds the official files.")
]
