"""Looking at bytes before believing them: hashes, and the usual impostors."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apical.errors import DataError

CHUNK = 1 << 20
LFS_MARK = b"version https://git-lfs"


def sha256_of_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_file(path: Path, *, limit: int) -> bytes:
    """All bytes of a file of at most `limit` bytes; anything else is a DataError."""
    with reading(path), path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise DataError(f"{path} is larger than {limit:,} bytes, the most such a file may hold: it is not what it says")
    return data


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a file into a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def one_line(error: BaseException) -> str:
    """What a library says, on one line and not too long."""
    return " ".join(str(error).split())[:200]


def refuse_impostor(data: bytes, origin: object) -> None:
    """Git LFS pointers and web pages are what a download gives in place of data."""
    head = data[:512].lstrip().lower()
    if head.startswith(LFS_MARK):
        raise DataError(
            f"{origin} is a Git LFS pointer, not data: a zip download of the repository does not hold the files; "
            "clone it with `git lfs install` and `git lfs pull`"
        )
    if head.startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise DataError(f"{origin} is a web page, not data: the download was answered with HTML; fetch the file again")
