"""Prepared data: a folder of .npy arrays and a manifest, published by one rename."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from apical import files, imports
from apical.data.archives import Progress, silent
from apical.data.randomness import keys_of
from apical.data.split import Parts, split_hash
from apical.errors import DataError, unknown
from apical.files import home, reading, unreadable

FORMAT = 1
MANIFEST = "manifest.json"
_PLAIN = re.compile(r"[\w-]+(/[\w-]+)*")
"""What arrays are called: none of them lies elsewhere."""


class Draft:
    """A prepared folder while it is being written, under a name that nobody opens."""

    def __init__(self, folder: Path, *, partial: bool, progress: Progress = silent, workers: int | None = None) -> None:
        self.folder, self.partial, self.progress = folder, partial, progress
        self.workers = workers or os.cpu_count() or 1
        self.ids: list[str] = []
        self.row_means: NDArray[np.float64] | None = None
        """Mean stored value of each row, for images: a split's training mean follows without reading them again."""
        self.facts: dict[str, Any] = {}
        self._splits: dict[str, Any] = {}

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> "np.memmap[Any, Any]":
        """A new array on disk, to be filled; its space is reserved now, so that a full disk is noticed here."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            reserve(file.fileno(), file.tell() + int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return files.map_array(path, "r+")  # type: ignore[return-value]

    def save(self, name: str, values: ArrayLike) -> None:
        array = np.asarray(values)
        if array.size:
            self.array(name, array.shape, array.dtype)[...] = array
        else:  # nothing to map
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
            np.save(self.path(name), array)

    def identify(self, ids: list[str]) -> None:
        """The stable ids of all rows; a second sample of the same id is an error."""
        if len(set(ids)) != len(ids):
            seen: set[str] = set()
            twice = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise DataError(f"the sample id {twice!r} occurs twice: give each sample a unique id")
        self.ids = ids
        self.save("ids", np.char.encode(np.asarray(ids, np.str_), "utf-8") if ids else np.empty(0, "S1"))
        self.save("keys", keys_of(ids))

    def split(self, name: str, parts: Parts) -> None:
        for part, rows in zip(Parts._fields, parts, strict=True):
            self.save(f"splits/{name}/{part}", np.asarray(rows, np.int64))
        hashed = split_hash([self.ids[i] for i in rows] for rows in parts)
        self._splits[name] = {"counts": [len(rows) for rows in parts], "sha256": hashed}
        if self.row_means is not None and len(parts.train):
            self._splits[name]["train_mean"] = float(self.row_means[parts.train].mean())

    def seal(self) -> None:
        """Hash the arrays, write the manifest, and bring everything to disk."""
        paths = sorted(p for p in self.folder.rglob("*.npy") if "files" not in p.relative_to(self.folder).parts[:1])
        arrays = {}
        for done, path in enumerate(paths):
            self.progress("checking", done, len(paths))
            name = path.relative_to(self.folder).with_suffix("").as_posix()
            arrays[name] = {"sha256": files.sha256(path), "bytes": path.stat().st_size}
            files.sync(path)
        manifest = {"format": FORMAT, "partial": self.partial, "rows": len(self.ids), "arrays": arrays}
        manifest |= {"splits": self._splits, **self.facts}
        files.write(self.folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode())


def reserve(descriptor: int, size: int) -> None:
    """Give a new file its full size in real blocks: writing to a map over a full disk would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    zeros = bytes(1 << 20)
    position = os.lseek(descriptor, 0, os.SEEK_END)
    while position < size:
        position += os.write(descriptor, zeros[: size - position])


