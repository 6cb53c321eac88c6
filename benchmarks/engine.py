"""How busy the local engine keeps the cores: python benchmarks/engine.py [--no-stack]

Runs the MLP-1 part of Table 4 (quick variant, real Fashion-MNIST) with one worker for each core. Two figures: the CPU
time of all its processes over the time that passed while all workers had something to do, which other programs on the
machine lower; and the share of that time that workers spent inside epochs, which they do not.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from apical import study
from apical.study.state import Progress, read_facts

TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-stack", action="store_true")
    parser.add_argument("--part", default="mlp-1")
    arguments = parser.parse_args()
    wanted = study.load("table-fashion-mlp", quick=True, sets=[f"only_parts=['{arguments.part}']"])
    samples: list[tuple[float, float, float]] = []

    def note(now: Progress) -> None:
        if now.settled and now.states["planned"] > 2:  # all workers have something to do
            samples.append((time.perf_counter(), processor_seconds(), inside_epochs(Path(folder) / "s")))

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        results = study.run(wanted, Path(folder) / "s", stack=not arguments.no_stack, progress=note)
        whole = time.perf_counter() - start
    (begun, before, trained_before), (ended, after, trained_after) = samples[0], samples[-1]
    cores = len(os.sched_getaffinity(0))
    share = (after - before) / (ended - begun) / cores
    trials = sum(results.states.values())
    print(f"{trials} trials in {whole:.1f} s with {cores} workers; {100 * share:.1f} % of {cores} cores were busy")
    print(f"over {ended - begun:.1f} s in the middle; other programs on the machine lower this figure")
    inside = (trained_after - trained_before) / (ended - begun) / cores
    print(f"{100 * inside:.1f} % of the workers' time was spent inside epochs of trials that were finished meanwhile")


def inside_epochs(folder: Path) -> float:
    """Seconds that the finished trials spent in training and validation."""
    return sum(read_facts(path).seconds for path in (folder / "trials").iterdir() if not path.name.startswith("."))


def processor_seconds() -> float:
    """CPU seconds of this process and of its living children."""
    own = os.getpid()
    ours = (path for path in Path("/proc").iterdir() if path.name.isdigit() and _is_ours(path.name, own))
    return sum(map(_seconds, ours))


def _is_ours(name: str, own: int) -> bool:
    fields = _fields(Path("/proc") / name)
    return bool(fields) and own in (int(name), int(fields[1]))


def _seconds(folder: Path) -> float:
    fields = _fields(folder)
    return (int(fields[11]) + int(fields[12])) / TICK if fields else 0.0


def _fields(folder: Path) -> list[str]:
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    main()
