"""Frozen records that are written as JSON or TOML and read back equal; strangers among the fields are refused."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from difflib import get_close_matches
from functools import cache
from math import isfinite
from typing import Any, Self, get_type_hints

from apical.errors import InvalidArgumentError


class Record:
    """What TrialSpec and Execution share; subclasses are frozen dataclasses of plain values."""

    def __post_init__(self) -> None:
        hints = _hints(type(self))  # type: ignore[arg-type]  # mypy takes a class for its instances
        for field in fields(self):  # type: ignore[arg-type]
            value = _as(hints[field.name], field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON knows values: lists for tuples."""
        return {name: _plain(value) for name, value in asdict(self).items()}  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The record with these fields; the others take their defaults."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        for key in values:
            if key not in names:
                near = get_close_matches(str(key), names, n=1)
                hint = f"did you mean {near[0]!r}? T" if near else "t"
                raise InvalidArgumentError(f"{cls.__name__} has no field {key!r}: {hint}here are {', '.join(names)}")
        try:
            return cls(**values)
        except TypeError as error:  # a required field is missing
            raise InvalidArgumentError(f"{cls.__name__}: {str(error).split('__init__() ')[-1]}") from error

    def to_json(self) -> str:
        """JSON text with sorted keys."""
        return json.dumps(self.as_dict(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The record that `to_json` wrote."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"this is no JSON of a {cls.__name__}: {error}") from error
        return cls._from_parsed(values)

    def to_toml(self) -> str:
        """TOML text; fields without a value are left out."""
        plain = {name: value for name, value in self.as_dict().items() if value is not None}
        tables = {name: value for name, value in plain.items() if isinstance(value, dict)}
        lines = [f"{name} = {_toml(value)}" for name, value in plain.items() if name not in tables]
        for name, table in tables.items():
            lines += ["", f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in table.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """The record that `to_toml` wrote."""
        try:
            values = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidArgumentError(f"this is no TOML of a {cls.__name__}: {error}") from error
        return cls._from_parsed(values)

    @classmethod
    def _from_parsed(cls, values: Any) -> Self:
        if not isinstance(values, dict):
            raise InvalidArgumentError(f"a {cls.__name__} is a table of fields, not {values!r:.50}")
        return cls.from_dict(values)


@cache
def _hints(record: type) -> dict[str, Any]:
    return get_type_hints(record)


_ALLOWED: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a finite number"),
    bool: ((bool,), "true or false"),
}


def _as(hint: Any, name: str, value: Any) -> Any:
    """`value` as the annotation says: numbers widened to float, lists to tuples; anything else is refused."""
    optional = getattr(hint, "__args__", ()) if type(None) in getattr(hint, "__args__", ()) else ()
    if optional:
        return None if value is None else _as(optional[0], name, value)
    if hint in _ALLOWED:
        types, words = _ALLOWED[hint]
        if type(value) not in types or (isinstance(value, float) and not isfinite(value)):
            raise InvalidArgumentError(f"{name} is {value!r}, but must be {words}")
        return hint(value)
    if getattr(hint, "__origin__", None) is tuple:
        if not isinstance(value, list | tuple):
            raise InvalidArgumentError(f"{name} is {value!r}, but must be a list")
        return tuple(_as(hint.__args__[0], name, item) for item in value)
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{name} is {value!r}, but must be a table of names and values")
    return {str(key): _frozen(f"{name}.{key}", item) for key, item in value.items()}


def _frozen(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen(name, item) for item in value)
    if isinstance(value, bool | str | int) or (isinstance(value, float) and isfinite(value)):
        return value
    raise InvalidArgumentError(f"{name} is {value!r}, but must be a text, a finite number, true, false or a list")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):  # JSON's escapes are TOML's, but for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _key(name: str) -> str:
    plain = name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if plain else _toml(name)
