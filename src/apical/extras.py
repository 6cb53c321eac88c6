"""Optional parts of apical: imported when used, with the install command in the error."""

import importlib
from types import ModuleType

from apical.errors import MissingExtraError


def load(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or say which extra of apical brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".", maxsplit=1)[0]:
            raise
        raise MissingExtraError(
            f"this needs {error.name}, which is not installed: pip install 'apical[{extra}]'"
        ) from error
