"""Files that appear whole or not at all, and are read without trust. All results go through here.

Every reader of bytes that may come from elsewhere is in this module, with its limits; docs/security.md has the table.
`apical.limits` has the bounds of what the bytes ask for.
`write` fills a temporary file beside its target, brings it to disk, and gives it the target's name in one step: a
crash, a full disk or another process leaves the old file or the new one, never a part of one. It raises OSError; `save`
raises a CheckpointError instead, and `using` turns what happens to a study directory into a StudyError.
"""

import bz2
import csv
import errno
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import stat
import struct
import sys
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import cache
from io import FileIO
from math import isfinite, prod
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NoReturn

from apical import imports
from apical.errors import CheckpointError, DataError, StudyError, visible
from apical.limits import limit, raise_it

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor

LIMIT: Final = 1 << 26
"""Bytes; a larger file was not written by apical."""
DEPTH, ITEMS, WHOLE, ROWS, ENTRIES = 64, 4_000_000, 1 << 64, 5_000_000, 10_000
"""Of JSON and TOML: levels, values, and the size of whole numbers; lines of CSV; files of a trial."""
CHUNK: Final = 1 << 20
THREADS: Final = 16
FATAL: Final = (
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG, errno.ESTALE,
    errno.ETIMEDOUT, errno.ENOTCONN, errno.EMFILE, errno.ENFILE,
)  # fmt: skip
"""What the operating system says of a place where no trial can be stored or read, whichever it is."""


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
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot sync folders
            raise
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


# --- reading: regular files alone, of known size, and links only where the user named the file ----------------------


