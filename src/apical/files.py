"""Files that appear whole or not at all, and are read without trust. All results go through here.

`write` fills a temporary file beside its target, brings it to disk, and gives it the target's name in one step: a
crash, a full disk or another process leaves the old file or the new one, never a part of one. It raises OSError; `save`
raises a CheckpointError instead, and `using` turns what happens to a study directory into a StudyError.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from apical.errors import CheckpointError, DataError, StudyError

LIMIT: Final = 1 << 26
"""Bytes; a larger file was not written by apical."""
CHUNK: Final = 1 << 20
THREADS: Final = 16
FATAL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG)
"""What the operating system says of a place where no trial can be stored, whichever it is."""


# --- writing ----------------------------------------------------------------------------------------------------------


def write(path: Path, data: bytes | memoryview, *, exclusive: bool = False, durable: bool = True) -> None:
    """Write a file in one step over the one that is there or, `exclusive`, raise FileExistsError where there is one.

    Without `durable` nothing waits for the disk: for files that nobody misses after a power cut.
    """
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.tmp")
    try:
        _fill(temporary, data, durable=durable)
        if exclusive:
            _link(temporary, path, data)
        else:
            temporary.replace(path)
        if durable:
            sync(path.parent)
    finally:
        remove(temporary)


def _fill(path: Path, data: bytes | memoryview, *, durable: bool) -> None:
    rest = memoryview(data).cast("B")
    with path.open("xb", buffering=0) as file:
        while rest:
            rest = rest[file.write(rest[:CHUNK]) :]
        if durable:
            os.fsync(file.fileno())


def _link(temporary: Path, path: Path, data: bytes | memoryview) -> None:
    """Give a complete file a second name: exclusive on every file system, NFS included.

    Where the answer to the call was lost on the network, the number of names tells whether it worked; where links are
    unknown, O_EXCL is all there is.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        if temporary.stat().st_nlink != 2:
            raise
    except OSError as error:
        if error.errno in FATAL and error.errno != errno.EPERM:  # EPERM: a file system without links
            raise
        _fill(path, data, durable=True)


def write_json(path: Path, values: Any, *, exclusive: bool = False, durable: bool = True) -> None:
    """Write a table, or whatever JSON holds; see `write`."""
    write(path, (json.dumps(values, indent=1, allow_nan=False) + "\n").encode(), exclusive=exclusive, durable=durable)


def create(path: Path, values: Any) -> bool:
    """Write a JSON file that is not there yet; False where somebody else made it."""
    try:
        write_json(path, values, exclusive=True)
    except FileExistsError:
        return False
    return True


def save(path: Path, data: bytes | memoryview, *, exclusive: bool = False) -> None:
    """Write a file of a trial; what goes wrong is said in one sentence."""
    try:
        write(path, data, exclusive=exclusive)
    except FileExistsError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}; what was there before is intact: "
            "free some space or fix the folder, then run the same command again"
        ) from error


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut, where the system lets them be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def at_once(work: Callable[..., None], *arguments: Iterable[Any]) -> None:
    """Call `work` for every set of arguments, several at a time: what waits for the disk can wait together."""
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(work, *arguments):
            pass


# --- removing ---------------------------------------------------------------------------------------------------------


def remove(path: Path) -> None:
    """Remove a file or folder; what cannot be removed stays."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def sweep(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while writing."""
    for path in folder.glob(".*.tmp"):
        remove(path)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any] | None:
    """The table in a JSON file; None where the file is missing, damaged or something else."""
    try:
        values = json.loads(read_text(path))
    except (CheckpointError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def read_text(path: Path, *, limit: int = LIMIT) -> str:
    """The text of a small file, or one sentence that says why not."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise CheckpointError(f"{path} is larger than {limit:,} bytes: it was not written by apical")
        return data.decode("utf-8")
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not text: it was not written by apical") from error


def sha256(path: Path) -> str:
    """The hash of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def names(folder: Path) -> list[str]:
    """The names in a folder; none where there is no folder."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


# --- where apical keeps things ----------------------------------------------------------------------------------------


def home() -> Path:
    """`APICAL_HOME`, or the platform's cache folder: everything apical keeps between runs; it may not exist yet."""
    given = os.environ.get("APICAL_HOME")
    return Path(given).expanduser() if given else _platform_cache() / "apical"


def _platform_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


# --- what goes wrong --------------------------------------------------------------------------------------------------


def fatal(error: BaseException | None) -> OSError | None:
    """The OSError in a chain of causes that says that nothing can be stored here."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FATAL:
            return error
        error = error.__cause__
    return None


@contextmanager
def using(directory: Path) -> Iterator[None]:
    """Turn what the operating system says about a study directory into one sentence."""
    try:
        yield
    except OSError as error:
        raise cannot_use(directory, error) from error


def cannot_use(directory: Path, error: OSError) -> StudyError:
    """The sentence for a directory that cannot be written: nothing that is finished is lost."""
    return StudyError(
        f"cannot use the study directory {directory}: {error.strerror or error}; what is finished is safe: make room "
        "or fix the folder, then give the same command again, or choose another folder with -d"
    )


# --- data from elsewhere: what is unreadable, or is not data (Git LFS pointers, web pages), raises a DataError --------

LFS_MARK: Final = b"version https://git-lfs"


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
