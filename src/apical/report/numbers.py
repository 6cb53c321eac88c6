"""A number of a report: its value, how it is printed, and the trials that it comes from."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Literal

from apical import stats
from apical.study.model import IN_PERCENT, SMALLER_IS_BETTER

How = Literal["trial", "mean", "median", "deviation", "difference", "ratio", "test"]
"""What was done with the trials' values; "test" is a paired test on their answers."""
MISSING = "–"

TITLES = {
    "accuracy": "test accuracy (%)",
    "weighted-accuracy": "test weighted accuracy (%)",
    "top-5": "test top-5 accuracy (%)",
    "cross-entropy": "test cross-entropy",
    "mae": "test MAE",
    "mse": "test MSE",
    "seconds": "seconds per epoch",
}


@dataclass(frozen=True)
class Number:
    """`value` in the trials' own unit (shares, not per cent), `text` as printed, `trials` their digests.

    A difference is of the first trial minus the second (or of one trial minus the paper's number).
    """

    value: float
    text: str
    trials: tuple[str, ...] = ()
    metric: str = ""
    split: str = "test"
    how: How = "trial"

    @property
    def title(self) -> str:
        """One line that says where the number comes from."""
        words = {"trial": "", "mean": "mean, ", "deviation": "deviation, ", "difference": "difference, "}
        names = ", ".join(digest[:8] for digest in self.trials)
        what = f"{self.split} {self.metric}" if self.metric != "seconds" else "seconds per epoch"
        return f"{what}: {words.get(self.how, self.how + ', ')}{'trials' if len(self.trials) > 1 else 'trial'} {names}"


def better(metric: str, a: float, b: float) -> bool:
    """True where a is the better value."""
    return a < b if metric in SMALLER_IS_BETTER else a > b


def gain(metric: str, difference: float) -> float:
    """A difference, turned so that positive is better."""
    return -difference if metric in SMALLER_IS_BETTER else difference


def scale(metric: str) -> float:
    """What a trial's value is multiplied by for print."""
    return 100.0 if metric in IN_PERCENT else 1.0


def show(metric: str, value: float, *, sign: bool = False) -> str:
    """A trial's value as it is printed: per cent with two decimals, errors as they need."""
    if not isfinite(value):
        return MISSING
    text = f"{value * scale(metric):{'+' if sign else ''}{_format(metric)}}"
    return text.replace("-", "−")


def show_p(value: float) -> str:
    """A p-value with two digits, and no more zeros than a reader counts."""
    if isnan(value):
        return MISSING
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def show_count(value: float) -> str:
    """A count with thousands apart."""
    return f"{value:,.0f}".replace(",", "\u202f") if isfinite(value) else "no number"


def show_share(count: int, n: int) -> str:
    """`46 of 200 (23 %, 18 to 29 %)`, with Wilson's interval."""
    low, high = stats.wilson(count, n)
    return f"{count:,} of {n:,} ({100 * count / n:.0f} %, {100 * low:.0f} to {100 * high:.0f} %)"


def of_trial(metric: str, value: float, digest: str, *, split: str = "test") -> Number:
    """The value of one trial."""
    return Number(value, show(metric, value), (digest,), metric, split)


def mean_of(metric: str, value: float, digests: Sequence[str], *, how: How = "mean") -> Number:
    """A summary of several trials."""
    return Number(value, show(metric, value), tuple(digests), metric, how=how)


def _format(metric: str) -> str:
    if metric in IN_PERCENT or metric == "mae":
        return ".2f"
    return {"cross-entropy": ".4f", "seconds": ".3g", "mse": ".2e"}.get(metric, ".4g")