def open_file(path: str | Path, *, follow: bool = True) -> FileIO:
    """A regular file, open for reading; a folder, FIFO, socket or device is an OSError, and nothing is waited for.

    Without `follow`, so is a link: for files of trials and studies, which apical writes as plain files.
    """
    flags = os.O_RDONLY | _flag("O_NONBLOCK") | _flag("O_CLOEXEC") | _flag("O_BINARY")
    if not follow:
        refuse_link(path)
        flags |= _flag("O_NOFOLLOW")
    descriptor = os.open(path, flags)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a FIFO, a socket or a device"
            raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
        return FileIO(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _flag(name: str) -> int:
    return getattr(os, name, 0)


def refuse_link(path: str | Path) -> None:
    """An OSError where a name in a folder of ours is a link: it may lead anywhere."""
    if os.path.islink(path):  # noqa: PTH114  called for every file of a study
        raise OSError(errno.ELOOP, "it is a symbolic link: put the file itself there", str(path))


def refuse_links_out(root: Path, paths: Iterable[Path]) -> None:
    """Refuse files below `root` that a link leads out of it; links within it are fine."""
    home, known = os.path.realpath(root), dict[str, bool]()
    for path in paths:
        folder = os.path.dirname(path)  # noqa: PTH120  called for millions of files
        if folder not in known:
            known[folder] = _within(folder, home)
        if not known[folder] or (os.path.islink(path) and not _within(path, home)):  # noqa: PTH114
            raise DataError(f"{path} is reached by a link that leads out of {root}: copy its target into {root}")


def _within(path: str | Path, home: str) -> bool:
    real = os.path.realpath(path)
    return real == home or real.startswith(home.rstrip(os.sep) + os.sep)


def read_bytes(path: str | Path, *, limit: int, follow: bool = True) -> bytes:
    """All bytes of a regular file of at most `limit` bytes; OSError or ValueError otherwise."""
    with open_file(path, follow=follow) as file:
        left = os.fstat(file.fileno()).st_size
        if left > limit:
            raise ValueError(f"it has {left:,} bytes, more than {limit:,}")
        parts = []
        while left and (part := file.read(left)):
            parts.append(part)
            left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_json(path: Path) -> dict[str, Any] | None:
    """The table in a JSON file; None where the file is missing, damaged or something else.

    Raises OSError where the disk is at fault: a file that cannot be read now is not damaged.
    """
    try:
        values = parse_json(read_text(path))
    except (CheckpointError, ValueError) as error:
        if place := fatal(error):
            raise place from error
        return None
    return values if isinstance(values, dict) else None


def read_text(path: Path, *, limit: int = LIMIT) -> str:
    """The text of a small file of apical's own, or one sentence that says why not."""
    try:
        return read_bytes(path, limit=limit, follow=False).decode("utf-8")
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not text: it was not written by apical") from error
    except ValueError as error:
        raise CheckpointError(f"{path} was not written by apical: {error}") from error


def sha256(path: Path) -> str:
    """The hash of a file's bytes, in hexadecimal digits."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def names(folder: Path) -> list[str]:
    """The names in a folder; none where there is no folder."""
    try:
        return [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def append(path: Path, data: bytes) -> None:
    """Add to a file of apical's own, in one write; never through a link, and never to a FIFO or device."""
    refuse_link(path)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK") | _flag("O_CLOEXEC")
    descriptor = os.open(path, flags | _flag("O_BINARY"), 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def copy_folder(source: Path, target: Path, *, without: Collection[str] = ()) -> None:
    """Copy the files and folders of a trial; a link, FIFO or device among them is an OSError, as are too many names."""
    left = ENTRIES
    waiting = [(source, target)]
    while waiting:
        here, there = waiting.pop()
        refuse_link(here)
        there.mkdir()
        for path in sorted(here.iterdir()):
            left -= 1
            if left < 0:
                raise OSError(errno.EINVAL, f"it holds more than {ENTRIES:,} files", str(source))
            if path.is_dir() and not path.is_symlink():
                waiting.append((path, there / path.name))
            elif path.name not in without:
                with open_file(path, follow=False) as file, (there / path.name).open("xb") as copy:
                    shutil.copyfileobj(file, copy, CHUNK)


# --- text formats: ValueError says what is wrong ----------------------------------------------------------------------


def parse_json(text: str | bytes) -> Any:
    """What JSON text says; ValueError where it is damaged, too deep, too long, or holds a key twice.

    Numbers are finite, and whole ones have at most 64 bits: what reads them need not fear either.
    """
    text = text if isinstance(text, str) else text.decode("utf-8")
    _countable(text)
    try:
        values = json.loads(text, object_pairs_hook=_table, parse_constant=_not_finite)
    except RecursionError as error:
        raise ValueError(f"it is nested deeper than {DEPTH} levels") from error
    return _bounded(values)


_DOTTED = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEPTH + 1}}}""")
"""A key of too many parts."""


def parse_toml(text: str) -> dict[str, Any]:
    """What TOML text says, within the same limits."""
    _countable(text)
    if _DOTTED.search(text):  # each dot is a level, and reading them takes time that grows with their square
        raise ValueError(f"it is nested deeper than {DEPTH} levels")
    try:
        values = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(f"it is nested deeper than {DEPTH} levels") from error
    _bounded(values)
    return values


def parse_csv(text: str) -> list[list[str]]:
    """The rows of CSV text, without empty ones."""
    if text.count("\n") > ROWS:
        raise ValueError(f"it has more than {ROWS:,} lines")
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as error:
        raise ValueError(str(error)) from error


_FORMULA = re.compile(r"(?:^|(?<=[;\t]))(?=[=+\-@\t＝＋－＠])")  # spreadsheets take wide ones too
"""Where a formula would begin: some spreadsheets cut at semicolons or tabs, whatever the file says."""
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?|[-+]?(nan|inf)", re.IGNORECASE)


def csv_text(heads: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table as CSV. Numbers are as Python writes them, which reads back equal; None is empty.

    A text that a spreadsheet would take for a formula gets an apostrophe in front: names may come from anybody's file.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in (heads, *rows))
    return text.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return "" if value is None else float.__repr__(value) if isinstance(value, float) else value  # numpy's too
    text = visible(value)
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub("'", text)


def _countable(text: str) -> None:
    if text.count(",") + text.count("[") + text.count("{") > ITEMS:
        raise ValueError(f"it has more than {ITEMS:,} values")


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it holds the key {next(key for key in keys if keys.count(key) > 1)[:40]!r} twice")
    return table


def _not_finite(word: str) -> NoReturn:
    raise ValueError(f"it holds the number {word}")


def _bounded(values: Any) -> Any:
    """The values, if they are not too deep and their numbers not too large."""
    level = [values]
    for _ in range(DEPTH + 1):
        deeper: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is dict:
                deeper += value.values()
            elif kind is list:
                deeper += value
            elif kind is float and not isfinite(value):
                raise ValueError("it holds a number that is not finite")
            elif kind is int and not -WHOLE < value < WHOLE:
                raise ValueError("it holds a whole number of more than 64 bits")
        if not deeper:
            return values
        level = deeper
    raise ValueError(f"it is nested deeper than {DEPTH} levels")


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
        f"cannot use the study directory {directory}: {error.strerror or error}; finished trials are safe: free some "
        "space or fix the folder, then run the same command again, or choose another folder with -d"
    )


# --- data from elsewhere: what is unreadable, or is not data (Git LFS pointers, web pages), raises a DataError --------

LFS_MARK: Final = b"version https://git-lfs"


def read_file(path: Path, *, limit: int) -> bytes:
    """All bytes of a file of at most `limit` bytes; anything else is a DataError."""
    try:
        return read_bytes(path, limit=limit)
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise DataError(f"{path} is not what its name says: {error}") from error


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


# --- images -----------------------------------------------------------------------------------------------------------

DECODERS: Final = {
    b"\xff\xd8\xff": "Jpeg",
    b"\x89PNG\r\n\x1a\n": "Png",
    b"BM": "Bmp",
    b"GIF8": "Gif",
    b"II": "Tiff",
    b"MM": "Tiff",
    b"RIFF": "WebP",
    b"P": "Ppm",
}
"""The decoders of Pillow that are asked, by the first bytes of a file: others run programs (EPS) or are seldom tested.

