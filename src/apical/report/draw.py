"""Charts drawn with matplotlib: one SVG for the page and the folder, one PDF for the folder."""

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from apical import files, imports
from apical.errors import InvalidArgumentError, StudyError
from apical.report import charts
from apical.report.charts import Bars, Chart, Dots, Fit, Forest, Lines, Palette, Pictures, Surface

if TYPE_CHECKING:
    from apical.study.results import StudyResults

WIDTH = 3.6
"""Inches: a phone shows a figure of this width at its natural size."""

TITLE_WIDTH = 52
"""Letters."""
MOST_TICKS = 20
"""Names that stand beside each other below an axis."""
LEGEND, LEGEND_ROW = "legend", 0.17
"""Files have their own legends; on the page, where one legend serves a gallery, they are cut off by this name."""

CARETS = (4, 5)
DOTTED = (0, (1.2, 1.0))
"""Matplotlib's markers that point to the left and to the right, of what lies beyond an axis."""
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that a name may hold and XML may not."""

STYLE: dict[str, Any] = {
    "font.size": 8.5,
    "font.family": "sans-serif",
    "text.color": charts.INK,
    "axes.labelcolor": charts.FAINT,
    "axes.edgecolor": charts.GRID,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": charts.GRID,
    "grid.linewidth": 0.5,
    "xtick.color": charts.FAINT,
    "ytick.color": charts.FAINT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.titlesize": 9,
    "axes.titleweight": "normal",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "svg.fonttype": "none",
    "pdf.fonttype": 3,  # as text too, and four times faster than 42
    "savefig.transparent": True,
    "text.parse_math": False,
    "axes.unicode_minus": True,
}


def draw(chart: Chart, folder: Path, palette: Palette) -> str:
    """Write `<name>.svg` and `<name>.pdf` into the folder; returns the text of the SVG."""
    with _figure(chart, palette) as figure:
        text = svg_text(figure, chart.name)
        files.write(folder / f"{chart.name}.svg", text.encode(), durable=False)
        figure.set_layout_engine("none")  # the places are found: once is enough
        figure.savefig(data := io.BytesIO(), format="pdf", metadata={"CreationDate": None})
        files.write(folder / f"{chart.name}.pdf", data.getbuffer(), durable=False)
    return text


def draw_svg(chart: Chart, palette: Palette) -> str:
    """The text of the SVG alone."""
    with _figure(chart, palette) as figure:
        return svg_text(figure, chart.name)


def plot(results: "StudyResults", part: str | None = None) -> Any:
    """The first picture of a report as a matplotlib figure: of that part, or of the first one with results."""
    from apical.report.figures import means  # noqa: PLC0415  the pictures of a report are drawn by this module

    shown = [c for c in means(results).charts if not (isinstance(c, Dots) and c.narrow)]
    names = [p.name for p in results.study.parts]
    if part is not None and part not in names:
        raise InvalidArgumentError(f"unknown part {part!r}; available: {', '.join(names)}")
    charts = [c for c in shown if part is None or c.name == f"{part}-means"]
    if not charts:
        raise StudyError("there is nothing to plot: no trial is tested yet")
    with _figure(charts[0], Palette(results.study.colors)) as figure:
        return figure


def svg_text(figure: Any, name: str) -> str:
    """A figure as SVG on white, the same bytes each time."""
    matplotlib = imports.optional("matplotlib", extra="lab")
    buffer = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = CONTROL.sub("", buffer.getvalue().decode("utf-8"))
    return text.replace("<svg ", '<svg style="background: #ffffff" ', 1)  # a Markdown page may be dark


@contextmanager
def _figure(chart: Chart, palette: Palette) -> Iterator[Any]:
    matplotlib = imports.optional("matplotlib", extra="lab")
    figure_class = imports.optional("matplotlib.figure", extra="lab").Figure
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # a browser finds letters that matplotlib's own font lacks; a PDF shows a box
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = figure_class(figsize=(WIDTH, 2.5), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.04, h_pad=0.04)
        DRAWERS[type(chart)](figure, chart, palette)
        yield figure


def _title(figure: Any, text: str) -> None:
    """At the left, on as many lines as it needs."""
    figure.suptitle(textwrap.fill(text, TITLE_WIDTH), x=0.02, ha="left", fontsize=9)


def _bars(figure: Any, chart: Bars, palette: Palette) -> None:
    figure.set_size_inches(WIDTH, 0.75 + 0.21 * len(chart.bars))
    axis = figure.subplots()
    start, end = _ends(chart)
    for place, bar in enumerate(chart.bars):
        colour = palette.colour(bar.kind)
        if bar.value is not None and start > 0:  # a bar from a cut axis has no length that means anything
            axis.plot(bar.value, place, "o", markersize=5, color=colour)
        elif bar.value is not None:
            axis.barh(place, bar.value - start, left=start, height=0.62, color=colour, alpha=0.85, linewidth=0)
        if bar.low is not None and bar.high is not None:
            axis.plot([bar.low, bar.high], [place, place], color=charts.INK, linewidth=1, solid_capstyle="butt")
        if bar.paper is not None:
            axis.plot(bar.paper, place, "D", markersize=4, markerfacecolor="none", markeredgecolor=charts.INK)
    axis.set_yticks(range(len(chart.bars)), [textwrap.shorten(bar.label, 30) or bar.label for bar in chart.bars])
    axis.tick_params(axis="y", colors=charts.INK)
    axis.invert_yaxis()
    axis.set_xlim(start, end)
    axis.set_xlabel(chart.axis if start == 0 else f"{chart.axis}, from {start:g}", loc="right")
    axis.grid(visible=False, axis="y")
    _title(figure, chart.title)


def _dots(figure: Any, chart: Dots, palette: Palette) -> None:
    """Left the means with their intervals and trials, right the gains over the baseline."""
    panels = 1 + any(dot.gain for dot in chart.dots)
    gains = [dot for dot in chart.dots if dot.gain] if chart.narrow else chart.dots
    heights = [0.8 + 0.24 * len(dots) for dots in (chart.dots, gains)[:panels]]
    if chart.narrow:
        figure.set_size_inches(WIDTH, sum(heights))
        axes = figure.subplots(panels, 1, squeeze=False, height_ratios=heights).ravel()
    else:
        figure.set_size_inches(WIDTH if panels == 1 else 1.75 * WIDTH, heights[0])
        axes = figure.subplots(1, panels, squeeze=False, sharey=True).ravel()
    _draw_means(axes[0], chart, palette)
    far = chart.beyond
    for place, dot in enumerate(gains):
        if dot in far:
            if dot.gain is not None:
                _draw_beyond(axes[1], place, dot.gain_text, palette.colour(dot.kind), right=False)
        elif dot.gain is not None:
            colour, (middle, low, high) = palette.colour(dot.kind), dot.gain
            face = colour if dot.sure else "none"
            axes[1].plot([low, high], [place, place], color=colour, linewidth=1.6, zorder=2)
            axes[1].plot(middle, place, "o", markersize=5.5, markeredgecolor=colour, markerfacecolor=face, zorder=3)
    axes[0].set_xlabel(chart.axis, loc="right")
    if panels == 2:
        axes[1].axvline(0, color=charts.INK, linewidth=0.8, zorder=1)
        axes[1].set_xlabel(chart.gain_axis, loc="right")
    for number, (axis, dots) in enumerate(zip(axes, (chart.dots, gains), strict=False)):
        labels = [shortened(dot.label, 24) for dot in dots]
        axis.grid(visible=False, axis="y")
        if number == 0 or chart.narrow:
            axis.set_yticks(range(len(labels)), labels)
        axis.tick_params(axis="y", colors=charts.INK)
        axis.set_ylim(len(labels) - 0.25, -0.6)  # below the last row there is room for the lowest level of its trials
        axis.locator_params(axis="x", nbins=5)
    _title(figure, chart.title)


def _draw_means(axis: Any, chart: Dots, palette: Palette) -> None:
    """Means with their intervals, cut where they leave the axis, and the trials below."""
    (start, end), far = chart.ends, chart.beyond
    for place, dot in enumerate(chart.dots):
        colour = palette.colour(dot.kind)
        if dot in far:
            _draw_beyond(axis, place, dot.text, colour, right=not chart.larger_is_better)
            continue
        below = [place + shift for shift in _shifts(dot.trials, end - start)]
        axis.plot(dot.trials, below, "o", markersize=2.6, color=colour, alpha=0.7, linewidth=0, markeredgewidth=0)
        if dot.low is not None and dot.high is not None:
            axis.plot([max(dot.low, start), min(dot.high, end)], [place, place], color=colour, linewidth=1.6)
            for caret, beyond, edge in zip(CARETS, (dot.low < start, dot.high > end), (start, end), strict=True):
                if beyond:
                    axis.plot(edge, place, marker=caret, markersize=5, color=colour, clip_on=False)
        if dot.mean is not None:
            axis.plot(dot.mean, place, "o", markersize=5.5, color=colour)
        if dot.paper is not None:
            axis.plot(dot.paper, place, "D", markersize=4.5, markerfacecolor="none", markeredgecolor=charts.INK)


def _draw_beyond(axis: Any, place: int, text: str, colour: str, *, right: bool) -> None:
    """An arrow at the edge, and beside it the numbers of a row that is not drawn to scale."""
    (arrow, words), across = (0.98, 0.94) if right else (0.02, 0.06), axis.get_yaxis_transform()
    axis.plot(arrow, place, marker=CARETS[right], markersize=6, color=colour, transform=across)
    axis.text(words, place, text, ha="right" if right else "left", va="center", fontsize=7.5, color=charts.INK,
              bbox={"facecolor": charts.GROUND, "edgecolor": "none", "pad": 0.5}, transform=across)  # fmt: skip


def _shifts(values: Sequence[float], span: float) -> list[float]:
    """How far below its line each trial is drawn, in rows: those that would cover each other on up to three levels."""
    free = [-math.inf] * 3
    shifts = dict.fromkeys(range(len(values)), 0.27)
    for place in sorted(shifts, key=values.__getitem__):
        level = next((k for k, last in enumerate(free) if values[place] - last > 0.025 * span), 0)
        free[level] = values[place]
        shifts[place] += 0.14 * level
    return list(shifts.values())


def _ends(chart: Bars) -> tuple[float, float]:
    """Where the axis starts and ends: at 0, unless all values lie close together far from it."""
    values = [v for bar in chart.bars for v in (bar.value, bar.low, bar.high, bar.paper) if v is not None]
    low, high = min(values), max(values)
    if low < 0.75 * high or high <= 0:
        return min(0.0, low), (high * 1.06 or 1.0)
    margin = max(high - low, 0.004 * high)
    return _round_down(low - 0.35 * margin, margin), high + 0.12 * margin


def _round_down(value: float, margin: float) -> float:
    step = 10.0 ** len(str(int(margin))) / 10 if margin >= 1 else 0.1 if margin >= 0.1 else 0.01
    return max(0.0, round((value // step) * step, 6))


def _lines(figure: Any, chart: Lines, palette: Palette) -> None:
    axis = figure.subplots()
    for line in chart.lines:
        colour, style = palette.colour(line.kind), "--" if line.dashed else "-"
        marker = "o" if chart.markers or len(line.x) == 1 else None
        axis.plot(line.x, line.y, style, color=colour, linewidth=1.4, marker=marker, markersize=3.5, label=line.label)
        if line.low:
            axis.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    if chart.logarithmic:
        axis.set_yscale("log")
        ticker = imports.optional("matplotlib.ticker", extra="lab")
        values = [value for line in chart.lines for value in (*line.y, *line.low, *line.high)]
        narrow = max(values) < 40 * min(values)
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if narrow else (1,), numticks=6))
        axis.yaxis.set_major_formatter("{x:g}")  # the usual one is mathematics, which names must never be
        axis.yaxis.set_minor_formatter("")
    elif chart.from_zero:
        axis.set_ylim(bottom=0, top=max(1.0, axis.get_ylim()[1]))
    axis.set(xlabel=chart.x_axis, ylabel=chart.y_axis)
    if chart.ticks:
        every = -(-len(chart.ticks) // MOST_TICKS)
        names = [shortened(name, 20) for name in chart.ticks[::every]]
        axis.set_xticks(range(0, len(chart.ticks), every), names, rotation=90)
    if chart.whole:
        ticker = imports.optional("matplotlib.ticker", extra="lab")
        axis.xaxis.set_major_locator(ticker.MaxNLocator("auto", integer=True, min_n_ticks=1))
    _title(figure, chart.title)
    if len(chart.lines) > 1:
        rows = -(-len(chart.lines) // 3)
        figure.set_size_inches(WIDTH, (3.3 if chart.ticks else 2.5) + LEGEND_ROW * rows)
        figure.legend(loc="outside lower left", ncols=3, handlelength=1.4, columnspacing=1.0).set_gid(LEGEND)


def _forest(figure: Any, chart: Forest, _: Palette) -> None:
    """Names stand above their lines, so that a phone shows both; arrows point to pairs beyond the axis."""
    figure.set_size_inches(1.25 * WIDTH, 1.4 + 0.205 * len(chart.effects))
    axis = figure.subplots()
    axis.axvspan(-chart.margin, chart.margin, color=charts.GRID, alpha=0.5, linewidth=0)
    axis.axvline(0, color=charts.FAINT, linewidth=0.8)
    ends = sorted(max(abs(e.low), abs(e.high), abs(e.printed or 0.0)) for e in chart.effects)
    bound = max(1.1 * ends[int(0.85 * (len(ends) - 1))], 4 * chart.margin)
    for place, effect in enumerate(chart.effects):
        colour, shape = charts.VERDICTS[effect.verdict]
        low, high = max(effect.low, -bound), min(effect.high, bound)
        if low < high:
            style = DOTTED if effect.exploratory else "-"
            axis.plot([low, high], [place, place], linestyle=style, color=colour, linewidth=1.4, solid_capstyle="butt")
        shown = abs(effect.gain) <= bound
        axis.plot(min(max(effect.gain, -bound), bound), place, marker=shape if shown else CARETS[effect.gain > 0],
                  color=colour, markerfacecolor=charts.GROUND if effect.exploratory else colour,
                  markersize=4.5 if shown else 7, clip_on=False)  # fmt: skip
        if effect.printed is not None:
            near = abs(effect.printed) <= bound
            axis.plot(min(max(effect.printed, -bound), bound), place,
                      marker="D" if near else CARETS[effect.printed > 0], markersize=4 if near else 7,
                      markerfacecolor="none", markeredgecolor=charts.INK, clip_on=False)  # fmt: skip
    for verdict, (colour, shape) in charts.VERDICTS.items():
        if any(effect.verdict == verdict for effect in chart.effects):
            axis.plot([], [], shape, color=colour, markersize=4.5, label=verdict)
    if any(effect.printed is not None for effect in chart.effects):
        axis.plot([], [], "D", markersize=4, markerfacecolor="none", markeredgecolor=charts.INK, label="the paper")
    if any(effect.exploratory for effect in chart.effects):
        axis.plot([], [], linestyle=DOTTED, color=charts.INK, marker="o", markersize=4.5, markerfacecolor=charts.GROUND,
                  label="exploratory")  # fmt: skip
    for place, effect in enumerate(chart.effects):
        axis.text(-bound, place - 0.22, shortened(effect.label, 70), fontsize=7, va="bottom", color=charts.INK)
    axis.set_yticks([])
    axis.set(xlim=(-bound, bound), ylim=(len(chart.effects) - 0.4, -1.1), xlabel=chart.axis)
    axis.grid(visible=False, axis="y")
    figure.legend(loc="outside lower left", ncols=3, handlelength=1.0, columnspacing=1.2)
    _title(figure, chart.title)


def _fit(figure: Any, chart: Fit, _: Palette) -> None:
    figure.set_size_inches(WIDTH, 2.2)
    axis = figure.subplots()
    axis.plot(chart.x, chart.truth, color=charts.TRUTH, linewidth=2.6)
    axis.plot(chart.x, chart.fit, color=charts.FIT, linewidth=1.2)
    axis.set_xlabel(chart.words, color=charts.INK)
    low, high = min(chart.truth), max(chart.truth)
    axis.set_ylim(low - 0.35 * (high - low), high + 0.35 * (high - low))
    _title(figure, chart.title)


def _surface(figure: Any, chart: Surface, _: Palette) -> None:
    figure.set_size_inches(WIDTH, 3.0)
    axis = figure.subplots()
    ends = (chart.axis[0], chart.axis[-1]) * 2
    shades = axis.imshow(chart.values, origin="lower", extent=ends, interpolation="bilinear", cmap="viridis")
    for a, b, label, value in chart.corners:
        axis.plot(a, b, "o", markersize=9, color="#2ca02c" if label else "#d62728", markeredgecolor="white")
        axis.annotate(f"{value:.2f}", (a, b), (0, 9), textcoords="offset points", ha="center", color="#111111",
                      bbox={"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.2"})  # fmt: skip
    axis.grid(visible=False)
    axis.set(xlabel="first input", ylabel="second input")
    figure.colorbar(shades, ax=axis, shrink=0.8).outline.set_visible(False)
    _title(figure, chart.title)


def _pictures(figure: Any, chart: Pictures, _: Palette) -> None:
    columns = max(len(images) for _, images in chart.rows)
    figure.set_size_inches(2 * WIDTH, 0.7 + 2 * WIDTH / (columns + 1) * len(chart.rows))
    axes = figure.subplots(len(chart.rows), columns, squeeze=False)
    for (label, images), row in zip(chart.rows, axes, strict=True):
        for axis, image in zip(row, images, strict=False):
            axis.imshow(image, vmin=0, vmax=1, cmap="gray", interpolation="none")
        for axis in row:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", color=charts.INK)
    for axis, name in zip(axes[0], chart.columns, strict=False):
        axis.set_title(textwrap.fill(shortened(name, 26), 13), loc="center", fontsize=7.5)
    _title(figure, chart.title)


def shortened(text: str, length: int) -> str:
    """Cut where it is longer; a label has its place."""
    plain = " ".join(text.split())
    return plain if len(plain) <= length else f"{plain[: length - 1]}…"


DRAWERS: dict[type, Callable[[Any, Any, Palette], None]] = {
    Bars: _bars,
    Dots: _dots,
    Lines: _lines,
    Fit: _fit,
    Surface: _surface,
    Pictures: _pictures,
    Forest: _forest,
}


# A drawing made part of the page: small, with colours that follow the page's theme.

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)

COLOUR = re.compile("#[0-9a-f]{6}")
DECIMALS = re.compile(r"(\d+\.\d)\d+")
SPACES = re.compile(r"\s+")
FAMILIES = re.compile(r"font-family: [^;]*; ?")
FONT = re.compile(r"font: (?:\d+ )?([\d.]+px) [^;]*")
"""The page chooses the letters; their size stays."""
REFERENCE = re.compile(r"url\(#([^)]*)\)")
POINTS_PER_INCH = 72


def inline(text: str, *, name: str, alt: str, palette: Palette) -> str:
    """The SVG of a drawing for the inside of an HTML page; `alt` is what is read where it cannot be seen."""
    root = ElementTree.fromstring(text)
    for tag in ("metadata", "style"):  # its one rule stands in the page's style sheet
        _remove(root, f"{{{SVG}}}{tag}")
    cut = _remove_legend(root)
    wanted = _referenced(root)
    for element in root.iter():
        _lean(element, name, wanted, palette)
    _fit_to_page(root, cut=cut)
    root.attrib.pop("style")  # white, for pages that do not choose the colours
    root.set("role", "img")
    root.set("aria-label", alt)
    return ElementTree.tostring(root, encoding="unicode")


def _remove(root: ElementTree.Element, tag: str) -> None:
    for parent in root.iter():
        for child in parent.findall(tag):
            parent.remove(child)


def _remove_legend(root: ElementTree.Element) -> float:
    """Takes the legend away; returns its height in points."""
    for parent in root.iter():
        for child in list(parent):
            if child.get("id") == LEGEND:
                entries = len(list(child.iter(f"{{{SVG}}}text")))
                parent.remove(child)
                return -(-entries // 3) * LEGEND_ROW * POINTS_PER_INCH
    return 0.0


def _referenced(root: ElementTree.Element) -> set[str]:
    """The ids that something refers to; nobody needs the others."""
    values = [(key, value) for element in root.iter() for key, value in element.attrib.items()]
    links = {value[1:] for key, value in values if key.endswith("href") and value.startswith("#")}
    return links | {name for _, value in values for name in REFERENCE.findall(value)}


def _lean(element: ElementTree.Element, name: str, wanted: set[str], palette: Palette) -> None:
    for key, value in list(element.attrib.items()):
        if key == "id":
            if value in wanted:
                element.set(key, f"{name}-{value}")
            else:
                del element.attrib[key]
        elif key.endswith("href"):
            element.set(key, f"#{name}-{value[1:]}" if value.startswith("#") else value)
        else:
            element.set(key, _lean_value(value, name, palette))
    if not element.tag.endswith(("text", "tspan")):
        element.text = element.text if element.text and element.text.strip() else None
    element.tail = element.tail if element.tail and element.tail.strip() else None


def _lean_value(value: str, name: str, palette: Palette) -> str:
    value = FONT.sub(r"font-size: \1", FAMILIES.sub("", value))
    value = SPACES.sub(" ", DECIMALS.sub(r"\1", value)).strip()
    value = value.replace("url(#", f"url(#{name}-")
    return COLOUR.sub(lambda match: palette.themed.get(match.group(), match.group()), value)


def _fit_to_page(root: ElementTree.Element, *, cut: float) -> None:
    """Scaled by its box: the page decides on the width."""
    left, top, width, height = (float(v) for v in root.get("viewBox", "0 0 1 1").split())
    root.set("viewBox", f"{left:g} {top:g} {width:g} {height - cut:g}")
    root.set("width", f"{width:g}pt")
    root.attrib.pop("height", None)
