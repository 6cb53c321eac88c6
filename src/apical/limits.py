"""How much a file may ask for. Every bound of a count or number that is read stands here, and in docs/security.md.

A file may come from somebody else, so a bound is checked before anything is allocated, enumerated or decoded. They are
far beyond what people need. Those in `RAISABLE` a user may raise, with `--limits` or the variable APICAL_LIMITS.
"""

import os
from functools import cache
from typing import Final

from apical.errors import InvalidArgumentError

VARIABLE: Final = "APICAL_LIMITS"
RAISABLE: Final = {
    "pixels": 80_000_000,
    "unpacked": 20 << 30,
    "files": 500_000,
    "array": 1 << 34,
    "outputs": 1 << 31,
    "trials": 50_000,
    "parameters": 2_000_000_000,
    "tensors": 10_000,
}
"""Pixels of an image or of a sample, bytes and files of an archive, bytes of all arrays of an .npz and of those of a
tested trial, trials of a study with those that tune, and the parameters of a network and the tensors they stand in."""

_LARGE: Final = 1_000_000
BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "trials": (1, 10_000),
    "tune_trials": (1, 10_000),
    "stack": (1, 1_024),
    "first_seed": (0, (1 << 32) - 1),
    "seed": (0, (1 << 63) - 1),
    "epochs": (1, _LARGE),
    "passes": (1, _LARGE),
    "milestones": (0, _LARGE),
    "batch": (1, 1 << 24),
    "samples": (1, 1 << 40),
    "pad": (0, 256),
    "size": (1, 16_384),
    "learning_rate": (1e-12, 1e36),
    "decay": (1e-12, 1e6),
    "l2": (0, 1e6),
    "clip": (1e-12, 1e12),
    "population": (4, 1 << 20),
    "sigma": (1e-12, 1e6),
    "dims": (-_LARGE, _LARGE),
    "effect": (1e-9, 1e9),
    "deviation": (1e-9, 1e9),
    "power": (0.01, 0.9999),
    "x": (-1e12, 1e12),
    "value": (-1e12, 1e12),
}
"""The least and the largest value of a field of a study or of a trial. `x` is a place on an axis, `value` a number that
a paper prints, one that is tuned, or one that a metric is to reach."""
COUNTS: Final = {
    "parts": 1_000,
    "rows": 10_000,
    "groups": 1_000,
    "notes": 1_000,
    "imports": 100,
    "values": 1_000,
    "parameters": 16,
    "dims": 100,
    "milestones": 1_000,
    "corruptions": 32,
}
"""The most entries of a list or table of a study file: `values` of one tuned parameter, tuned `parameters` of a row."""
NAME, TEXT = 80, 10_000
"""The most characters of a name, and of any other text."""


def limit(name: str, default: int | None = None) -> int:
    """How much of `name` (see RAISABLE) is read: what the user set, or the default."""
    given = _given(os.environ.get(VARIABLE, ""))
    return given.get(name, RAISABLE[name] if default is None else default)


@cache
def _given(text: str) -> dict[str, int]:
    given = {}
    for pair in filter(None, text.split(",")):
        name, _, number = (part.strip() for part in pair.partition("="))
        if name not in RAISABLE or not (number.isascii() and number.isdigit() and 0 < len(number) < 19):
            raise InvalidArgumentError(
                f"the limit {pair!r} is unknown: write name=number, with one of {', '.join(RAISABLE)}, as in "
                f"pixels={RAISABLE['pixels']}"
            )
        given[name] = int(number)
    return given


def raise_it(name: str, value: int) -> str:
    """How to raise a limit, for the end of a sentence."""
    return f"if you trust it, raise the limit with --limits {name}={value} or {VARIABLE}={name}={value}"
