"""Modules of the user's that register units and networks."""

from collections.abc import Iterable
from importlib import import_module

from apical.errors import StudyError


def import_all(modules: Iterable[str]) -> None:
    """Import each module, or say which one cannot be."""
    for name in modules:
        try:
            import_module(name)
        except Exception as error:  # whatever the user's module raises, the sentence says which one it was
            raise StudyError(
                f"imports: {name!r} cannot be imported ({type(error).__name__}: {error}): give a module that is "
                "installed, in the folder where you run apical, or in a folder on PYTHONPATH"
            ) from error
