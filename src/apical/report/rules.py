"""The rule by which claims are judged, in words: printed on the page, and done by `apical.report.findings`."""

from dataclasses import dataclass
from typing import Literal

from apical.report.comparison import LEVEL
from apical.study.claim import Claim

Outcome = Literal["reproduced", "not reproduced", "undecided", "no verdict"]
OUTCOMES: tuple[Outcome, ...] = ("reproduced", "not reproduced", "undecided", "no verdict")

VANISHED = 1e-6
"""A layer's gradient has vanished where its norm is below this share of the largest layer's in the same epoch."""

RULES = {
    "who is judged": (
        "Finished rows of the paper's own protocol. Quick variants, partial data, changed settings and missing "
        "trials give no verdict; nor does a claim that needs rows this page does not have, unless one of its "
        "pairs is refuted."
    ),
    "how": (
        "Each pair or row of a claim is shown, refuted or open. Reproduced: all are shown (or the share that the "
        "claim asks for). Not reproduced: so many are refuted that this cannot be. Else undecided at this number "
        "of samples and trials. Where the paper says that something does not happen, the answer is turned round."
    ),
    "better": (
        "Shown: the best trials (by validation) differ in the claimed direction, Holm's adjusted p over all "
        f"tests of the study is at most {LEVEL}, the 95 % bootstrap interval of the difference excludes 0, and "
        "the mean over trials with equal seeds points the same way. Refuted: all of that the other way round; or "
        "the interval contains 0 and excludes the difference that the paper prints. On validation, for seconds "
        "and for errors on a curve: shown where every trial agrees, refuted where every trial disagrees. Against "
        "a quoted number: two standard errors beyond it."
    ),
    "gain": (
        "Shown: the interval of the difference contains the printed gain (or lies wholly above it for at least, "
        "below it for at most) and excludes 0. Refuted: it excludes the printed gain. Else open."
    ),
    "largest": "The first gain as above; another gain is refuted as smaller where its whole interval lies above.",
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
    "solves": "Shown: at least one trial answers every point right. Else refuted.",
    "vanishing": (
        f"Shown: in no epoch of any trial is a layer's gradient norm below {VANISHED:g} of the largest layer's. "
        "Else refuted."
    ),
}


@dataclass(frozen=True)
class Finding:
    """One pair or row of a claim: shown (+1), refuted (-1) or open (0), in words, with the trials it rests on."""

    sign: int
    words: str
    trials: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A claim, what the studies say about it, and why in a sentence."""

    claim: Claim
    outcome: Outcome
    reason: str
    trials: tuple[str, ...] = ()
