"""Read untrusted files: what is unreadable, or is not data (Git LFS pointers, web pages), raises a DataError."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apical.errors import DataError

CHUNK = 1 << 20
LFS_MARK = b"version https://git-lfs"


def read_file(path: Path, *, limit: int) -> bytes:
    """All bytes of a file of at most `limit` bytes; anything else is a DataError."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  called for millions of small files
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
                return file.read()
    except OSError as error:
        raise unreadable(path, error) from error
    raise DataError(f"{path} is not a file of at most {limit:,} bytes: it is not what its name says")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a file into a DataError."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> DataError:
    """What the operating system says about a file, as our error."""
    return DataError(f"cannot read {path}: {error.strerror or error}")


def one_line(error: BaseException) -> str:
    """What a library says, on one line and not too long."""
    return " ".join(str(error).split())[:200]


def is_text(name: str) -> bool:
    """Whether a name is Unicode; what a file system holds need not be."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def refuse_placeholder(data: bytes, origin: object) -> None:
    """Refuse Git LFS pointers and web pages, which failed downloads leave in place of data."""
    head = data[:512].lstrip().lower()
    if head.startswith(LFS_MARK):
        raise DataError(
            f"{origin} is a Git LFS pointer, not data: a zip download of the repository does not hold the files; "
            "clone it with `git lfs install` and `git lfs pull`"
        )
    if head.startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise DataError(f"{origin} is a web page, not data: the download was answered with HTML; fetch the file again")
