"""Downloading what is free to download: with pooch, checked by sha256, continued where it stopped."""

import zlib
from pathlib import Path
from typing import IO, Any, cast

from apical import extras
from apical.data.archives import Progress
from apical.data.checks import one_line
from apical.errors import DataError

CHUNK = 1 << 16
TIMEOUT = 30


def fetch(url: str, target: Path, *, sha256: str, progress: Progress, gunzip: bool = False) -> None:
    """Download `url` to `target`, which appears only when its (unpacked) bytes have this sha256."""
    pooch = extras.load("pooch", extra="lab")
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
        raise DataError(
            f"{url} is not what it should be: its sha256 is not {sha256[:12]}...; try again later"
        ) from error
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
        requests = extras.load("requests", extra="lab")
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
                for chunk in answer.iter_content(CHUNK):
                    out.write(chunk)
                    have += len(chunk)
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
        with self.part.open("rb") as file:
            while chunk := file.read(CHUNK):
                try:
                    out.write(unpacker.decompress(chunk) if unpacker else chunk)
                except zlib.error as error:
                    raise DataError(f"the download is not the expected gzip file ({error})") from error