Each is called by its class. `PIL.Image.open` is not: whoever patches it or registers a decoder there decides what
a stranger's file starts (ultralytics lets it install a package).
"""
BROKEN_IMAGE: Final = (
    OSError, SyntaxError, ValueError, EOFError, TypeError, KeyError, IndexError, struct.error, zlib.error,
    AttributeError, OverflowError, MemoryError, AssertionError, RuntimeError, NotImplementedError, Warning,
)  # fmt: skip
"""What Pillow's decoders raise on damaged files, and on files made to break them."""


@cache
def _decoder(name: str) -> Any:
    """Pillow's class for the files of a format."""
    return getattr(imports.optional(f"PIL.{name}ImagePlugin", extra="lab"), f"{name}ImageFile")


def open_image(data: bytes, *, origin: object, mode: str | None = "RGB") -> "Image":
    """The decoded image in `mode` (a greyscale JPEG becomes RGB), or a DataError that names `origin`.

    Without a mode, the header alone is read: size and mode are known.
    """
    refuse_placeholder(data, origin)
    pillow: Any = imports.optional("PIL.Image", extra="lab")
    most = limit("pixels")
    if most > (pillow.MAX_IMAGE_PIXELS or most):  # the user's word counts for Pillow too
        pillow.MAX_IMAGE_PIXELS = most
    name = next((name for start, name in DECODERS.items() if data.startswith(start)), None)
    if name is None:
        kinds = ", ".join(dict.fromkeys(DECODERS.values())).upper()
        raise DataError(f"{origin} is a damaged image, or not an image: its first bytes match no {kinds} file")
    try:
        image: Image = _decoder(name)(io.BytesIO(data))
        if image.width * image.height > most:
            raise _too_many_pixels(f"{origin} has {image.width:,} x {image.height:,} pixels", most)
        if mode is None:
            return image
        image.load()
        return image if image.mode == mode else image.convert(mode)
    except DataError:
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise _too_many_pixels(f"{origin} is too large ({one_line(error)})", most) from error
    except BROKEN_IMAGE as error:
        raise DataError(f"{origin} is a damaged image ({type(error).__name__}: {one_line(error)})") from error


def _too_many_pixels(what: str, most: int) -> DataError:
    return DataError(f"{what}, and at most {most:,} are decoded: {raise_it('pixels', 10 * most)}")


# --- sound ------------------------------------------------------------------------------------------------------------


def decode_sound(data: bytes, *, origin: object, samples: int) -> tuple["NDArray[np.int16]", int, int]:
    """The first `samples` of a WAV file as (samples, channels), its rate, and how many samples it says it has."""
    soundfile = imports.optional("soundfile", extra="lab")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.channels > CHANNELS:
                raise ValueError(f"{file.channels:,} channels, more than {CHANNELS}")
            return file.read(samples, dtype="int16", always_2d=True), file.samplerate, file.frames
    except (RuntimeError, ValueError, TypeError, OSError, MemoryError, struct.error) as error:
        raise DataError(f"{origin} is a damaged WAV file ({one_line(error)})") from error


