"""The shape of ADA and the surface of one neuron that solves XOR: gathered, then drawn."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from apical import functional
from apical.report import charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

XOR_POINTS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
XOR_LABELS = torch.tensor([0, 1, 1, 0])
WEIGHT, BIAS, ALPHA, C = 5.0, -4.0, 1.0, 1.0
"""The neuron of Lemma 1 of the paper: both weights 5, bias -4, alpha = c = 1."""


@dataclass(frozen=True)
class Curve:
    """One line of a figure."""

    label: str
    x: list[float]
    y: list[float]
    dashed: bool = False


@dataclass(frozen=True)
class Surface:
    """The output of a neuron with two inputs over a grid, and at the four corners."""

    axis: list[float]
    values: list[list[float]]
    corners: list[float]


def ada_curves(alphas: tuple[float, ...] = (0.3, 0.5, 1.0, 2.0), c: float = 0.0, points: int = 401) -> list[Curve]:
    """ADA for several alphas, and the dendrite's own response (Eq. 2 of the paper)."""
    x = torch.linspace(-2, 8, points)
    curves = [Curve(f"ADA, alpha = {alpha:g}", x.tolist(), functional.ada(x, alpha, c).tolist()) for alpha in alphas]
    return [*curves, Curve("dendrite, Eq. 2", x.tolist(), functional.dendrite(x).tolist(), dashed=True)]


def xor_neuron(inputs: Tensor) -> Tensor:
    """Lemma 1 of the paper: one neuron whose rounded output is XOR of its two inputs."""
    return functional.ada(WEIGHT * inputs.sum(-1) + BIAS, ALPHA, C)


def xor_surface(points: int = 121) -> Surface:
    """The neuron of Lemma 1 over the square [-0.25, 1.25]^2."""
    axis = torch.linspace(-0.25, 1.25, points)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    return Surface(axis.tolist(), xor_neuron(grid).tolist(), xor_neuron(XOR_POINTS).tolist())


def building_block() -> charts.Gallery:
    """ADA for several alphas against the dendrite's response (Eq. 2), and XOR with one neuron (Lemma 1)."""
    kinds = ("ada", "swish", "pynrbf", "leaky_ada", "relu")
    lines = tuple(
        charts.Line(
            curve.label, kind, tuple(curve.x[::4]), tuple(curve.y[::4]), dashed=curve.label.startswith("dendrite")
        )
        for curve, kind in zip(ada_curves(), kinds, strict=True)
    )
    alt = (
        "ADA rises to its peak at 1/alpha and falls towards 0; a dendrite's response (Eq. 2) falls from its threshold."
    )
    shape = charts.Lines("ada", "ADA and the dendrite it models", alt, "input", "activation", lines)
    legend = tuple((line.label, line.kind, line.dashed) for line in lines)
    return charts.Gallery(
        "The building block", "ADA (Eq. 3) and one neuron that computes XOR (Lemma 1).", (shape, _xor()), legend
    )


