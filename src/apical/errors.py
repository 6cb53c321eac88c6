"""What apical raises: every message is one sentence that says what, which value, what is allowed, what to do."""

import re
from collections.abc import Iterable


class ApicalError(Exception):
    """The parent of all errors that apical raises on purpose."""


class InvalidArgumentError(ApicalError, ValueError):
    """A value outside what a function accepts."""


class UntrustedError(InvalidArgumentError):
    """Code that a file names and the user did not allow."""


class DtypeError(ApicalError, TypeError):
    """A tensor or value of a type that a function cannot compute with."""


class BackendError(ApicalError, RuntimeError):
    """A kernel that was asked for by name and cannot serve the call."""


class MissingExtraError(ApicalError, ImportError):
    """An optional part of apical that is not installed."""


class LibraryError(ApicalError, RuntimeError):
    """Another library that is not as apical knows it."""


class ConversionError(ApicalError, ValueError):
    """A model that cannot be rewritten as asked."""


class DataError(ApicalError, ValueError):
    """A data set that is missing, damaged, or not what its name says."""


class MissingDataError(DataError):
    """A data set whose files are not on this machine; the message says who has them and where to put them."""


class TrainingError(ApicalError, RuntimeError):
    """A trial that cannot be run, continued or evaluated as asked."""


class CheckpointError(TrainingError):
    """A checkpoint that is damaged, belongs to something else, or could not be written."""


class AlreadyEvaluatedError(TrainingError):
    """The test split of a trial was opened before; it is opened once."""


class StudyError(ApicalError, ValueError):
    """A study file that is wrong, or a study that cannot be planned or read; the message lists every fault."""


_HIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ud800-\udfff]")
"""Characters that move the cursor, colour the screen, end a line or change the direction of what follows."""


def visible(text: str, *, lines: bool = False) -> str:
    """Text for a terminal or page: hidden characters as their escapes, line ends too unless `lines` are kept.

    Names and reasons may come from anybody's file. They are kept as they are read, and filtered where they are shown.

    Examples:
        >>> visible("a\\x1b[2Jb")
        'a\\\\x1b[2Jb'
    """
    return _HIDDEN.sub(lambda m: m[0] if lines and m[0] == "\n" else m[0].encode("unicode_escape").decode(), text)


def unknown(what: str, name: object, known: Iterable[str], more: str = "") -> str:
    """The sentence about a name that is not among the `known` ones; `more` says how to add one, or what else works.

    Examples:
        >>> unknown("network", "lenet-5", ["mlp-1", "lenet"])
        "unknown network 'lenet-5'; did you mean 'lenet'? available: mlp-1, lenet"
    """
    names = list(known)
    close = near(str(name), names)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return f"unknown {what} {name!r:.100}; {hint}available: {', '.join(names) or 'none'}" + (
        f"; {more}" if more else ""
    )


OTHER_WORDS = {"lr": "learning_rate", "batch_size": "batch", "optimizer": "optimiser", "weight_decay": "l2", "wd": "l2"}
"""What other libraries call our settings."""


def near(name: str, names: Iterable[str]) -> list[str]:
    """The names that somebody may have meant: the same thing by another word, those that begin so, or one like it.

    Examples:
        >>> near("mlp", ["mlp-1", "mlp-2", "lenet"]), near("lr", ["learning_rate"]), near("lenet-5", ["mlp-1", "lenet"])
        (['mlp-1', 'mlp-2'], ['learning_rate'], ['lenet'])
    """
    from difflib import get_close_matches  # noqa: PLC0415  only who mistypes waits for it

    known = list(names)
    if (other := OTHER_WORDS.get(name)) in known:
        return [str(other)]
    begun = [own for own in known if own.startswith(f"{name.lower()}-")]
    return begun[:3] or get_close_matches(name.lower(), known, n=1)
