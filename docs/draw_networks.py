"""Draws the diagrams of docs/networks.md from the networks themselves: one SVG each, on white whatever the page is on.

python docs/draw_networks.py [folder]
"""

import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import torch
from torch import nn

from apical import models

FOLDER = Path(__file__).parent / "images" / "networks"
WIDTH, BOX, HIGH, STEP, LINE = 940, 136, 56, 155, 86
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
.small { font-size: 10.5px } .left { text-anchor: start } .title { font-weight: 600; text-anchor: start }
rect { fill: #f3f4f6; stroke: #6e7781 } .page { fill: #fff; stroke: none }
.neuron, .basal { fill: #d7e8fd; stroke: #2f6fbe }
.apical { fill: #fde3cf; stroke: #c2570c } path { fill: none; stroke: #57606a; stroke-width: 1.3 }
.dendrite { stroke: #c2570c; stroke-width: 1.8 } circle { fill: #fff; stroke: #57606a }
#tip path { fill: #57606a; stroke: none }
"""


@dataclass
class Drawing:
    """Shapes collected top to bottom; `y` is where the next part begins."""

    title: str
    parts: list[str] = field(default_factory=list)
    y: float = 12

    def text(self, x: float, y: float, words: str, style: str = "") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{style}">{escape(words)}</text>')

    def box(
        self, x: float, y: float, lines: list[str], style: str = "", width: float = BOX, high: float = HIGH
    ) -> None:
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{high:g}" rx="6" class="{style}"/>')
        top = y + high / 2 - 7 * (len(lines) - 1) + 4
        for place, words in enumerate(lines):
            self.text(x + width / 2, top + 14 * place, words, "small" if place else "")

    def arrow(self, *points: tuple[float, float], style: str = "") -> None:
        steps = " L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path d="M{steps}" class="{style}" marker-end="url(#tip)"/>')

    def plus(self, x: float, y: float) -> None:
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="9"/>')
        self.text(x, y + 4, "+")

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.y:g}" role="img" '
            f'aria-label="{escape(self.title)}"><title>{escape(self.title)}</title><style>{STYLE}</style>'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 L8 4 L0 8 z"/></marker></defs>\n'
            '<rect width="100%" height="100%" class="page"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def kernel(layer: nn.Module) -> str:
    """`conv 5x5` and the like, for the affine layer of a neuron."""
    layer = getattr(layer, "affine", layer)
    if not hasattr(layer, "kernel_size"):
        return "dense"
    size = layer.kernel_size if isinstance(layer.kernel_size, tuple) else (layer.kernel_size,)
    strides = layer.stride if isinstance(layer.stride, tuple) else (layer.stride,)
    return "conv " + "x".join(map(str, size)) + (f", stride {strides[0]}" if strides[0] > 1 else "")


NAMES = {"MaxPool2d": "max-pool", "MaxPool1d": "max-pool", "AdaptiveAvgPool2d": "mean", "Embedding": "embedding"}


def chain(name: str) -> list[tuple[list[str], str]]:
    """The boxes of a network: lines of text and style; parameters are those of the standard / the pyramidal one."""
    with torch.device("meta"):
        standard, pyramidal = (models.create(name, unit) for unit in ("relu", "pynada"))
    tables = [models.summary(model) for model in (standard, pyramidal)]
    boxes: list[tuple[list[str], str]] = [(["input", shape(tables[0].input_size)], "")]
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(tables[0].rows):
        groups.setdefault(group(row.name), []).append(place)
    for key, places in groups.items():
        rows = [tables[0].rows[i] for i in places]
        if rows[0].layer == "Identity":
            continue
        counts = [sum(table.rows[i].parameters for i in places) for table in tables]
        style = "neuron" if counts[0] != counts[1] else ""
        weights = " / ".join(f"{n:,}" for n in dict.fromkeys(counts)) if counts[0] else ""
        boxes.append(([describe(key, rows, standard), shape(rows[-1].shape), *([weights] if weights else [])], style))
    return boxes


def group(name: str) -> str:
    """Layers drawn as one box: a stage of a ResNet, a squeeze-and-excitation block."""
    if name.startswith("layer"):
        return name.partition(".")[0]
    return name.removesuffix(".squeeze").removesuffix(".excite")


def describe(key: str, rows: list[models.Row], model: nn.Module) -> str:
    """The first line of a box."""
    if key.startswith("layer"):
        return f"{len(model.get_submodule(key))} blocks"  # type: ignore[arg-type]
    module, kind = model.get_submodule(key), rows[0].layer
    if len(rows) > 1:
        return "squeeze-excite"
    if kind == "Dropout":
        return f"dropout {module.p}"
    return NAMES.get(kind) or kernel(module)


def shape(size: tuple[int, ...]) -> str:
    """`6 x 28 x 28`."""
    return " x ".join(map(str, size))


def draw_chain(page: Drawing, boxes: list[tuple[list[str], str]]) -> None:
    """The boxes in lines from left to right."""
    fits = WIDTH // STEP
    for place, (lines, style) in enumerate(boxes):
        x, y = 8 + place % fits * STEP, page.y + place // fits * LINE
        page.box(x, y, lines, style)
        if place + 1 < len(boxes):
            middle = y + HIGH / 2
            if place % fits + 1 < fits:
                page.arrow((x + BOX, middle), (x + STEP, middle))
            else:
                down = y + HIGH + 15
                page.arrow((x + BOX / 2, y + HIGH), (x + BOX / 2, down), (8 + BOX / 2, down), (8 + BOX / 2, y + LINE))
    page.y += (len(boxes) - 1) // fits * LINE + HIGH + 26
    page.text(
        8,
        page.y,
        "Blue: layers of neurons; below the shape, parameters with standard / pyramidal neurons.",
        "small left",
    )
    page.y += 26


def draw_neurons(page: Drawing, affine: str) -> None:
    """A standard and a pyramidal layer, side by side."""
    y = page.y + 14
    page.text(8, page.y, "standard neurons", "title")
    page.text(26, y + 54, "x")
    page.arrow((34, y + 50), (52, y + 50))
    page.box(52, y + 28, [affine], "basal", 96, 44)
    page.arrow((148, y + 50), (172, y + 50))
    page.box(172, y + 28, ["activation"], "basal", 96, 44)
    page.arrow((268, y + 50), (292, y + 50))
    page.text(300, y + 54, "y")
    page.text(370, page.y, "pyramidal neurons: both branches in one weight of twice the outputs", "title")
    page.text(388, y + 54, "x")
    for row, (branch, style) in enumerate((("basal", "basal"), ("apical", "apical"))):
        middle = y + 22 + 56 * row
        page.arrow((396, y + 50), (410, y + 50), (410, middle), (424, middle))
        page.box(424, middle - 20, [affine, f"{branch} weights"], style, 110, 40)
        page.arrow((534, middle), (560, middle))
        page.box(560, middle - 20, [f"{branch} activation", "ReLU" if not row else "ADA"], style, 130, 40)
        page.arrow((690, middle), (730, middle), (730, y + 50 + (9 if row else -9)))
    page.plus(730, y + 50)
    page.arrow((739, y + 50), (766, y + 50))
    page.text(776, y + 54, "y")
    page.y = y + 112


def draw_block(page: Drawing, title: str, inner: str, kind: str) -> None:
    """A residual block: `standard`, `pyramidal`, or `longer`, whose skip is the apical dendrite."""
    page.text(8, page.y, title, "title")
    y = page.y + 34 + (36 if kind != "longer" else 0)
    rows = 1 if kind == "standard" else 2
    low, middle = y + 56, y + 28 if rows == 2 else y
    page.text(22, middle + 4, "x")
    page.arrow((30, middle), (56, middle))
    page.box(56, middle - 22, [inner, "basal only" if kind == "longer" else f"{kind} neurons"], "neuron", 190, 44)
    fork = 268
    page.arrow((246, middle), (fork, middle), (fork, y), (290, y))
    for x, words in ((290, "conv"), (372, "norm")):
        page.box(x, y - 18, [words], "basal", 58, 36)
    page.arrow((348, y), (372, y))
    page.arrow((430, y), (490 if kind == "longer" else 447, y))
    if kind != "longer":
        page.plus(456, y)
        page.arrow((465, y), (490, y))
        page.arrow((40, middle), (40, y - 42), (456, y - 42), (456, y - 9))
        page.text(200, y - 46, "identity skip (1x1 conv and norm where shapes differ)", "small")
    page.box(490, y - 18, ["activation" if rows == 1 else "basal activation"], "basal", 124, 36)
    if rows == 1:
        page.arrow((614, y), (690, y))
        page.text(700, y + 4, "y")
        page.y = y + 50
        return
    if kind == "longer":
        page.arrow((40, middle), (40, low), (290, low), style="dendrite")
        page.text(165, low + 16, "longer apical dendrite in place of the skip", "small")
    else:
        page.arrow((fork, middle), (fork, low), (290, low))
    for x, words in ((290, "1x1 conv" if kind == "longer" else "conv"), (372, "norm")):
        page.box(x, low - 18, [words], "apical", 58, 36)
        page.arrow((x + 58, low), (x + 82 if x == 290 else 490, low))
    page.box(490, low - 18, ["apical activation"], "apical", 124, 36)
    for level, side in ((y, -9), (low, 9)):
        page.arrow((614, level), (650, level), (650, middle + side))
    page.plus(650, middle)
    page.arrow((659, middle), (690, middle))
    page.text(700, middle + 4, "y")
    page.y = low + 50


def draw(name: str) -> str:
    """The diagram of one network."""
    page = Drawing(f"The network {name}, with standard and with pyramidal neurons")
    draw_chain(page, chain(name))
    if name.startswith("resnet"):
        inner = "conv 3x3" if name == "resnet-18" else "conv 1x1, conv 3x3"
        draw_block(page, "block of standard neurons", inner, "standard")
        draw_block(page, "block of pyramidal neurons", inner, "pyramidal")
        draw_block(page, 'block with a longer apical dendrite: skip="apical"', inner, "longer")
    else:
        draw_neurons(page, "dense" if name.startswith("mlp") else "conv or dense")
    return page.svg()


def main(folder: Path) -> None:
    """Write every diagram."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in models.list():
        (folder / f"{name}.svg").write_text(draw(name), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