def _xor() -> charts.Surface:
    surface = xor_surface()
    points = zip(XOR_POINTS.tolist(), XOR_LABELS.tolist(), surface.corners, strict=True)
    corners = tuple((a, b, int(label), value) for (a, b), label, value in points)
    every = max(1, len(surface.axis) // 60)
    values = tuple(tuple(row[::every]) for row in surface.values[::every])
    said = ", ".join(f"{value:.2f} at ({a:g}, {b:g})" for a, b, _, value in corners)
    alt = f"Output of one ADA neuron over two inputs: {said}."
    return charts.Surface("xor", "One ADA neuron computes XOR", alt, tuple(surface.axis[::every]), values, corners)


def draw_overview(path: Path, curves: list[Curve], surface: Surface) -> None:
    """Draw the shapes of ADA, the XOR surface and a pyramidal neuron; the ending of `path` says in which format."""
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context({"font.size": 10, "svg.hashsalt": "apical"}):
        figure = Figure(figsize=(10, 5.6), layout="constrained")
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(4, 1.6))[:, 0]
        left, right = above.subplots(1, 2, width_ratios=(1.25, 1))
        for curve in curves:
            color, style = ("0.45", "--") if curve.dashed else (None, "-")
            left.plot(curve.x, curve.y, color=color, linestyle=style, label=curve.label)
        left.set(title="ADA: max(0, x) exp(c - alpha x)", xlabel="x", ylabel="activation", ylim=(-0.08, 1.7))
        left.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        left.legend(frameon=False, loc="upper center", ncols=2)
        ends = (surface.axis[0], surface.axis[-1]) * 2
        shades = right.imshow(surface.values, origin="lower", extent=ends, interpolation="bilinear", cmap="viridis")
        for (a, b), label, value in zip(XOR_POINTS.tolist(), XOR_LABELS.tolist(), surface.corners, strict=True):
            right.plot(a, b, "o", markersize=11, color="tab:green" if label else "tab:red", markeredgecolor="white")
            right.annotate(f"{value:.2f}", (a, b), (0, 11), textcoords="offset points", ha="center", color="#111111",
                           bbox={"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.2"})  # fmt: skip
        right.set(title="one ADA neuron computes XOR", xlabel="first input", ylabel="second input")
        above.colorbar(shades, ax=right, label="output")
        _draw_neuron(below.subplots())
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_neuron(axes: "Axes") -> None:
    """Eq. 12: two affine parts of one input, each with an activation of its own, summed."""
    title = "a pyramidal neuron (PyNADA): a basal and an apical branch on the same inputs"
    axes.set(title=title, xlim=(0, 10), ylim=(0, 2))
    axes.set_axis_off()
    for y, name, function, colour in ((1.5, "basal", "max(0, z')", "#d7e8fd"), (0.5, "apical", "ADA(z'')", "#fde3cf")):
        mark = "'" if name == "basal" else "''"
        box = {"boxstyle": "round,pad=0.5", "facecolor": colour, "edgecolor": "0.35"}
        affine = f"{name}: z{mark} = w{mark} x + b{mark}"
        for x, words in ((3.4, affine), (6.4, function)):
            axes.text(x, y, words, ha="center", va="center", bbox=box)
        for start, end in (((1.0, 1.0), (2.2, y)), ((4.65, y), (5.6, y)), ((7.2, y), (8.3, 1.0))):
            axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.35"})
    for x, words in ((0.8, "x"), (8.45, "+"), (9.4, "y")):
        axes.text(x, 1.0, words, ha="center", va="center", fontsize=13)
    axes.annotate("", (9.25, 1.0), (8.65, 1.0), arrowprops={"arrowstyle": "->", "color": "0.35"})


def plot_text(curve: Curve, *, width: int = 64, height: int = 12) -> str:
    """A curve in characters, for terminals."""
    low, high = min(curve.y), max(curve.y)
    rows = [[" "] * width for _ in range(height)]
    for column in range(width):
        value = curve.y[round(column * (len(curve.y) - 1) / (width - 1))]
        rows[height - 1 - round((value - low) / (high - low) * (height - 1))][column] = "•"
    lines = [f"{high - (high - low) * i / (height - 1):6.2f} ┤" + "".join(row).rstrip() for i, row in enumerate(rows)]
    ends = f"{curve.x[0]:<8g}" + f"{curve.x[-1]:>{width - 8}g}"
    return "\n".join([*lines, "       └" + "─" * width, "        " + ends])


SHADES = " ░▒▓█"


def surface_text(surface: Surface, *, width: int = 45, height: int = 13) -> str:
    """A surface in shades, for terminals: the darker a character, the larger the output; corners bear their values."""
    top, last = max(max(row) for row in surface.values), len(surface.axis) - 1
    rows = []
    for line in range(height):
        values = surface.values[round((height - 1 - line) * last / (height - 1))]
        shares = (max(0.0, values[round(k * last / (width - 1))]) / top for k in range(width))
        rows.append([SHADES[round(share * (len(SHADES) - 1))] for share in shares])
    start, span = surface.axis[0], surface.axis[-1] - surface.axis[0]
    for (a, b), value in zip(XOR_POINTS.tolist(), surface.corners, strict=True):
        column, line = round((a - start) / span * (width - 1)), height - 1 - round((b - start) / span * (height - 1))
        rows[line][column - 3 : column + 3] = f" {value:.2f} "
    ticks = {height - 1 - round((b - start) / span * (height - 1)): f"{b:g}" for b in (0.0, 1.0)}
    lines = [f"   {ticks.get(k, ' ')} ┤{''.join(row)}" for k, row in enumerate(rows)]
    marks = [" "] * width
    for a in (0, 1):
        marks[round((a - start) / span * (width - 1))] = str(a)
    return "\n".join([*lines, "     └" + "─" * width, "      " + "".join(marks).rstrip()])
