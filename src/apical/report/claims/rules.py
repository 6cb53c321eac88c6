"""The rule by which claims are judged, in words: printed on the page, and done by `apical.report.claims.findings`."""

from dataclasses import dataclass
from typing import Literal, get_args

from apical.report.comparison import LEVEL
from apical.study.claim import Claim

Outcome = Literal[
    "reproduced", "reproduced where run", "not reproduced", "not reproduced where run", "undecided", "no verdict"
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""`where run`: on the pairs or rows that this report has, while others are missing that could change the answer."""
SIGNS = {1: "shown", 0: "open", -1: "refuted"}

VANISHED = 1e-6
"""A layer's gradient has vanished where its norm is below this share of the largest layer's in the same epoch."""

RULES = {
    "who is judged": (
        "Finished rows of the paper's own protocol. Quick variants, partial data, changed settings (a coarser grid, "
        "fewer trials) and unfinished rows give no verdict."
    ),
    "how": (
        "Each pair or row of a claim is shown, refuted or open. Reproduced: all are shown (or the share that the "
        "claim asks for). Not reproduced: so many are refuted that this cannot be. Else undecided at this number "
        "of samples and trials. Where the paper says that something does not happen, the answer is turned round. "
        "A claim of which only some pairs or rows were run is judged on these, and says so: reproduced (or not) "
        "where run. One refuted pair refutes a claim about all, whatever is missing."
    ),
    "better": (
        "Shown: the best trials (by validation) differ in the claimed direction, the exact test's p adjusted by "
        f"Holm over all tests of the study is at most {LEVEL}, the 95 % bootstrap interval of the difference "
        "excludes 0, and the mean over trials with equal seeds points the same way. Refuted: all of that the other "
        "way round; or neither the best trials nor the mean over trials show a gain, and the interval, made wider "
        "(see gain), lies below the printed difference. On validation, for seconds and for errors on a "
        "curve: shown where every trial with equal seeds agrees and the 95 % interval of the mean (of the ratio, for "
        "seconds and curves) does too, refuted where all that is the other way round. Against a quoted number: two "
        "standard errors of the difference of two such shares beyond it."
    ),
    "gain": (
        "Shown: the interval of the difference contains the printed gain (or lies wholly above it for at least, "
        "below it for at most) and lies above 0. Refuted: made wider, it excludes the printed gain (lies wholly below "
        "it for at least, above it for at most). Else open. Made wider: by the square root of 2, because the printed "
        "difference is as uncertain as ours, and to 95 % for all pairs of the claim together, run or not (Bonferroni). "
        "So a pair may be refuted in a claim about itself and open in one about many."
    ),
    "largest": (
        "The first gain as above. Another gain is shown to be smaller, or refuted by being larger, where the two "
        "differ by more than the root of the sum of squares of their intervals' half widths. Else open."
    ),
    "value": "Shown: within two standard errors of sample and trials together of the printed value. Else refuted.",
    "range": "Shown: inside the printed range. Refuted: outside by more than two standard errors. Else open.",
    "cost": (
        "Parameters, or the median seconds per epoch after the first, beyond the other row's: shown where every "
        "trial lies in the printed range, refuted where every trial lies outside. Times are those of this "
        "machine, and of trials that shared no program with others."
    ),
    "stable": (
        "Shown: no trial diverged or failed, every training loss fell, and the best trial is right more often "
        "than the largest class alone explains (three standard errors). Else refuted."
    ),
    "solves": (
        "Shown: at least one trial answers every point right. Else refuted. How many of them do is printed with its "
        "95 % interval (Wilson's)."
    ),
    "vanishing": (
        f"Shown: in no epoch of any trial is a layer's gradient norm below {VANISHED:g} of the largest layer's. "
        "Else refuted."
    ),
}


@dataclass(frozen=True)
class Finding:
    """One pair or row of a claim: shown (+1), refuted (-1) or open (0).

    `what` names it, `paper` is what the paper prints about it ("" for nothing), `ours` the same with its interval,
    `n` of how many samples and trials; `trials` are those it rests on.
    """

    sign: int
    what: str
    ours: str
    paper: str = ""
    n: str = ""
    trials: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The finding in a line."""
        paper = f"; the paper: {self.paper}" if self.paper else ""
        return f"{self.what}: {self.ours}{f', n = {self.n}' if self.n else ''}{paper}"

    @property
    def answer(self) -> str:
        """The sign as a word."""
        return SIGNS[self.sign]


@dataclass(frozen=True)
class Verdict:
    """A claim, what the studies say about it pair by pair, and why in a sentence.

    `missing` says for each pair or row that could not be judged why not; `judged` is how many could.
    """

    claim: Claim
    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    judged: int = 0

    @property
    def trials(self) -> tuple[str, ...]:
        """The trials that it rests on."""
        return tuple(dict.fromkeys(digest for found in self.findings for digest in found.trials))

    @property
    def scope(self) -> str:
        """How much of the claim was judged, where that is some of it and not all."""
        if not self.missing or not self.judged:
            return ""
        noun = "pairs" if self.claim.b else "rows"
        return f"judged on {self.judged} of {self.judged + len(self.missing)} {noun}"
