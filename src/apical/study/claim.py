"""The paper's claims as data: what it says, about which rows, in which direction, and whether its own tables agree.

Verdicts on them are computed where results are, in `apical.report`.
"""

import tomllib
from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from apical.study.source import CLAIMS, PAPER

Kind = Literal["better", "not-better", "gain", "cost", "range", "stable", "solves", "vanishing"]
"""What is checked:

- better: every row of `a` beats its partner in `b` on `metric` (`pairing`: "each" pairs them in order, "all" compares
  every a with every b); `significant` claims that the difference passes the paper's test at 0.05.
- not-better: no row of `a` beats its partner in `b`.
- gain: a[i] beats b[i] by `figures` in the metric's printed unit, in the order of the rows; one figure serves all.
- cost: a[i] takes between figures[0] and figures[1] times as long an epoch as b[i], as shares (0.15 = 15 % more).
- range: the values of `a` on `metric` lie between figures[0] and figures[1].
- stable: training every row of `a` converges: no trial diverges, none stays at chance or at its first loss.
- solves: some trial of every row of `a` answers all points right (`expected` false: none does).
- vanishing: no layer's gradient vanishes while the rows of `a` train.
"""


class Claim(BaseModel):
    """One claim. `study` is None where its rows lie in several studies: keys then read `<study>:<part>/<name>`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    text: str
    where: str
    kind: Kind
    study: str
    a: Annotated[tuple[str, ...], Field(min_length=1)]
    b: tuple[str, ...] = ()
    pairing: Literal["each", "all"] = "each"
    metric: str = "accuracy"
    splits: tuple[Literal["validation", "test"], ...] = ("test",)
    significant: bool = False
    expected: bool = True
    figures: tuple[float, ...] = ()
    consistent: bool | None = None
    note: str = ""


@cache
def claims() -> tuple[Claim, ...]:
    """Every claim of the paper's text that a study can check."""
    values = tomllib.loads((PAPER / f"{CLAIMS}.toml").read_text(encoding="utf-8"))
    return tuple(Claim.model_validate(item) for item in values["claims"])
