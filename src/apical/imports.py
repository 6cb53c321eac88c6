"""Imports that wait until they are used (public names, optional libraries), and those of users' modules."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from apical.errors import InvalidArgumentError, MissingExtraError


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` says of each public name which `module.attribute` of it that is."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(homes)}")
        module, _, attribute = homes[name].rpartition(".")
        value = getattr(importlib.import_module(f"{package}.{module}"), attribute)
        setattr(sys.modules[package], name, value)
        return value

    return load


def optional(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or raise an error with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".", maxsplit=1)[0]:
            raise
        raise MissingExtraError(
            f"this needs {error.name}, which is not installed: pip install 'apical[{extra}]'"
        ) from error


def file_of(library: str, inside: str, *, extra: str) -> Path:
    """The path of a file that comes with a library, which is not imported: that may take seconds."""
    spec = importlib.util.find_spec(library)
    if spec is None or spec.origin is None:
        raise MissingExtraError(f"this needs {library}, which is not installed: pip install 'apical[{extra}]'")
    return Path(spec.origin).parent / inside


def adding(call: str) -> str:
    """How to make a name known, for the sentence about one that is not: `call` registers it."""
    return f"{call} adds others: name the module that calls it with --import MODULE, or in `imports` of a study file"


def of_user(name: str) -> None:
    """Import a module of the user's, or say what is wrong with it, and where; the caller's sentence has its name."""
    try:
        importlib.import_module(name)
    except Exception as error:  # somebody's module may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if (missing and f"{name}.".startswith(f"{missing}.")) or not name or name.startswith("."):
            raise InvalidArgumentError(
                "there is no module of that name: name one that is installed, in the folder where you run apical (mine "
                "for mine.py), or in a folder on PYTHONPATH"
            ) from error
        place = "" if isinstance(error, SyntaxError) else _place(error)  # the text of a SyntaxError has it
        raise InvalidArgumentError(
            f"the module was found but failed while it was imported ({type(error).__name__}: {error}{place})"
        ) from error


def _place(error: Exception) -> str:
    """File and line of the last of the user's own code in the traceback, not of apical or another library."""
    library = Path(importlib.__file__).parent.parent
    frames = [(Path(f.filename), f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    others = [library, Path(__file__).parent]
    own = [(path, line) for path, line in frames if path.is_absolute() and not {*others} & {*path.parents}]
    own = [(path, line) for path, line in own if "site-packages" not in path.parts] or own[:1]
    return f", {own[-1][0].name}:{own[-1][1]}" if own else ""
