"""Where each field of a TOML text stands: `tomllib` checks and reads the text, but keeps no line numbers."""

import re
from collections.abc import Callable

Path = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[^,\]}\n#]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SIMPLE_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)


def of(text: str) -> dict[Path, int]:
    """The line, counted from 1, of every field of a TOML text that `tomllib` reads; list items count from 0."""
    return _Walk(text).lines


class _Walk:
    """Reads statement by statement; what is wrong with the text was said by `tomllib` before."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text.replace("\r\n", "\n"), 0
        self.lines: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}
        table: Path = ()
        while self._skip(_BLANK) and self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return match[0] or " "

    def _note(self, path: Path) -> None:
        self.lines.setdefault(path, self.text.count("\n", 0, self.at) + 1)

    def _header(self) -> Path:
        many = self.text.startswith("[[", self.at)
        start = self.at
        self.at += 1 + many
        names = self._key()
        end, self.at = self.at + 1 + many, start
        path: Path = ()
        for i, name in enumerate(names):
            path = (*path, name)
            self._note(path)
            last = i == len(names) - 1
            if last and many:
                self.counts[path] = self.counts.get(path, -1) + 1
            if path in self.counts:  # the header of a table within the last item of a list of tables
                path = (*path, self.counts[path])
                self._note(path)
        self.at = end
        return path

    def _pair(self, table: Path) -> None:
        start = self.at
        names = self._key()
        end, self.at = self.at, start
        path = table
        for name in names:
            path = (*path, name)
            self._note(path)
        self.at = end + 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _key(self) -> list[str]:
        names = []
        while True:
            self._skip(_SPACE)
            if self.text[self.at] in "\"'":
                names.append(_unquoted(self._skip(_STRING)))
            else:
                names.append(self._skip(_BARE_KEY))
            self._skip(_SPACE)
            if self.text[self.at] != ".":
                return names
            self.at += 1

    def _value(self, path: Path) -> None:
        start = self.text[self.at]
        if start in "\"'":
            self._skip(_STRING)
        elif start == "[":
            self._items(path, "]", lambda i: self._item((*path, i)))
        elif start == "{":
            self._items(path, "}", lambda _: self._pair(path))
        else:
            self._skip(_BARE)

    def _item(self, path: Path) -> None:
        self._note(path)
        self._value(path)

    def _items(self, path: Path, close: str, read: Callable[[int], None]) -> None:
        self.at += 1
        count = 0
        while self._skip(_BLANK) and self.text[self.at] != close:
            read(count)
            count += 1
            self._skip(_BLANK)
            if self.text[self.at] == ",":
                self.at += 1
        self.at += 1


def _unquoted(text: str) -> str:
    if text[0] == "'":
        return text[1:-1]
    return _ESCAPE.sub(lambda m: _SIMPLE_ESCAPES[m[4]] if m[4] else chr(int(m[1] or m[2] or m[3], 16)), text[1:-1])
