"""The paper's claims as data: what it says, about which rows, in which direction, and whether its own tables agree.

Verdicts on them are computed where results are, in `apical.report`.
"""

from functools import cache
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from apical import files
from apical.study.config.toml import CLAIMS, PAPER

ClaimKind = Literal["better", "gain", "largest", "value", "range", "cost", "stable", "solves", "slow", "vanishing"]
"""What is checked of the rows `a` (and `b`) on `metric`:

- better: a beats its b. `pairing`: "each" pairs them in order, "all" compares every a with every b.
- gain: a[i] beats b[i] by paper[i] (one figure serves all) in the unit that the paper prints, points of per cent or
  years; `bound`: about, at least or at most so much; "up-to": all pairs gain, the largest gain is so much.
- largest: the gain of a[0] over b[0] is paper[0], and the largest of all pairs.
- value: a[i] is about paper[i].
- range: every a lies between paper[0] and paper[1].
- cost: a[i] has between paper[0] and paper[1] more seconds an epoch, or parameters, than b[i]: as a share of b[i]
  ("relative", 0.15 = 15 % more) or in seconds ("absolute").
- stable: training every a converges: no trial diverges or stays at chance.
- solves: some trial of every a answers every point right.
- slow: a does not learn more slowly than its b, which is ReLU.
- vanishing: gradients reach every layer while a trains, as they do with its b, which is ReLU.

`quantifier`: of all pairs or rows, or of most. `significant`: the paper's own test marks the gain as well. `expected`
false: the paper says that it does not hold throughout (for solves: that no trial of any row does).
"""
Topic = Literal[
    "logic", "parameter counts", "curves", "improvement by ADA", "improvement by PyNADA", "RBF and Swish", "baselines",
    "noise and imbalance", "convergence", "time",
]  # fmt: skip
"""What a claim is about: the page groups claims so."""
TOPICS: tuple[Topic, ...] = get_args(Topic)


class Claim(BaseModel):
    """One claim. Keys are rows of `study`; where it is "", they name their studies: `<study>:<part>/<name>`.

    `metric` is "" where each row has the metric of its part. `consistent` is None where the paper prints no numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    text: str
    where: str
    about: Topic
    kind: ClaimKind
    study: str = ""
    a: Annotated[tuple[str, ...], Field(min_length=1)]
    b: tuple[str, ...] = ()
    pairing: Literal["each", "all"] = "each"
    metric: str = "accuracy"
    splits: tuple[Literal["validation", "test"], ...] = ("test",)
    scale: Literal["relative", "absolute"] = "relative"
    bound: Literal["about", "at-least", "at-most", "up-to"] = "about"
    quantifier: Literal["all", "most"] = "all"
    significant: bool = False
    expected: bool = True
    paper: tuple[float, ...] = ()
    consistent: bool | None = None
    note: str = ""

    def locate(self, key: str) -> tuple[str, str]:
        """The study and the row key that a key of this claim names."""
        study, colon, row = key.rpartition(":")
        return (study, row) if colon else (self.study, key)

    @property
    def studies(self) -> tuple[str, ...]:
        """The studies that the claim is about."""
        return tuple(dict.fromkeys(self.locate(key)[0] for key in (*self.a, *self.b)))

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The keys that are compared, a first."""
        if self.pairing == "all":
            return tuple((a, b) for a in self.a for b in self.b)
        return tuple(zip(self.a, self.b, strict=True)) if self.b else ()


@cache
def claims() -> tuple[Claim, ...]:
    """Every claim of the paper's text that a study can check."""
    values = files.parse_toml(files.read_text(PAPER / f"{CLAIMS}.toml"))
    return tuple(Claim.model_validate(item) for item in values["claims"])
