"""Figures and pages: numbers are gathered by pure functions, then drawn and written by others."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apical.report.gathering import Report as Report
    from apical.report.gathering import gather as gather
    from apical.report.watching import watch as watch
    from apical.report.writing import write as write

_HOME = {
    "Report": "gathering.Report",
    "gather": "gathering.gather",
    "watch": "watching.watch",
    "write": "writing.write",
}

__all__ = [*_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'apical.report' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, attribute = _HOME[name].split(".")
    value = getattr(importlib.import_module(f"apical.report.{module}"), attribute)
    globals()[name] = value
    return value
