"""The written form of a thing with settings: `name(key=value,key=value)`, where a value may be such a form itself.

And of a table in a notebook: `html_table`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from apical.errors import InvalidArgumentError


def read(text: str, *, what: str, example: str) -> tuple[str, dict[str, Any]]:
    """The name and the settings; values that look like numbers are floats, all others stay text."""
    match = re.fullmatch(r"\s*([\w.:]+)\s*(?:\((.*)\))?\s*", text)
    if match is None or not _balanced(match[2] or ""):
        raise InvalidArgumentError(f"invalid {what} {text!r}; write a kind and its settings, e.g. {example}")
    settings: dict[str, Any] = {}
    for part in _parts(match[2] or ""):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value or not key.isidentifier() or key in settings:
            raise InvalidArgumentError(
                f"invalid setting {part.strip()!r} in {text!r}; write each setting at most once, as name=value, "
                f"e.g. {example}"
            )
        settings[key] = _number_or_text(value)
    return match[1], settings


def write(name: str, settings: Mapping[str, Any]) -> str:
    """The shortest text that `read` reads back."""
    shown = ",".join(f"{key}={_written(value)}" for key, value in settings.items())
    return f"{name}({shown})" if shown else name


def _written(value: Any) -> str:
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _balanced(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0


def _parts(text: str) -> Iterator[str]:
    """The pieces between the commas that stand in no inner brackets."""
    if not text.strip():
        return
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def html_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", notes: Iterable[str] = ()
) -> str:
    """A table as notebooks show it, all texts escaped; a column without any text is left out."""
    lines = [[str(cell) for cell in row] for row in rows]
    used = [i for i in range(len(columns)) if any(line[i] for line in lines)]
    head = "".join(f'<th style="text-align:left">{escape(columns[i])}</th>' for i in used)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{escape(line[i])}</td>' for i in used) + "</tr>"
        for line in lines
    )
    above = f"<p><strong>{escape(title)}</strong></p>" if title else ""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
