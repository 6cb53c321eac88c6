"""Every field of a TOML text has its line."""

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apical.study.config import toml
from apical.study.config.toml import PAPER

NASTY = '''
# comment with = and [brackets]
"quoted.key" = 1
'literal key'.inner = "a # no comment"
long = """
[not.a.table]
x = 3 ""
""" # after
raw = \'\'\'
y = '
\'\'\'
list = [ # opens
  1, [2,
  3], { a = 1, "b.c" = [4] }, # comment, with comma
  "]",
]
date = 1979-05-27T07:32:00Z

[table."sub.table"]
k = 'v'
[[items]]
name = "first"
[items.inner]
deep = true
[[items.list]]
z = 1
[[items.list]]
z = 2
[[items]]
name = "second"
[[items.list]]
z = 3
'''
FILES = {path.name: path.read_text(encoding="utf-8") for path in PAPER.rglob("*.toml")} | {"nasty": NASTY}


def paths(value: Any, at: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {at} - {()} | {path for key, item in items for path in paths(item, (*at, key))}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_every_field_has_a_line_that_names_it(text: str) -> None:
    found = toml.field_lines(text)
    assert set(found) == paths(tomllib.loads(text))
    written = text.split("\n")
    for path, line in found.items():
        if isinstance(path[-1], str):
            assert path[-1] in written[line - 1]


def test_lines_of_nasty_text_are_right() -> None:
    found = toml.field_lines(NASTY)
    assert found["raw",] == 9
    assert found["list", 1] == 13
    assert found["list", 1, 1] == 14
    assert found["list", 2, "b.c"] == 14
    assert found["list", 3] == 15
    assert found["items", 0, "list", 1, "z"] == 28
    assert found["items", 1] == 29
    assert found["items", 1, "list", 0, "z"] == 32


TEXT = st.text(alphabet=st.characters(codec="utf-8", max_codepoint=0xFFFF))
SCALARS = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False), TEXT)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)


def written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key(k)} = {written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ",  # why\n".join(map(written, value)) + "\n]"
    if isinstance(value, str):
        return key(value)
    return json.dumps(value).replace("Infinity", "inf")


def key(text: str) -> str:
    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_any_document_is_walked_to_its_end(document: dict[str, Any]) -> None:
    text = "".join(f"{key(k)} = {written(v)}\n" for k, v in document.items())
    assert set(toml.field_lines(text)) == paths(tomllib.loads(text))
