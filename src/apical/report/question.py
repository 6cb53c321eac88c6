"""The answer to a study's question, by the rule that was fixed before it ran.

Each comparison is decided by `stats.decide` over seeds; the smallest effect of interest is its margin.
yes: every comparison is supported. no: one is negligible, or contradicted after Holm's correction over all of them.
undecided: neither. There is no answer while a trial of a comparison is missing, nor from a quick variant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from apical import stats
from apical.report.comparison import between, scores
from apical.report.numbers import ACCURACY, show
from apical.stats import Decision
from apical.study.model import Question
from apical.study.results import RowResults, StudyResults
from apical.train.metrics import Metric

Word = Literal["yes", "no", "undecided", "not answered"]
LEVEL = 0.05


@dataclass(frozen=True)
class Finding:
    """One comparison. `means` are the mean scores of both rows, `ours` the gain with its interval."""

    part: str
    pair: str
    means: str
    ours: str
    decision: Decision


@dataclass(frozen=True)
class Answer:
    """The answer in a word, why, and what decided it."""

    question: Question
    word: Word
    why: str
    decides: str
    findings: tuple[Finding, ...] = ()

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """What a page says above the comparisons, by its heading."""
        q = self.question
        means = q.meanings
        told = f"{self.word}. {means[self.word]} {self.why}" if self.word in means else f"{self.word}: {self.why}"
        return (
            ("Question", q.asks),
            ("Expected", q.hypothesis),
            ("Decided by", self.decides),
            *((f"If {word}", text) for word, text in means.items()),
            ("Answer", told),
        )

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The comparisons as a table, its heads first."""
        heads = ("Where", "Compared", "Means", "Gain, with 95 % interval", "Seeds", "Finding")
        rows = ((f.part, f.pair, f.means, f.ours, str(f.decision.seeds), f.decision.verdict) for f in self.findings)
        return (heads, *rows) if self.findings else ()


def answer(results: StudyResults, question: Question) -> Answer:
    """What a study directory answers to its question now."""
    rows = {row.row.key: row for row in results.rows}
    metric = results.study.metric(question.metric)
    decides = _decides(question, metric, results)
    if results.study.quick:
        return Answer(question, "not answered", "a quick variant decides nothing.", decides)
    keys = [(f"{p}/{question.row}", f"{p}/{other}") for p in question.parts for other in question.against]
    lacking = [f"{a} against {b}" for a, b in keys if not _complete(results, rows, metric, a, b)]
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        why = f"{len(lacking)} of {len(keys)} comparisons lack tested trials: {lacking[0]}{more}."
        return Answer(question, "not answered", why, decides)
    findings = tuple(_finding(question, metric, rows[a], rows[b]) for a, b in keys)
    return Answer(question, *conclusion([f.decision for f in findings]), decides, findings)


def conclusion(decisions: list[Decision]) -> tuple[Word, str]:
    """The answer that follows from the comparisons, and how many say what."""
    adjusted = stats.holm([d.p_value for d in decisions])
    against = [d.verdict == "contradicted" and p <= LEVEL for d, p in zip(decisions, adjusted, strict=True)]
    counts = {word: sum(d.verdict == word for d in decisions) for word in ("supported", "negligible", "inconclusive")}
    counts["contradicted"] = len(decisions) - sum(counts.values())
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    why = f"Of {len(decisions)} comparisons: {told}." if len(decisions) > 1 else f"Its one comparison is {told[2:]}."
    if counts["supported"] == len(decisions):
        return "yes", why
    return ("no" if any(against) or counts["negligible"] else "undecided"), why


def _decides(q: Question, metric: Metric, results: StudyResults) -> str:
    """The comparison, the score, the effect and the seeds, in words."""
    labels = {row.row.name: row.row.label for row in results.rows}
    titles = {row.part.name: row.part.title for row in results.rows}
    others = ", ".join(labels.get(name, name) for name in q.against)
    where = "; ".join(titles.get(name, name) for name in q.parts)
    score = f"test {metric.heading}"
    if q.reaches is not None:
        score = f"share of trials whose {score} reaches {show(metric, q.reaches)}"
    effect = show(ACCURACY if q.reaches is not None else metric, q.effect)
    return (
        f"{labels.get(q.row, q.row)} against {others}, in {where}; {score}; smallest effect of interest "
        f"{effect}, which {q.seeds} seeds show with a probability of {q.power:g} if two trials "
        f"differ with a deviation of {q.deviation:g}; {results.study.trials} seeds were planned."
    )


def _complete(results: StudyResults, rows: dict[str, RowResults], metric: Metric, *keys: str) -> bool:
    """True where all planned trials of both rows have a finite score."""
    first = results.study.first_seed
    seeds = set(range(first, first + results.study.trials))
    return all(key in rows and seeds <= scores(rows[key], metric).keys() for key in keys)


def _finding(q: Question, metric: Metric, a: RowResults, b: RowResults) -> Finding:
    means, ours, decision = compared(q, metric, scores(a, metric), scores(b, metric))
    return Finding(a.part.title, f"{a.row.label} against {b.row.label}", " and ".join(means), ours, decision)


def compared(
    q: Question, metric: Metric, a: Mapping[int, float], b: Mapping[int, float]
) -> tuple[tuple[str, str], str, Decision]:
    """Two rows by their trials' values by seed: both means and the gain with its interval as printed, the decision."""
    seeds = sorted(a.keys() & b.keys())
    first, second = ([_score(q, metric, own[seed]) for seed in seeds] for own in (a, b))
    larger = metric.larger_is_better or q.reaches is not None
    span = None if q.reaches is None else 1.0
    decision = stats.decide(first, second, margin=q.effect, larger_is_better=larger, span=span)
    shown = ACCURACY if q.reaches is not None else metric
    mean_a, mean_b = (show(shown, sum(values) / len(values)) for values in (first, second))
    ours = f"{show(shown, decision.difference, sign=True)} {between(shown, decision.low, decision.high)}"
    return (mean_a, mean_b), ours, decision


def _score(q: Question, metric: Metric, value: float) -> float:
    if q.reaches is None:
        return value
    return float(value >= q.reaches if metric.larger_is_better else value <= q.reaches)