CHANNELS: Final = 64


# --- arrays -----------------------------------------------------------------------------------------------------------

ARRAYS: Final = 1_000
"""The most arrays of an .npz."""
BROKEN_NPZ: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, SyntaxError, TypeError, KeyError, IndexError,
    RuntimeError, NotImplementedError, struct.error, OverflowError, MemoryError, AttributeError, RecursionError,
)  # fmt: skip


def read_npz(
    path: Path, *, what: Literal["array", "outputs"] = "array", follow: bool = True
) -> dict[str, "NDArray[Any]"]:
    """The arrays of an .npz file, see `parse_npz`."""
    try:
        file = open_file(path, follow=follow)
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        return parse_npz(file, origin=path, what=what)


def parse_npz(
    file: IO[bytes] | FileIO, *, origin: object, what: Literal["array", "outputs"] = "array"
) -> dict[str, "NDArray[Any]"]:
    """The arrays of an .npz, each as large as its header says, and all together within the limit; none is unpickled."""
    left, arrays = limit(what), {}
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > ARRAYS:
                raise DataError(f"{origin} holds {len(members):,} arrays, but at most {ARRAYS:,} are allowed")
            for member in members:
                array = _read_npy(archive, member, origin, what, left)
                left -= array.nbytes
                arrays[member.filename.removesuffix(".npy")] = array
    except DataError:
        raise
    except BROKEN_NPZ as error:
        raise DataError(f"{origin} is a damaged .npz ({type(error).__name__}): write it again") from error
    return arrays


def _read_npy(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, origin: object, what: str, left: int
) -> "NDArray[Any]":
    import numpy as np  # noqa: PLC0415  most files need none

    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        size = prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0:
            raise DataError(f"{origin} holds {member.filename!r} of shape {shape} and type {dtype}: it is refused")
        if max(size, member.file_size - (1 << 16)) > left:
            most = limit(what)
            raise DataError(f"{origin} declares arrays of more than {most:,} bytes: {raise_it(what, 10 * most)}")
        if size > member.file_size:
            raise DataError(f"{origin} holds {member.filename!r} of shape {shape} and type {dtype}: it is truncated")
        data = file.read(size)
    if len(data) != size:
        raise DataError(f"{origin} ends within {member.filename!r}: it is truncated")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def map_array(path: Path, mode: Literal["c", "r+"] = "c") -> "NDArray[Any]":
    """The array of an .npy file, mapped; ValueError or OSError where it is none. An empty one is made in memory."""
    import numpy as np  # noqa: PLC0415

    with open_file(path) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        size = prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0 or size > os.fstat(file.fileno()).st_size - file.tell():
            raise ValueError(f"it is too small for its shape {shape} and type {dtype}")
    return np.lib.format.open_memmap(path, mode=mode) if size else np.empty(shape, dtype)


def read_mat(data: bytes, name: str, *, sha256: str, origin: object) -> Any:
    """One variable of a MATLAB file that is known: scipy's reader can crash the process on any other."""
    if (digest := hashlib.sha256(data).hexdigest()) != sha256:
        raise DataError(f"{origin} is not the file that is expected (sha256 {digest[:12]}..., not {sha256[:12]}...)")
    loadmat = imports.optional("scipy.io", extra="lab").loadmat
    return loadmat(io.BytesIO(data), squeeze_me=True, variable_names=[name])[name]


# --- weights: safetensors, which hold numbers and JSON; nothing is unpickled ------------------------------------------

HEADER_LIMIT: Final = 1 << 26
WEIGHTS_LIMIT: Final = 1 << 36


