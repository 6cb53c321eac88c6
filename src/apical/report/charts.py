"""What a figure shows, as plain data. Gathered in `apical.report.figures`, drawn in `apical.report.draw`."""

import re
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


def slug(name: str) -> str:
    """A file name of letters, digits, points, dashes and underscores."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "chart"


@dataclass(frozen=True)
class Bar:
    """One bar: our value, the range over trials, the paper's value; in printed units."""

    label: str
    kind: str
    value: float | None
    low: float | None = None
    high: float | None = None
    paper: float | None = None


@dataclass(frozen=True)
class Line:
    """One line with a band around it (the range over trials)."""

    label: str
    kind: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """What all charts have: a file name, a title, and `alt`, which says in words what is to be seen."""

    name: str
    title: str
    alt: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", slug(self.name))


@dataclass(frozen=True)
class Bars(Chart):
    """Horizontal bars."""

    axis: str = ""
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True)
class Lines(Chart):
    """Lines over a common axis; `ticks` names its places 0, 1, 2, ... where they are no numbers."""

    x_axis: str = ""
    y_axis: str = ""
    lines: tuple[Line, ...] = ()
    logarithmic: bool = False
    markers: bool = False
    ticks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fit(Chart):
    """A function and its approximation by one unit; `words` is the error."""

    kind: str = ""
    x: tuple[float, ...] = ()
    truth: tuple[float, ...] = ()
    fit: tuple[float, ...] = ()
    words: str = ""


@dataclass(frozen=True)
class Surface(Chart):
    """The output of one neuron over two inputs, and at the four corners with their classes."""

    axis: tuple[float, ...] = ()
    values: tuple[tuple[float, ...], ...] = ()
    corners: tuple[tuple[float, float, int, float], ...] = ()


@dataclass(frozen=True)
class Pictures(Chart):
    """Rows of small images, each row with its label; `columns` names what stands below each other."""

    rows: tuple[tuple[str, tuple[NDArray[Any], ...]], ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gallery:
    """Charts that belong together, with one legend of (label, kind, dashed).

    `detail`: a page that grows too large leaves them to the folder of figures.
    """

    title: str
    caption: str
    charts: tuple[Chart, ...]
    legend: tuple[tuple[str, str, bool], ...] = ()
    detail: bool = False
