"""Imports that wait until they are used: public names, so that `--help` is quick, and optional libraries."""

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from apical.errors import MissingExtraError


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
