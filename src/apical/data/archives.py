"""Unpack untrusted archives: only plain files and folders, inside the target, within size limits; or nothing at all."""

import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from apical import files, imports
from apical.errors import DataError
from apical.files import CHUNK, one_line
from apical.limits import limit, raise_it

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how far it is, and how far it goes."""


def silent(_what: str, _done: int, _total: int) -> None:
    """The progress of someone who does not look."""


@dataclass
class Budget:
    """How much archives may write in all; their own headers are not believed. Users may raise both limits."""

    bytes: int = field(default_factory=lambda: limit("unpacked"))
    files: int = field(default_factory=lambda: limit("files"))
    written: int = 0
    names: set[tuple[Path, str]] = field(default_factory=set)

    def take_file(self, name: str, archive: Path) -> None:
        if (archive, name) in self.names:
            raise DataError(f"{archive} holds {name!r} twice: it is refused")
        self.names.add((archive, name))
        if len(self.names) > self.files:
            raise DataError(f"{archive} holds more than {self.files:,} files: {raise_it('files', 10 * self.files)}")

    def take_bytes(self, count: int, archive: Path) -> None:
        self.written += count
        if self.written > self.bytes:
            raise DataError(
                f"{archive} unpacks to more than {self.bytes:,} bytes: {raise_it('unpacked', 10 * self.bytes)}"
            )


def is_archive(path: Path) -> bool:
    """Whether the name is that of an archive that `unpack` reads."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def unpack(archive: Path, into: Path, *, budget: Budget | None = None, progress: Progress = silent) -> None:
    """Unpack a zip or tar archive into the new folder `into`, or raise DataError and leave nothing."""
    budget = Budget() if budget is None else budget
    into.mkdir(parents=True)
    try:
        _unpack(archive, into, budget, progress)
    except files.BROKEN_ARCHIVE as error:
        shutil.rmtree(into, ignore_errors=True)
        if isinstance(error, DataError):
            raise
        raise DataError(f"{archive} is a damaged archive ({one_line(error)}): fetch it again") from error
    except OSError as error:
        shutil.rmtree(into, ignore_errors=True)
        raise DataError(f"cannot unpack {archive} into {into}: {error.strerror or one_line(error)}") from error
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise


def _unpack(archive: Path, into: Path, budget: Budget, progress: Progress) -> None:
    total = archive.stat().st_size
    for name, content, position in files.members(archive, files=budget.files, size=budget.bytes):
        target = into.joinpath(*safe_parts(name, archive))
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        if target == into:
            raise DataError(f"{archive} holds the member {name!r}, which has no file name: it is refused")
        budget.take_file(name, archive)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as out:
            while chunk := content.read(CHUNK):
                budget.take_bytes(len(chunk), archive)
                out.write(chunk)
        progress(f"unpacking {archive.name}", min(position, total), total)


def safe_parts(name: str, archive: object) -> tuple[str, ...]:
    """The parts of a member's relative path; whatever could leave the target folder is refused."""
    path = PurePosixPath(name)
    foreign = any(c in name for c in "\\\0") or ":" in name.split("/", maxsplit=1)[0]
    bad = path.is_absolute() or ".." in path.parts or foreign
    if bad:
        raise DataError(f"{archive} holds the member {name!r}, which points outside its folder: it is refused")
    return path.parts


# Downloading what is free to download: with pooch, checked by sha256, continued where it stopped.

DOWNLOAD_CHUNK = 1 << 16
TIMEOUT = 30
LARGEST = 1 << 30
"""Bytes, packed and unpacked; what is downloaded has a twentieth of that."""


def fetch(url: str, target: Path, *, sha256: str, progress: Progress, gunzip: bool = False) -> None:
    """Download `url` to `target`, which appears only when its (unpacked) bytes have this sha256."""
    pooch = imports.optional("pooch", extra="lab")
    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(
            url,
            known_hash=f"sha256:{sha256}",
            path=target.parent,
            fname=target.name,
            downloader=Resumable(target.with_name(target.name + ".part"), progress, gunzip=gunzip),
        )
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{url} has the wrong sha256 (expected {sha256[:12]}...): try again later") from error
    except OSError as error:
        raise DataError(f"cannot download {url} to {target.parent}: {one_line(error)}") from error


class Resumable:
    """A downloader for pooch: keeps what arrived in a .part file and asks the server for the rest."""

    def __init__(self, part: Path, progress: Progress, *, gunzip: bool) -> None:
        self.part, self.progress, self.gunzip = part, progress, gunzip

    def __call__(self, url: str, output_file: str | Path | IO[bytes], _pooch: Any) -> None:
        self._download(url)
        try:
            self._deliver(output_file)
        finally:
            self.part.unlink()  # whole or damaged: nothing to continue

    def _download(self, url: str) -> None:
        requests = imports.optional("requests", extra="lab")
        have = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            if answer.status_code == 416:  # nothing is left to ask for
                return
            answer.raise_for_status()
            if answer.status_code != 206:
                have = 0
            total = have + int(answer.headers.get("Content-Length", 0))
            with self.part.open("ab" if have else "wb") as out:
                for chunk in answer.iter_content(DOWNLOAD_CHUNK):
                    out.write(chunk)
                    have += len(chunk)
                    if have > LARGEST:
                        raise DataError(f"{url} sends more than {LARGEST:,} bytes: it is refused")
                    self.progress(f"downloading {url.rsplit('/', 1)[-1]}", have, max(total, have))
        if have < total:
            raise DataError(f"{url} stopped after {have:,} of {total:,} bytes: run the command again to continue")

    def _deliver(self, output_file: str | Path | IO[bytes]) -> None:
        if hasattr(output_file, "write"):
            self._copy(cast("IO[bytes]", output_file))
            return
        with Path(cast("str", output_file)).open("wb") as out:
            self._copy(out)

    def _copy(self, out: IO[bytes]) -> None:
        unpacker = zlib.decompressobj(wbits=31) if self.gunzip else None
        done = 0
        with files.open_file(self.part) as file:
            while chunk := file.read(DOWNLOAD_CHUNK):
                try:
                    done += out.write(unpacker.decompress(chunk) if unpacker else chunk)
                except zlib.error as error:
                    raise DataError(f"the download is not the expected gzip file ({error})") from error
                if done > LARGEST:
                    raise DataError(f"the download unpacks to more than {LARGEST:,} bytes: it is refused")
