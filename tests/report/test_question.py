"""The answer to a study's question: the rule that its file fixed, and where it is printed."""

from dataclasses import replace

import numpy as np
import pytest

from apical import stats
from apical.report import gather, write
from apical.report.question import answer, conclusion
from apical.study.model import Part, Question, Row, Study

QUESTION = Question(
    asks="Is ADA better?", hypothesis="Who knows?", row="ada", against=("relu", "gelu"), parts=("digits",),
    metric="accuracy", effect=0.01, deviation=0.01, power=0.8, seeds=8, yes="It is.", no="It is not.",
    undecided="More seeds.",
)  # fmt: skip
PART = Part(name="digits", title="digits", data="digits", model="mlp-1", training={"epochs": 4})
STUDY = Study(
    name="asked", title="Asked", parts=(PART,), trials=8, first_seed=100, question=QUESTION,
    rows=tuple(Row(key=f"digits/{u}", part="digits", label=u.upper(), unit=u) for u in ("relu", "gelu", "ada")),
)  # fmt: skip


def decided(gains: list[float], *, margin: float = 0.1) -> stats.Decision:
    return stats.decide(gains, np.zeros(len(gains)), margin=margin)


BETTER, WORSE = decided([0.4, 0.5, 0.6, 0.5]), decided([-0.4, -0.5, -0.6, -0.5])
EQUAL, UNSURE = decided([0.01, -0.01, 0.0, 0.0]), decided([0.9, -0.5, 0.4, -0.1])


@pytest.mark.parametrize(
    ("decisions", "word"),
    [
        ([BETTER, BETTER], "yes"),
        ([BETTER, EQUAL], "no"),
        ([BETTER, WORSE], "no"),
        ([BETTER, UNSURE], "undecided"),
        ([UNSURE, WORSE], "no"),
        ([replace(WORSE, p_value=0.04), BETTER, UNSURE], "undecided"),  # 0.04 is 0.08 after Holm's correction
        ([replace(WORSE, p_value=0.04)], "no"),
    ],
)
def test_every_comparison_must_be_supported_and_one_can_deny(decisions: list[stats.Decision], word: str) -> None:
    assert [d.verdict for d in (BETTER, WORSE, EQUAL, UNSURE)] == [
        "supported", "contradicted", "negligible", "inconclusive",
    ]  # fmt: skip
    assert conclusion(decisions)[0] == word


def test_the_report_prints_the_question_and_the_answer(tmp_path, make) -> None:
    results = make(STUDY, tmp_path / "study", lambda row: 0.9 if row.endswith("ada") else 0.6, samples=100)
    given = answer(results, QUESTION)
    assert given.word == "yes"
    for finding, other in zip(given.findings, ("relu", "gelu"), strict=True):
        ours, theirs = (np.array(results.row(f"digits/{u}").tests("accuracy")) for u in ("ada", other))
        assert finding.decision == stats.decide(ours, theirs, margin=0.01)
        assert finding.means == f"{100 * ours.mean():.2f} and {100 * theirs.mean():.2f}"
    page = write([results], tmp_path / "report")
    for name in ("index.html", "report.md", "report.tex"):
        text = page.with_name(name).read_text(encoding="utf-8")
        assert all(said in text for said in ("Is ADA better?", "Who knows?", "It is.", "It is not.", "ADA against"))
    assert "Is ADA better? Answer: yes. It is. Of 2 comparisons: 2 supported." in gather([results]).summary


def test_a_score_that_must_be_reached_makes_shares(tmp_path, make) -> None:
    asked = QUESTION.model_copy(update={"reaches": 0.85, "against": ("relu",)})
    results = make(STUDY, tmp_path / "study", lambda row: 0.95 if row.endswith("ada") else 0.5, samples=100)
    (finding,) = answer(results, asked).findings
    assert (finding.means, finding.decision.difference) == ("100.00 and 0.00", 1.0)


def test_there_is_no_answer_before_all_trials_are_tested_or_from_a_quick_variant(tmp_path, make) -> None:
    part = make(
        STUDY, tmp_path / "part", lambda _: 0.5, samples=20, keep=lambda t: (t.row, t.trial) != ("digits/gelu", 103)
    )
    said = answer(part, QUESTION)
    assert (said.word, said.findings) == ("not answered", ())
    assert said.why == "1 of 2 comparisons lack tested trials: digits/ada against digits/gelu."
    quick = replace(part, study=STUDY.model_copy(update={"quick": True}))
    assert answer(quick, QUESTION).lines[-1] == ("Answer", "not answered: a quick variant decides nothing.")
