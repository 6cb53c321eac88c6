"""One colour for each kind of unit, the same in every figure, for light and for dark pages."""

import zlib

INK, FAINT, GRID = "#1d2329", "#5b6570", "#d9dde2"
"""Text and axes, secondary text, grid lines: on a page they follow its theme."""
TRUTH, FIT = "#c8102e", "#1f5fbf"
"""The paper's red function and blue approximation."""

UNITS = {
    # kind: (light, dark); an activation keeps its hue, leaky and pyramidal forms are neighbours of it
    "relu": ("#4878a8", "#7fb0e0"),
    "leaky_relu": ("#2f5f8f", "#9cc4ec"),
    "pynrelu": ("#3a6ea5", "#6ea8dc"),
    "tanh": ("#8a6d3b", "#cfae76"),
    "rbf": ("#7a5195", "#b794d4"),
    "pynrbf": ("#6b4487", "#c3a3de"),
    "swish": ("#2a7f78", "#5fc4bb"),
    "pynswish": ("#1f6f69", "#74d1c8"),
    "ada": ("#c4452f", "#f08a74"),
    "leaky_ada": ("#a8571a", "#f0a860"),
    "pynada": ("#b83a4b", "#f28b9a"),
    "leaky_pynada": ("#9c4f12", "#eeb06e"),
}
SPARE = (("#4d6b3c", "#a3c78d"), ("#7a4a63", "#d39ab8"), ("#4a5a78", "#9fb2d6"), ("#6b5f1d", "#cfc06a"))
"""For kinds that users register."""


def colour(kind: str) -> str:
    """The colour of a kind on white."""
    return UNITS[kind][0] if kind in UNITS else SPARE[_spare(kind)][0]


def variable(kind: str) -> str:
    """The name of the kind's colour in the page's style sheet."""
    return f"--u-{kind.replace('_', '-')}" if kind in UNITS else f"--u-spare-{_spare(kind)}"


def variables() -> list[tuple[str, str, str]]:
    """(name, light, dark) of every colour of a unit."""
    known = [(variable(kind), light, dark) for kind, (light, dark) in UNITS.items()]
    return known + [(f"--u-spare-{k}", light, dark) for k, (light, dark) in enumerate(SPARE)]


def themed() -> dict[str, str]:
    """What stands for each colour of a drawing on a page that has a theme."""
    named = {light: f"var({name})" for name, light, _ in variables()}
    return named | {
        INK: "var(--ink)",
        FAINT: "var(--faint)",
        GRID: "var(--grid)",
        TRUTH: "var(--truth)",
        FIT: "var(--fit)",
    }


def _spare(kind: str) -> int:
    return zlib.crc32(kind.encode()) % len(SPARE)
