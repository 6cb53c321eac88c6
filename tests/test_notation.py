"""name(key=value,...): read and written."""

from collections import OrderedDict
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apical import Unit, convert_, models, notation
from apical.errors import InvalidArgumentError

HOW = {"what": "unit", "example": "ada(alpha=1)"}
names = st.from_regex(r"[a-z][a-z_0-9]{0,5}", fullmatch=True).filter(
    lambda name: name not in ("inf", "nan", "infinity")
)
simple = st.floats(allow_nan=False, allow_infinity=False) | names
inner = st.builds(notation.write, names, st.dictionaries(names, simple, min_size=1, max_size=3))


@given(names, st.dictionaries(names, simple | inner, max_size=4))
@settings(deadline=None)
def test_what_is_written_is_read(name: str, values: dict[str, float | str]) -> None:
    text = notation.write(name, values)
    assert notation.read(text, **HOW) == (name, values)
    assert " " not in text


def test_inner_brackets_stay_text() -> None:
    read = notation.read(" a.b:C ( x = f(y=1,z=g(h=2)) , w=3 ) ", **HOW)
    assert read == ("a.b:C", {"x": "f(y=1,z=g(h=2))", "w": 3.0})


@pytest.mark.parametrize(
    "text", ["", "a b", "a(", "a)", "a(b=1", "a(b=c(d=1)", "a(b=1)c", "a(b=(1)", "a(b=)1()", "a-b"]
)
def test_what_is_not_written_so_is_one_sentence(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^invalid unit .*; write a kind and its settings, e.g. ada"):
        notation.read(text, **HOW)


@pytest.mark.parametrize("text", ["a(b)", "a(b=)", "a(=1)", "a(b=1,b=2)", "a(b=1,)", "a(1=b)", "a(,)"])
def test_a_setting_that_is_none_is_one_sentence(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^invalid setting .* at most once, as name=value"):
        notation.read(text, **HOW)


def test_a_table_of_a_notebook_escapes_every_text_and_drops_empty_columns() -> None:
    text = notation.html_table(("a", "empty", "b<c"), [("<i>", "", 1)], title="x & y", notes=["<p>"])
    assert "<strong>x &amp; y</strong>" in text
    assert "empty" not in text
    assert [cell.text for cell in ElementTree.fromstring(f"<div>{text}</div>").iter("td")] == ["<i>", "1"]


def test_what_notebooks_show_is_what_print_shows() -> None:
    network = nn.Sequential(OrderedDict({"<script>": nn.Linear(4, 3), "act": nn.ReLU(), "<b>act": nn.ReLU()}))
    summary = models.summary(network, input_size=(4,))
    report = convert_(network, "ada(alpha=learn)")
    unit = Unit.parse("pynada(alpha=learn,c=1)")
    for shown, texts in ((summary, ["<script>", "Linear"]), (report, ["<b>act", "ada(alpha=learn)"])):
        cells = [cell.text for cell in ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>").iter("td")]
        assert {*texts} <= {*cells}
        assert all(text in str(shown) for text in texts)
    assert "<script>" not in summary._repr_html_() + report._repr_html_()
    assert "2 of 2 activations converted" in report._repr_html_()
    assert "learned" in unit._repr_html_()
    assert "pynada(alpha=learn,c=1)" in unit._repr_html_()
