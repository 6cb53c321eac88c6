"""Questions: what a study is to answer, fixed before it runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from apical import stats
from apical.errors import StudyError
from apical.study import Study, load
from apical.study.directory import differences, open_for

from .conftest import SMALL

Write = Callable[..., Path]
QUESTION = """
[question]
asks = "Is ADA better?"
hypothesis = "No."
row = "ada"
against = ["relu"]
effect = 0.01
deviation = 0.01
yes = "It is."
no = "It is not."
undecided = "Who knows."
"""


def asked(write: Write, *changes: tuple[str, str], text: str = SMALL) -> Study:
    question = QUESTION
    for old, new in changes:
        assert old in question
        question = question.replace(old, new)
    return load(write(text.replace('title = "small"', 'title = "small"\ntrials = 10') + question))


def test_a_question_is_resolved_and_survives_json(write: Write) -> None:
    study = asked(write)
    question = study.question
    assert question is not None
    assert (question.row, question.against, question.parts, question.metric) == (
        "ada",
        ("relu",),
        ("digits",),
        "accuracy",
    )
    assert question.seeds == stats.seeds_needed(0.01, 0.01, power=0.8) == 8
    assert Study.from_dict(study.to_dict()) == study


def test_a_study_without_a_question_is_written_as_before(write: Write) -> None:
    study = load(write(SMALL.replace('title = "small"', 'title = "small"\ntrials = 10')))
    assert "question" not in study.to_dict()
    assert asked(write).model_copy(update={"question": None}).digest == study.digest


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('row = "ada"', 'row = "adda"'), "question.row: no row is called 'adda': there are relu, ada"),
        (('["relu"]', '["ada"]'), "question.against[1]: 'ada' cannot be compared with itself: name another row"),
        (('row = "ada"', 'row = "ada"\nparts = ["mlp"]'), "question.parts[1]: no part is called 'mlp'"),
        (('row = "ada"', 'row = "ada"\nmetric = "acc"'), "question.metric: unknown metric 'acc'"),
        (('row = "ada"', 'row = "ada"\nmetric = "seconds"'), "question.metric: unknown metric 'seconds'"),
        (
            ('row = "ada"', 'row = "ada"\nmetric = "corruption-accuracy"'),
            "question.metric: 'corruption-accuracy' is measured by 'corruptions': add it to training.robustness",
        ),
        (("effect = 0.01", "effect = 0.005"), "question: trials is 10, but an effect of 0.005 with a"),
        (("effect = 0.01", "effect = 0"), "question.effect: input should be greater than or equal to 0.000000001"),
        (('yes = "It is."\n', ""), "question.yes: it is missing"),
        (("asks", "ask"), "question.ask: there is no such field: did you mean 'asks'?"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_question_is_one_sentence(write: Write, change: tuple[str, str], sentence: str) -> None:
    with pytest.raises(StudyError) as error:
        asked(write, change)
    assert sentence in str(error.value)


def test_a_row_must_be_in_every_part_of_the_question(write: Write) -> None:
    more = (
        SMALL
        + '\nparts = ["digits"]\n\n[[parts]]\nname = "wide"\ndata = "digits"\nmodel = "mlp-1"\ndims.hidden = 200\n'
    )
    with pytest.raises(StudyError, match="the row 'ada' is not in part 'wide': leave that part out"):
        asked(write, text=more)
    question = asked(write, ('row = "ada"', 'row = "ada"\nparts = ["digits"]'), text=more).question
    assert question is not None
    assert question.parts == ("digits",)


def test_a_directory_keeps_its_question(write: Write, tmp_path: Path) -> None:
    first, other = asked(write), asked(write, ("effect = 0.01", "effect = 0.02"))
    open_for(first, tmp_path / "study", None)
    for changed in (other, first.model_copy(update={"question": None})):
        with pytest.raises(StudyError, match="the question differs, and it is fixed before the first trial"):
            open_for(changed, tmp_path / "study", None)
    assert differences(first, first.model_copy(update={"trials": 20})) == []


def test_fewer_parts_and_a_quick_variant_keep_the_whole_question() -> None:
    whole = load("parity").question
    assert whole is not None
    assert len(whole.parts) == 4
    assert load("parity", sets=["only_parts=['xor-1']"]).question == whole
    assert load("parity", quick=True).question == whole


def test_a_question_may_ask_for_what_robustness_measures(write: Write) -> None:
    text = SMALL.replace('title = "small"', 'title = "small"\ntraining.robustness = ["corruptions(samples=9)"]')
    for name in ("corruption-accuracy", "corruption-accuracy.fog"):
        question = asked(write, ('row = "ada"', f'row = "ada"\nmetric = "{name}"'), text=text).question
        assert question is not None
        assert question.metric == name