def weights_header(path: Path, *, follow: bool = False) -> dict[str, Any]:
    """The header of a safetensors file; OSError or ValueError where there is none."""
    with open_file(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        if not 8 < size <= WEIGHTS_LIMIT:
            raise ValueError(f"it has {size:,} bytes, but must have 9 to {WEIGHTS_LIMIT:,}")
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(HEADER_LIMIT, size - 8):
            raise ValueError(f"its header of {length:,} bytes does not fit a file of {size:,} bytes")
        header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header


def read_weights(path: Path, *, follow: bool = False) -> dict[str, "Tensor"]:
    """The tensors of a safetensors file, on the CPU; OSError or ValueError where it is damaged."""
    weights_header(path, follow=follow)
    safetensors = imports.optional("safetensors", extra="lab")
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  not a dict
    except (safetensors.SafetensorError, RuntimeError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(one_line(error)) from error


# --- archives and compressed files ------------------------------------------------------------------------------------

BROKEN_ARCHIVE: Final = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, lzma.LZMAError, NotImplementedError, RuntimeError,
    ValueError, KeyError, OverflowError, IndexError, AttributeError, TypeError, MemoryError,
)  # fmt: skip
"""What the standard library raises on damaged, encrypted or exotic archives, and on those that lie about themselves."""
TAR_HEADER: Final = 1 << 22
"""The most bytes that tarfile reads at once: a header may ask for all of them."""

Member = tuple[str, IO[bytes] | None, int]
"""Name, content (None for a folder), and where in the archive it starts."""


def members(archive: Path, *, files: int, size: int) -> Iterator[Member]:
    """The files and folders of a zip or tar archive, of which there are at most `files`; links and devices are refused.

    A tar archive is read as far as `size` bytes and the headers go; of a zip archive nothing is read but its members.

    Names and contents are the archive's: who writes them checks both.
    """
    with reading(archive), open_file(archive) as file:
        refuse_placeholder(file.read(512), archive)
        file.seek(0)
        if archive.name.lower().endswith(".zip"):
            yield from _zip_members(file, archive, files)
        else:
            yield from _tar_members(file, archive, files, size)


def _zip_members(raw: FileIO, archive: Path, most: int) -> Iterator[Member]:
    with zipfile.ZipFile(raw) as file:
        if len(file.infolist()) > 2 * most:  # folders count too
            raise DataError(f"{archive} holds {len(file.infolist()):,} members: {raise_it('files', 10 * most)}")
        for info in file.infolist():
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError(f"{archive} holds {info.filename!r}, which is a link or a device: it is refused")
            if info.is_dir():
                yield info.filename, None, info.header_offset
                continue
            with file.open(info) as content:
                yield info.filename, content, info.header_offset


def _tar_members(raw: FileIO, archive: Path, most: int, size: int) -> Iterator[Member]:
    with (
        closing(_Limited(_decompressed(raw), size + (most << 12))) as stream,
        tarfile.open(fileobj=stream, mode="r:") as file,
    ):
        for count, info in enumerate(file):
            if count >= 2 * most:
                raise DataError(f"{archive} holds more than {count:,} members: {raise_it('files', 10 * most)}")
            if not (info.isreg() or info.isdir()):
                raise DataError(f"{archive} holds {info.name!r}, which is a link or a device: it is refused")
            yield info.name, file.extractfile(info) if info.isreg() else None, raw.tell()
        _refuse_truncated(file, archive)


class _Limited(io.RawIOBase):
    """A stream for tarfile, which reads and skips as many bytes at once as a header asks for."""

    def __init__(self, stream: IO[bytes], end: int) -> None:
        self._stream, self._end = stream, end

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= TAR_HEADER:
            raise tarfile.ReadError(f"a header asks for {size:,} bytes, more than {TAR_HEADER:,}")
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if offset > self._end:
            raise tarfile.ReadError(f"a header asks for the byte {offset:,}, beyond {self._end:,}")
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()


def _decompressed(raw: FileIO) -> IO[bytes]:
    head = raw.read(6)
    raw.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if head.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    return lzma.LZMAFile(raw) if head == b"\xfd7zXZ\0" else io.BufferedReader(raw)


def _refuse_truncated(file: tarfile.TarFile, archive: Path) -> None:
    """tarfile takes a cut for the end: an archive ends with zeros, and a compressed stream with its checksum."""
    stream = file.fileobj
    assert stream is not None
    stream.seek(file.offset)
    if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise DataError(f"{archive} has no end-of-archive marker: it is truncated, fetch it again")
    if len(stream.read(CHUNK)) == CHUNK:
        raise DataError(f"{archive} has data long after its last member: it is refused")


def gunzip(data: bytes, *, most: int, origin: object) -> bytes:
    """What a gzip file holds, of at most `most` bytes."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(most + 1)
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{origin} is damaged gzip ({one_line(error)}): fetch it again") from error
    if len(unpacked) > most:
        raise DataError(f"{origin} unpacks to more than {most:,} bytes: it is refused")
    return unpacked
