"""Files that appear whole or not at all."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from apical.disk import sync_folder
from apical.errors import CheckpointError

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
