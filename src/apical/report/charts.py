"""What a figure shows, as plain data, and its colours. `report.figures` gathers it, `report.draw` draws it."""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from apical.nn import kinds


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
class Dot:
    """One row in printed units: its mean with interval, its trials, the paper's value, and its gain over the baseline.

    `gain` is (mean, low, high), positive where the row is better; `sure`: the interval of the gain excludes 0. `text`
    and `gain_text` are the two in words, for a row that lies beyond the axis; `baseline`: others are compared with it.
    """

    label: str
    kind: str
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    trials: tuple[float, ...] = ()
    paper: float | None = None
    gain: tuple[float, float, float] | None = None
    sure: bool = False
    text: str = ""
    gain_text: str = ""
    baseline: bool = False

    @property
    def values(self) -> list[float]:
        """All that is measured of the row, and the paper's value."""
        return [v for v in (self.mean, self.paper, *self.trials) if v is not None]


CROWDED = 4
"""Rows that are far off go beyond the axis where it would be more than so many times as long as that of the others."""


@dataclass(frozen=True)
class Dots(Chart):
    """Rows as dots with intervals, and their gains beside them, or below them where the chart is `narrow`.

    `larger_is_better` is None where no row may lie beyond the axis.
    """

    axis: str = ""
    gain_axis: str = ""
    dots: tuple[Dot, ...] = ()
    narrow: bool = False
    larger_is_better: bool | None = None

    @property
    def beyond(self) -> tuple[Dot, ...]:
        """Rows that are so much worse that the others could not be told apart: at most a third of them, no baseline,
        and none that the paper has a number for.
        """
        sign = -1 if self.larger_is_better else 1
        rows = sorted((d for d in self.dots if d.mean is not None), key=lambda d: sign * (d.mean or 0.0))
        compared = any(d.gain for d in rows)
        for count in range(1, len(rows) // 3 + 1) if self.larger_is_better is not None else ():
            near, far = rows[:-count], rows[-count:]
            others = [d for d in self.dots if d not in far]
            if any(d.baseline or d.paper is not None for d in far) or (compared and not any(d.gain for d in near)):
                return ()
            low, high = _ends(others)
            first, last = _ends(self.dots)
            if 0 < CROWDED * (high - low) < last - first:
                return tuple(far)
        return ()

    @property
    def ends(self) -> tuple[float, float]:
        """Where the axis of the means starts and ends."""
        beyond = self.beyond
        return _ends([d for d in self.dots if d not in beyond])

    @property
    def cut(self) -> bool:
        """True where the interval of a row on the axis goes on beyond it."""
        (low, high), beyond = self.ends, self.beyond
        near = [d for d in self.dots if d not in beyond]
        return any((d.low is not None and d.low < low) or (d.high is not None and d.high > high) for d in near)


def _ends(dots: Sequence[Dot]) -> tuple[float, float]:
    """Of an axis for these rows. The interval of two or three trials can be many times as wide as all that was
    measured: it is cut where it is beyond the values by more than their range.
    """
    values = [v for d in dots for v in d.values]
    bounds = [v for d in dots for v in (d.low, d.high) if v is not None]
    low, high = min(values), max(values)
    first, last = min([low, *bounds]), max([high, *bounds])
    if low == high or not any(d.trials for d in dots):
        return first, last
    return max(first, 2 * low - high), min(last, 2 * high - low)


@dataclass(frozen=True)
class Lines(Chart):
    """Lines over a common axis. `ticks` names its places 0, 1, 2, ... where they are no numbers, `whole` marks an axis
    of whole numbers such as epochs, `from_zero` a vertical axis that starts at 0.
    """

    x_axis: str = ""
    y_axis: str = ""
    lines: tuple[Line, ...] = ()
    logarithmic: bool = False
    markers: bool = False
    ticks: tuple[str, ...] = ()
    whole: bool = False
    from_zero: bool = False


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
class Effect:
    """One pair of a forest plot, in printed units: our gain with its interval, the printed gain, the verdict.

    `exploratory`: the trials were seen before the rule that judges them was written.
    """

    label: str
    gain: float
    low: float
    high: float
    printed: float | None
    verdict: str
    exploratory: bool = False


@dataclass(frozen=True)
class Forest(Chart):
    """A line for each pair: intervals of gains around 0; `margin` is what counts as no difference."""

    axis: str = ""
    effects: tuple[Effect, ...] = ()
    margin: float = 0.0


@dataclass(frozen=True)
class Gallery:
    """Charts that belong together, with one legend of (label, kind, dashed).

    `detail`: they fold, and a page that grows too large leaves them to the folder of figures. `lead`: they stand before
    the tables. `empty` names charts that are left out because they would show nothing, and why.
    """

    title: str
    caption: str
    charts: tuple[Chart, ...]
    legend: tuple[tuple[str, str, bool], ...] = ()
    detail: bool = False
    lead: bool = False
    empty: tuple[str, ...] = ()


# One colour for each kind of unit, the same in every figure, for light and for dark pages.

INK, FAINT, GRID = "#1d2329", "#5b6570", "#d9dde2"
"""Text and axes, secondary text, grid lines: on a page they follow its theme."""
GROUND = "#fefefe"
"""Behind letters that would cross a line: on a page, its own ground."""
TRUTH, FIT = "#c8102e", "#1f5fbf"
"""The paper's red function and blue approximation."""
VERDICTS = {
    "supported": ("#1d6b43", ">"),
    "contradicted": ("#a8321f", "<"),
    "negligible": (FIT, "s"),
    "inconclusive": ("#7a5a00", "o"),
}
"""The colour and the shape of each verdict on a pair."""

SPARE = (
    ("#5b8043", "#a3c78d"),
    ("#a5578a", "#e3a3cd"),
    ("#57709f", "#9fb2d6"),
    ("#8a7a1d", "#cfc06a"),
    ("#2f7f9e", "#7cc7e4"),
    ("#2f4a1e", "#6f9c55"),
    ("#63264f", "#b96c9f"),
    ("#2c3a5c", "#6f86b8"),
    ("#55490b", "#9c8d3a"),
    ("#14485c", "#4894b3"),
)
"""For kinds without a colour of their own: standard ones above, pyramidal ones of the same hue below."""
HUES = len(SPARE) // 2
STEPS = 10
_LIGHT_ENDS, _DARK_ENDS = ((232, 150, 40), (92, 16, 64)), ((255, 214, 130), (214, 74, 130))
"""Of a row of colours for what differs by a number alone, such as alpha."""


def step(share: float) -> str:
    """The kind of a place on a scale from 0 to 1: `step-0` to `step-9`."""
    return f"step-{min(STEPS - 1, max(0, round((STEPS - 1) * share)))}"


def _between(ends: tuple[tuple[int, ...], tuple[int, ...]], place: int) -> str:
    share = place / (STEPS - 1)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*ends, strict=True))


