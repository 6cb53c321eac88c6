"""Draw the layers of the architecture, as pyproject.toml states them. Run: python docs/draw_layers.py [file]"""

import re
import sys
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH, HIGH, GAP = 640, 34, 10
STYLE = "text{font:14px sans-serif;text-anchor:middle} rect{fill:#e8eaf6;stroke:#3f51b5} .page{fill:#fff;stroke:none}"


def layers() -> list[list[str]]:
    """The contract, top to bottom: the names of each layer."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [re.findall(r"\w+", line) for line in settings["tool"]["importlinter"]["contracts"][0]["layers"]]


def draw(rows: list[list[str]]) -> str:
    """Boxes from top to bottom, side by side where they do not know each other."""
    parts, y = [], 6
    for row in rows:
        wide = (WIDTH - 12 - GAP * (len(row) - 1)) / len(row)
        for place, name in enumerate(row):
            x = 6 + place * (wide + GAP)
            parts.append(f'<rect x="{x:g}" y="{y}" width="{wide:g}" height="{HIGH}" rx="6"/>')
            parts.append(f'<text x="{x + wide / 2:g}" y="{y + 22}">{escape(name)}</text>')
        y += HIGH + GAP
    title = "The layers of apical: each imports from those below it"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{title}">'
        f"<title>{title}</title><style>{STYLE}</style>\n"
        '<rect width="100%" height="100%" class="page"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "layers.svg"
    target.write_text(draw(layers()), encoding="utf-8")