def publish(
    folder: Path,
    build: Callable[[Draft], None],
    *,
    partial: bool,
    progress: Progress = silent,
    workers: int | None = None,
) -> bool:
    """Build a prepared folder under `folder` unless it is there; True if this call built it.

    Of several processes one builds and the others wait. A process that dies leaves a draft that the next one removes.
    """
    if (folder / MANIFEST).is_file():
        return False
    with writing(folder), _lock(folder, progress):
        if (folder / MANIFEST).is_file():
            return False
        for stale in folder.parent.glob(f".{folder.name}.draft-*"):
            shutil.rmtree(stale)
        draft_folder = folder.parent / f".{folder.name}.draft-{os.getpid()}"
        draft_folder.mkdir()
        try:
            draft = Draft(draft_folder, partial=partial, progress=progress, workers=workers)
            build(draft)
            draft.seal()
            draft_folder.rename(folder)
        except BaseException:
            shutil.rmtree(draft_folder, ignore_errors=True)
            raise
        files.sync(folder.parent)
    return True


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn what the operating system says about the cache into a DataError."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise DataError(
            f"cannot write prepared data to {folder}: {error.strerror or error}; "
            "free some space or set APICAL_HOME to another folder"
        ) from error


@contextmanager
def _lock(folder: Path, progress: Progress) -> Iterator[None]:
    filelock = imports.optional("filelock", extra="lab")
    lock = filelock.FileLock(folder.parent / f".{folder.name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        progress("waiting for another process that prepares it", 0, 1)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


class Store:
    """A prepared folder, opened: the manifest is read, arrays are mapped when first used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = _read_manifest(folder / MANIFEST)

    def array(self, name: str) -> NDArray[Any]:
        """One array, mapped: plain to numpy, which is slow with maps of its own kind."""
        return self.map(name).view(np.ndarray)

    def map(self, name: str) -> NDArray[Any]:
        """One array, mapped copy-on-write: many processes share one copy of the data."""
        path = self.folder / f"{name}.npy"
        try:
            return files.map_array(path)
        except files.BROKEN_NPZ as error:
            raise DataError(f"{path} is damaged: remove {self.folder} and prepare the data again") from error

    def has(self, name: str) -> bool:
        return name in self.manifest["arrays"]

    @cached_property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(int(a["bytes"]) for a in self.manifest["arrays"].values())

    def parts(self, split: str) -> Parts:
        """The rows of train, validation and test of a split by name."""
        names: Mapping[str, Any] = self.manifest["splits"]
        if split not in names:
            raise DataError(unknown("split", split, names))
        return Parts(*(self.array(f"splits/{split}/{part}") for part in Parts._fields))

    def verify(self, *, progress: Progress = silent) -> None:
        """Compare every array with the hash taken when it was made."""
        arrays = self.manifest["arrays"]
        for done, (name, fact) in enumerate(arrays.items()):
            progress(f"verifying {name}", done, len(arrays))
            path = self.folder / f"{name}.npy"
            with reading(path):
                digest = files.sha256(path)
            if digest != fact["sha256"]:
                raise DataError(
                    f"{path} has changed since it was prepared (sha256 {digest[:12]}..., expected "
                    f"{fact['sha256'][:12]}...): remove {self.folder} and prepare the data again"
                )

    def fingerprint(self, split: str) -> str:
        """A hash of the arrays and the split: it stands for the bytes that a trial saw."""
        parts = [f"{n}={a['sha256']}" for n, a in sorted(self.manifest["arrays"].items()) if "/" not in n]
        parts.append(self.manifest["splits"][split]["sha256"])
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: Any = files.parse_json(files.read_bytes(path, limit=files.LIMIT))
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise DataError(f"{path} is damaged: remove {path.parent} and prepare the data again") from error
    kinds = {"arrays": dict, "splits": dict, "rows": int, "partial": bool, "official": int, "source": str}
    whole = isinstance(manifest, dict) and all(isinstance(manifest.get(k), kind) for k, kind in kinds.items())
    if not whole or not all(_PLAIN.fullmatch(name) for name in manifest["arrays"]) or manifest.get("format") != FORMAT:
        raise DataError(f"{path} was written by another version of apical: remove {path.parent} and prepare again")
    checked: dict[str, Any] = manifest
    return checked


# Where apical keeps data.


def raw_folder(store: str) -> Path:
    """Where a user puts the files of a data set that cannot be downloaded freely."""
    return home() / "raw" / store


def prepared_folder() -> Path:
    """Where prepared data sets live, one folder each."""
    return home() / "prepared"
