"""Draw how a study flows from its file to the page. Run: python docs/draw_flow.py [file]"""

import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDE, HIGH, GAP, TOP = 210, 58, 64, 12
STYLE = (
    "text{font:14px sans-serif;text-anchor:middle} .where{font:12px monospace;fill:#3949ab} .note{font:12px sans-serif}"
    " rect{fill:#e8eaf6;stroke:#3f51b5} .disk{fill:#fff8e1;stroke:#b26a00} .page{fill:#fff;stroke:none}"
    " path{fill:none;stroke:#333;stroke-width:1.5;marker-end:url(#tip)}"
)

# name -> (column, row, title, module of src/apical); "disk" boxes lie in the study directory.
BOXES = {
    "file": (0, 0, "study file", "study/config/", "disk"),
    "study": (1, 0, "Study", "study/model.py", ""),
    "plan": (2, 0, "Plan: every trial, its digest", "study/plan.py", ""),
    "driver": (2, 1, "driver: what is next?", "study/driver.py", ""),
    "state": (1, 2, "state: what is there?", "study/state.py", ""),
    "selection": (1, 1, "selection by validation", "study/selection.py", ""),
    "engine": (2, 2, "engine places jobs", "study/engines/", ""),
    "worker": (2, 3, "worker, holding a lease", "study/worker.py", ""),
    "trial": (1, 3, "train, or test once", "train/trial.py, train/stack/", ""),
    "folder": (0, 3, "trials/<digest>/", "study/directory.py", "disk"),
    "results": (0, 2, "StudyResults", "study/results.py", ""),
    "report": (0, 1, "Report, then four formats", "report/gathering.py", ""),
}
ARROWS = [
    ("file", "study", "load"),
    ("study", "plan", "plan"),
    ("plan", "driver", ""),
    ("state", "driver", ""),
    ("driver", "engine", "Job"),
    ("engine", "worker", ""),
    ("worker", "trial", "run"),
    ("trial", "folder", "rename"),
    ("folder", "results", "read"),
    ("results", "report", "gather"),
    ("folder", "state", ""),
    ("state", "selection", "values"),
    ("selection", "driver", "chosen"),
]


def place(name: str) -> tuple[float, float]:
    """The upper left corner of a box."""
    column, row = BOXES[name][:2]
    return TOP + column * (WIDE + GAP), TOP + row * (HIGH + GAP)


def arrow(start: str, end: str, label: str) -> str:
    """A line between the nearest edges of two boxes."""
    (x0, y0), (x1, y1) = place(start), place(end)
    if y0 == y1:
        right = x1 > x0
        a, b = (x0 + WIDE, y0 + HIGH / 2) if right else (x0, y0 + HIGH / 2), (x1, y1 + HIGH / 2)
        b = b if right else (x1 + WIDE, y1 + HIGH / 2)
    else:
        down = y1 > y0
        shift = 0 if x0 == x1 else WIDE / 3
        a = (x0 + WIDE / 2 + shift, y0 + HIGH if down else y0)
        b = (x1 + WIDE / 2 - shift, y1 if down else y1 + HIGH)
    beside = 30 if x0 == x1 else 0
    words = (
        f'<text class="note" x="{(a[0] + b[0]) / 2 + beside:g}" y="{(a[1] + b[1]) / 2 + (4 if beside else -6):g}">'
        f"{escape(label)}</text>"
    )
    return f'<path d="M{a[0]:g} {a[1]:g}L{b[0]:g} {b[1]:g}"/>' + (words if label else "")


def draw() -> str:
    """Boxes with the module that each one is, and arrows in the order of the work."""
    parts = [arrow(*each) for each in ARROWS]
    for name, (_, _, title, module, kind) in BOXES.items():
        x, y = place(name)
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6"/>')
        parts.append(f'<text x="{x + WIDE / 2:g}" y="{y + 24}">{escape(title)}</text>')
        parts.append(f'<text class="where" x="{x + WIDE / 2:g}" y="{y + 44}">{escape(module)}</text>')
    width, height = 2 * TOP + 3 * WIDE + 2 * GAP, 2 * TOP + 4 * HIGH + 3 * GAP
    title = "How a study flows: file, plan, driver, engine, worker, trial, results, report"
    tip = (
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0 0L8 4L0 8z" style="fill:#333;stroke:none;marker-end:none"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">'
        f"<title>{title}</title><style>{STYLE}</style>{tip}\n"
        '<rect width="100%" height="100%" class="page"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "flow.svg"
    target.write_text(draw(), encoding="utf-8")
