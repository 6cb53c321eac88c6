"""name(key=value,...): read and written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apical import notation
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
