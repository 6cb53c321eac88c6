"""Decoding many files with all cores: worker processes write their rows straight into the array on disk.

A worker is `python -m apical.data.workers`: it reads one job a line from stdin, answers one line on stdout, and ends
when stdin does, so that none survives a parent that was killed. No module of the caller is imported a second time.
(joblib's workers take twice as long to start, and 45 seconds after their parent was killed they still ran.)
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apical.data.archives import Progress, silent
from apical.data.audio import decode_wav
from apical.data.images import decode_image
from apical.errors import ApicalError, DataError
from apical.files import map_array, read_file

CHUNK = 128
FEW = 2 * CHUNK
"""Below this many files a second process costs more than it brings."""
FILE_LIMIT = 1 << 28
ENDED = "a decoding process ended without an answer: there may not be enough memory; try --workers 1"


@dataclass(frozen=True)
class Decoding:
    """How files become rows: `kind` image of shape (channels, height, width), or audio of shape (samples,)."""

    kind: str
    shape: tuple[int, ...]
    resize: bool = False

    def __call__(self, data: bytes, origin: object) -> NDArray[Any]:
        if self.kind == "audio":
            return decode_wav(data, origin=origin, samples=self.shape[0])
        channels, height, width = self.shape
        mode = "RGB" if channels == 3 else "L"
        pixels = decode_image(data, origin=origin, size=(height, width), resize=self.resize, mode=mode)
        return pixels.transpose(2, 0, 1)


@dataclass(frozen=True)
class Decoded:
    """What was learned about the files on the way: mean values of the rows, and hashes of the files' bytes."""

    means: NDArray[np.float64]
    digests: list[str]


def decode_files(
    paths: Sequence[Path], target: Path, decoding: Decoding, *, workers: int, progress: Progress = silent
) -> Decoded:
    """Decode file i into row i of the .npy array `target`."""
    jobs: SimpleQueue[int] = SimpleQueue()
    for start in range(0, len(paths), CHUNK):
        jobs.put(start)
    count = 1 if len(paths) < FEW else min(workers, (len(paths) + CHUNK - 1) // CHUNK)
    means, digests = np.zeros(len(paths)), [""] * len(paths)
    done = 0
    for start, answer in _answers(paths, target, decoding, jobs, count):
        means[start : start + CHUNK] = answer["means"]
        digests[start : start + CHUNK] = answer["digests"]
        done += len(answer["means"])
        progress("decoding", done, len(paths))
    return Decoded(means, digests)


def _answers(
    paths: Sequence[Path], target: Path, decoding: Decoding, jobs: "SimpleQueue[int]", count: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    if count == 1:
        array = map_array(target, "r+")
        while not jobs.empty():
            start = jobs.get()
            yield start, _decode(array, decoding, start, paths[start : start + CHUNK])
        return
    answers: SimpleQueue[tuple[int, dict[str, Any]] | Exception] = SimpleQueue()
    with ExitStack() as stack:
        processes = [stack.enter_context(_worker(target, decoding)) for _ in range(count)]
        pool = stack.enter_context(ThreadPoolExecutor(count))
        for process in processes:
            stack.callback(process.kill)  # runs first of all: frees threads that wait for an answer
            pool.submit(_feed, process, paths, jobs, answers)
        for _ in range(0, len(paths), CHUNK):
            answer = answers.get()
            if isinstance(answer, Exception):
                raise answer
            yield answer


def _worker(target: Path, decoding: Decoding) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(
        [sys.executable, "-m", "apical.data.workers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment,
    )
    _send(process, {"target": str(target), **asdict(decoding)})
    return process


def _feed(
    process: "subprocess.Popen[str]",
    paths: Sequence[Path],
    jobs: "SimpleQueue[int]",
    answers: "SimpleQueue[tuple[int, dict[str, Any]] | Exception]",
) -> None:
    """Hand jobs to one worker until none is left."""
    try:
        while True:
            start = jobs.get_nowait()
            _send(process, {"start": start, "paths": [str(p) for p in paths[start : start + CHUNK]]})
            answers.put((start, _receive(process)))
    except Empty:
        pass
    except Exception as error:
        answers.put(error)


def _send(process: "subprocess.Popen[str]", message: dict[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
    except BrokenPipeError as error:
        raise DataError(ENDED) from error


def _receive(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise DataError(ENDED)
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise DataError(answer["error"])
    return answer


def _decode(array: NDArray[Any], decoding: Decoding, start: int, paths: Sequence[Path]) -> dict[str, Any]:
    digests = []
    for row, path in enumerate(paths, start=start):
        data = read_file(path, limit=FILE_LIMIT)
        digests.append(hashlib.sha256(data).hexdigest())
        array[row] = decoding(data, path)
    block = array[start : start + len(paths)]
    return {"means": block.reshape(len(paths), -1).mean(1).tolist(), "digests": digests}


def main() -> None:
    """The worker's side. Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hello = json.loads(sys.stdin.readline())
    array = map_array(Path(hello.pop("target")), "r+")
    decoding = Decoding(hello["kind"], tuple(hello["shape"]), hello["resize"])
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = _decode(array, decoding, job["start"], [Path(p) for p in job["paths"]])
        except ApicalError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
