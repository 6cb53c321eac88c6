"""Small files that several processes and machines share: made whole or not at all, read without trust."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from apical.errors import CheckpointError, StudyError

LIMIT: Final = 1 << 26
"""Bytes; a larger file was not written by apical."""
HOPELESS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG)
"""What the operating system says of a place where no trial can be stored, whichever it is."""


def create(path: Path, values: Any) -> bool:
    """Write a file that is not there yet; False where somebody else made it.

    A link to a complete file is exclusive on every file system, NFS included. Where the answer to the call was lost on
    the network, the number of names tells whether it worked; where links are unknown, O_EXCL is all there is.
    """
    temporary = _write_beside(path, values)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return temporary.stat().st_nlink == 2
    except OSError as error:
        if error.errno in HOPELESS and error.errno != errno.EPERM:  # EPERM: a file system without links
            raise
        return _create_exclusively(path, values)
    finally:
        remove(temporary)
    return True


def _create_exclusively(path: Path, values: Any) -> bool:
    try:
        with path.open("xb") as file:
            file.write(_encoded(values))
    except FileExistsError:
        return False
    return True


def replace(path: Path, values: Any) -> None:
    """Write a file over the one that is there: readers see the old or the new one."""
    temporary = _write_beside(path, values)
    try:
        temporary.replace(path)
    finally:
        remove(temporary)


def _write_beside(path: Path, values: Any) -> Path:
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(_encoded(values))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        remove(temporary)
        raise
    return temporary


def _encoded(values: Any) -> bytes:
    return (json.dumps(values, indent=1, allow_nan=False) + "\n").encode()


def write(path: Path, values: Any) -> None:
    """Write a file that nobody will miss: readers see the old or the new one, and a power cut may take it."""
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.tmp")
    try:
        temporary.write_bytes(_encoded(values))
        temporary.replace(path)
    finally:
        remove(temporary)


def read(path: Path) -> dict[str, Any] | None:
    """The table in a JSON file; None where the file is missing, damaged or something else."""
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT + 1)
        values = json.loads(data) if len(data) <= LIMIT else None
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def remove(path: Path) -> None:
    """Remove a file or folder; what cannot be removed stays."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def names(folder: Path) -> list[str]:
    """The names in a folder; none where there is no folder."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def hopeless(error: BaseException | None) -> OSError | None:
    """The OSError in a chain of causes that says that nothing can be stored here."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in HOPELESS:
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


# Files that appear whole or not at all.

CHUNK: Final = 1 << 20
THREADS: Final = 16


def write_whole(path: Path, data: bytes | memoryview, *, exclusive: bool = False) -> None:
    """Write to a temporary name, fsync, rename over `path`, fsync the folder: a crash leaves the old or the new file.

    With `exclusive`, a file that is there already stays and FileExistsError is raised.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write(temporary, memoryview(data).cast("B"))
        if exclusive:
            os.link(temporary, path)
        else:
            temporary.replace(path)
        sync_folder(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}; what was there before is intact: "
            "free some space or fix the folder, then run the same command again"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _write(path: Path, data: memoryview) -> None:
    with path.open("wb", buffering=0) as file:
        while data:
            data = data[file.write(data[:CHUNK]) :]
        os.fsync(file.fileno())


def at_once(work: Callable[..., None], *arguments: Iterable[Any]) -> None:
    """Call `work` for every set of arguments, several at a time: what waits for the disk can wait together."""
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(work, *arguments):
            pass


def sweep(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while writing."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):
            path.unlink()


def read_text(path: Path, *, limit: int = 1 << 26) -> str:
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


# What outlives a power cut.


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut, where the system lets folders be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
