"""Read study files: TOML with the line of every field, one file laid over another, and `--set`."""

import copy
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from apical import files
from apical.errors import StudyError

KeyPath = tuple[str | int, ...]

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


def field_lines(text: str) -> dict[KeyPath, int]:
    """The line, counted from 1, of every field of a TOML text that `tomllib` reads; list items count from 0."""
    return _Walk(text).lines


class _Walk:
    """Reads statement by statement; what is wrong with the text was said by `tomllib` before."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text.replace("\r\n", "\n"), 0
        self.lines: dict[KeyPath, int] = {}
        self.counts: dict[KeyPath, int] = {}
        table: KeyPath = ()
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

    def _note(self, path: KeyPath) -> None:
        self.lines.setdefault(path, self.text.count("\n", 0, self.at) + 1)

    def _header(self) -> KeyPath:
        many = self.text.startswith("[[", self.at)
        start = self.at
        self.at += 1 + many
        names = self._key()
        end, self.at = self.at + 1 + many, start
        path: KeyPath = ()
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

    def _pair(self, table: KeyPath) -> None:
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

    def _value(self, path: KeyPath) -> None:
        start = self.text[self.at]
        if start in "\"'":
            self._skip(_STRING)
        elif start == "[":
            self._items(path, "]", lambda i: self._item((*path, i)))
        elif start == "{":
            self._items(path, "}", lambda _: self._pair(path))
        else:
            self._skip(_BARE)

    def _item(self, path: KeyPath) -> None:
        self._note(path)
        self._value(path)

    def _items(self, path: KeyPath, close: str, read: Callable[[int], None]) -> None:
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


# The text of a study: read, laid over the study it extends, changed by `--set`. Each value knows where it was written.
#
# Tables are merged field by field, the nearer file winning; `parts` by their names, `rows` by their names and parts,
# and `groups` by their names; all other lists are replaced.

PAPER = Path(__file__).parent.parent / "paper"
BEYOND = PAPER.parent / "beyond"
"""Studies that ask what the paper leaves open."""
CLAIMS = "claims"
TEMPLATE = PAPER.parent / "template.toml"
"""The file that `apical study new` writes: a study of the user's own that runs as it stands."""
LARGEST = 1 << 22
"""Bytes; the largest shipped file has some thousands."""
DEEPEST = 16
"""Files that may extend each other in a chain."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and where it was written."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def refuse(faults: Sequence[Fault]) -> StudyError:
    """All that is wrong, as one error."""
    if len(faults) == 1:
        return StudyError(str(faults[0]))
    ordered = sorted(faults, key=lambda fault: [int(t) if t.isdigit() else 0 for t in fault.where.split(":")[1:2]])
    return StudyError("\n".join([f"{len(faults)} faults in the study:", *(f"  {fault}" for fault in ordered)]))


@dataclass
class Document:
    """Values as TOML gives them, and the place of each, `file:line`."""

    values: dict[str, Any]
    places: dict[KeyPath, str] = field(default_factory=dict)
    origin: str = "study"
    shipped: str = ""
    name: str = ""
    path: Path = Path()

    def where(self, path: KeyPath) -> str:
        """The place of a field, or of the nearest table around it, and the field's own name."""
        near = next((path[:n] for n in range(len(path), 0, -1) if path[:n] in self.places), None)
        place = self.origin if near is None else self.places[near]
        return f"{place}: {dotted(path)}" if path else place


