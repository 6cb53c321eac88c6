"""Figures and pages: numbers are gathered by pure functions, then drawn and written by others."""

from typing import TYPE_CHECKING

from apical import imports

if TYPE_CHECKING:
    from apical.report.figures import register_figure as register_figure
    from apical.report.gathering import Report as Report
    from apical.report.gathering import gather as gather
    from apical.report.watching import watch as watch
    from apical.report.writing import write as write

_HOME = {
    "Report": "gathering.Report",
    "gather": "gathering.gather",
    "register_figure": "figures.register_figure",
    "watch": "watching.watch",
    "write": "writing.write",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__ = imports.lazy(__name__, _HOME)