Colours = tuple[str, str]
"""On light and on dark pages."""


class Palette:
    """The colours of a report: those of the kinds' descriptors, those that its studies store for kinds of their own
    (a reader of a study need not have its modules), and a spare one, picked by name, for every other kind.
    """

    def __init__(self, stored: Mapping[str, Colours] | None = None) -> None:
        known = {name: own for name in kinds.names() if (own := kinds.color(name))}
        steps = {f"step-{k}": (_between(_LIGHT_ENDS, k), _between(_DARK_ENDS, k)) for k in range(STEPS)}
        self._own = {kind: _lower(own) for kind, own in ({**(stored or {})} | known | steps).items()}
        named = {light: f"var({name})" for name, light, _ in reversed(self.variables())}
        self.themed = named | {
            INK: "var(--ink)",
            FAINT: "var(--faint)",
            GRID: "var(--grid)",
            GROUND: "var(--bg)",
            TRUTH: "var(--truth)",
            FIT: "var(--fit)",
            VERDICTS["supported"][0]: "var(--good)",
            VERDICTS["contradicted"][0]: "var(--bad)",
            VERDICTS["inconclusive"][0]: "var(--open)",
        }
        """What stands for each colour of a drawing on a page that has a theme."""

    def colour(self, kind: str) -> str:
        """The colour of a kind, or of a unit by its kind, on white."""
        name = kind.partition("(")[0]
        return (self._own.get(name) or SPARE[_spare(name)])[0]

    def variable(self, kind: str) -> str:
        """The name of the kind's colour in the page's style sheet."""
        return f"--u-{_ident(kind)}" if kind in self._own else f"--u-spare-{_spare(kind)}"

    def variables(self) -> list[tuple[str, str, str]]:
        """(name, light, dark) of every colour of a unit."""
        known = [(self.variable(kind), light, dark) for kind, (light, dark) in self._own.items()]
        return known + [(f"--u-spare-{k}", light, dark) for k, (light, dark) in enumerate(SPARE)]


def _lower(colours: Colours) -> Colours:
    light, dark = colours
    return light.lower(), dark.lower()  # as drawings write them


def _ident(kind: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "-", kind)


def _spare(kind: str) -> int:
    activation = kind.removeprefix("pyn")
    return zlib.crc32(activation.encode()) % HUES + (HUES if activation != kind else 0)