def dotted(path: KeyPath) -> str:
    """`rows[2].unit`, items counted from 1 as people count."""
    return "".join(f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def shipped() -> dict[str, Path]:
    """The study files that come with apical, by name."""
    paths = {path.stem: path for folder in (PAPER, BEYOND) for path in folder.glob("*.toml") if path.stem != CLAIMS}
    return dict(sorted(paths.items()))


def read(name: str | Path) -> Document:
    """The study of that name or in that file, laid over the one it extends, if any."""
    return _read(name, folder=None, chain=())


def _read(name: str | Path, *, folder: Path | None, chain: tuple[Path, ...]) -> Document:
    path = _find(name, folder)
    if path in chain or len(chain) > DEEPEST:
        raise StudyError(f"{path} extends itself, through {' and '.join(map(str, chain))}: remove one `extends`")
    document = parse(_text(path), origin=str(name) if path in shipped().values() else str(path))
    document.name, document.path = path.stem, path
    document.shipped = path.stem if path in shipped().values() else ""
    base = document.values.get("extends")
    if not isinstance(base, str) or not base:
        return document
    try:
        below = _read(base, folder=path.parent, chain=(*chain, path))
    except StudyError as error:
        raise StudyError(f"{document.where(('extends',))}: {error}") from error
    return merged(below, document)


def _find(name: str | Path, folder: Path | None) -> Path:
    known = shipped()
    if str(name) in known:
        return known[str(name)]
    path = Path(name).expanduser()
    path = path if folder is None else folder / path
    try:
        if path.is_file():
            return path.resolve()
    except (OSError, ValueError):  # a name no file system takes
        pass
    if path.suffix == ".toml":
        raise StudyError(f"there is no file {path}: `apical study new` writes a study file for your own data")
    close = get_close_matches(str(name), known, n=1)
    hint = f"did you mean {close[0]!r}? Or " if close else ""
    raise StudyError(
        f"there is no study {str(name)!r}: {hint}give the path of a study file, or one of {', '.join(known)}; "
        "`apical study new` writes a file for your own data"
    )


def _text(path: Path) -> str:
    try:
        return files.read_bytes(path, limit=LARGEST).decode("utf-8")
    except UnicodeDecodeError as error:
        raise StudyError(f"{path} is not TOML: it is not UTF-8 ({error.reason})") from error
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise StudyError(f"{path} is not a study file: {error}") from error


def parse(text: str, *, origin: str) -> Document:
    """One file's text."""
    try:
        values = files.parse_toml(text)
        places = {path: f"{origin}:{line}" for path, line in field_lines(text).items()}
    except ValueError as error:
        line = re.search(r"at line (\d+)", str(error))
        last = text.rstrip("\n").count("\n") + 1
        raise StudyError(f"{origin}:{line[1] if line else last}: not TOML: {error}") from error
    return Document(values, places, origin)


# --- one file over another -----------------------------------------------------------------------------------------


def merged(below: Document, above: Document) -> Document:
    """`above` laid over `below`."""
    result = Document(
        copy.deepcopy(below.values),
        dict(below.places),
        above.origin,
        above.shipped or below.shipped,
        above.name,
        above.path,
    )
    _lay(result.values, above.values, (), (), above, result)
    result.values["extends"] = above.values["extends"]
    return result


def _lay(
    target: dict[str, Any], source: dict[str, Any], to: KeyPath, at: KeyPath, above: Document, result: Document
) -> None:
    """Lay the table at path `at` of `above` over the table at path `to` of `result`."""
    for key, value in source.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _move(above, (*at, key), result, (*to, key), whole=False)
            _lay(target[key], value, (*to, key), (*at, key), above, result)
        elif not at and key in _IDENTITY and isinstance(value, list) and isinstance(target.get(key), list):
            _lay_items(target[key], value, key, above, result)
        else:
            target[key] = value
            _move(above, (*at, key), result, (*to, key), whole=True)


def _lay_items(target: list[Any], source: list[Any], key: str, above: Document, result: Document) -> None:
    """Items of the same identity are merged, others added at the end."""
    known = {_IDENTITY[key](item): i for i, item in enumerate(target)}
    for i, item in enumerate(source):
        j = known.get(_IDENTITY[key](item), len(target))
        if j < len(target) and isinstance(item, dict):
            _move(above, (key, i), result, (key, j), whole=False)
            _lay(target[j], item, (key, j), (key, i), above, result)
        else:
            target.append(item)
            _move(above, (key, i), result, (key, len(target) - 1), whole=True)


def _move(above: Document, at: KeyPath, result: Document, to: KeyPath, *, whole: bool) -> None:
    """The places of a value, and `whole`: of all within it, which then replace what stood there."""
    if whole:
        for path in [p for p in result.places if p[: len(to)] == to]:
            del result.places[path]
    for path, place in above.places.items():
        if path == at or (whole and path[: len(at)] == at):
            result.places[(*to, *path[len(at) :])] = place


def row_name(row: Any) -> str:
    """What a row is called: by its name, or by its unit."""
    if not isinstance(row, dict):
        return ""
    return str(row["name"]) if "name" in row else slug(str(row.get("unit", "")))


def slug(text: str) -> str:
    """`leaky_ada(alpha=0.1)` as `leaky-ada-alpha-0.1`: lower case, no sign but - and the point."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


_IDENTITY: dict[str, Any] = {
    "parts": lambda item: item.get("name") if isinstance(item, dict) else None,
    "rows": lambda item: (
        row_name(item),
        json.dumps(item.get("parts") if isinstance(item, dict) else None, default=str),
    ),
    "groups": lambda item: item.get("name") if isinstance(item, dict) else None,
}


# --- the command line ----------------------------------------------------------------------------------------------


def changed(document: Document, sets: Iterable[str]) -> Document:
    """The document with `key=value` changes: `trials=3`, `parts.mlp-1.training.epochs=2`, `rows.ada.tune.alpha=[1]`."""
    result = Document(
        copy.deepcopy(document.values),
        dict(document.places),
        document.origin,
        document.shipped,
        document.name,
        document.path,
    )
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise StudyError(f"--set {text}: write key=value, for example --set trials=3")
        _set(result, key.strip(), _literal(value.strip()), text)
    return result


def _literal(text: str) -> Any:
    """A TOML value, or else the text itself, so that words need no quotes."""
    try:
        values = files.parse_toml(f"value = {text}")
    except ValueError:
        return text
    return values["value"] if len(values) == 1 else text


def _set(document: Document, key: str, value: Any, text: str) -> None:
    target: Any = document.values
    path: KeyPath = ()
    rest = key
    step: str | int
    while True:
        if isinstance(target, list):
            step, rest = _item(target, rest, path, text)
        else:
            step, _, rest = rest.partition(".")
        path = (*path, step)
        if not rest:
            break
        if isinstance(target, dict) and not isinstance(target.get(step), dict | list):
            target[step] = {}
            _forget(document, path)
            document.places[path] = f"--set {text}"
        target = target[step]
    if isinstance(target, list) and not isinstance(value, dict):
        raise StudyError(f"--set {text}: {dotted(path)} is a table: name one of its fields")
    target[step] = value
    _forget(document, path)
    document.places[path] = f"--set {text}"


def _item(items: list[Any], key: str, path: KeyPath, text: str) -> tuple[int, str]:
    """The item of a list that `key` starts with the name of, and the rest of the key; names may hold points."""
    names = [str(item.get("name")) if path != ("rows",) else row_name(item) for item in items if isinstance(item, dict)]
    fitting = [name for name in names if key == name or key.startswith(f"{name}.")]
    if not fitting:
        raise StudyError(f"--set {text}: {dotted(path)} has no {key!r}; available: {', '.join(names) or 'none'}")
    best = max(fitting, key=len)
    return names.index(best), key[len(best) + 1 :]


def _forget(document: Document, path: KeyPath) -> None:
    for old in [p for p in document.places if p[: len(path)] == path]:
        del document.places[old]
