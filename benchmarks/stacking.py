"""Trials one by one (`run`) against one stack (`run_many`), whole trials in their folders, one thread.

    OMP_NUM_THREADS=1 python benchmarks/stacking.py --rounds 5
    OMP_NUM_THREADS=1 python benchmarks/stacking.py --case xor

A round trains some of the trials one by one, then the stack of all; figures are seconds per trial and their ratio,
medians over the interleaved rounds. Whole trials: data into memory, training, validation, checkpoints, results; the
ratio of `epochs` is that of training and validation alone. Epochs are cut (see CASES), both sides alike.
Alone is torch's own layout: a single LeNet is a stack of one by default, which `--trials 1` measures.
On a machine that others use, `--clock cpu` counts the seconds of this process instead of those of the clock.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import torch

from apical import bench, env
from apical.train import Execution, TrialResult, TrialSpec, run, run_many

GRID = tuple(round(0.1 * i, 1) for i in range(1, 11))


@dataclass(frozen=True)
class Case:
    """A stack, how many of its trials are trained alone for comparison, and the ratio it should reach."""

    specs: tuple[TrialSpec, ...]
    alone: int
    target: float


def grid(model: str, unit: str = "ada", **changes: object) -> tuple[TrialSpec, ...]:
    return tuple(TrialSpec.paper("fashion-mnist", model, unit=f"{unit}(alpha={a})", **changes) for a in GRID)


def seeds(data: str, model: str, count: int, **changes: object) -> tuple[TrialSpec, ...]:
    return tuple(TrialSpec.paper(data, model, unit="ada", seed=s, **changes) for s in range(count))


CASES: dict[str, Case] = {
    "mlp-1": Case(grid("mlp-1", epochs=3), alone=2, target=2.2),
    "mlp-2": Case(grid("mlp-2", epochs=3), alone=2, target=2.2),
    "mlp-1-pyramidal": Case(grid("mlp-1", "pynada", epochs=2), alone=2, target=0.0),
    "mlp-approx": Case(seeds("sin", "mlp-approx", 20, epochs=10), alone=4, target=6.0),
    "xor": Case(seeds("xor", "neuron", 200), alone=4, target=50.0),
    "lenet": Case(grid("lenet", epochs=1), alone=1, target=2.2),
}


CLOCKS = {"wall": perf_counter, "cpu": process_time}


def measured(name: str, case: Case, rounds: int, how: Execution, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds per trial, whole and of its epochs, alone and stacked, of each round."""
    found: dict[str, list[float]] = {"alone": [], "stacked": [], "epochs alone": [], "epochs stacked": []}
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            part = [case.specs[(number * case.alone + i) % len(case.specs)] for i in range(case.alone)]
            folders = [Path(folder) / str(i) for i in range(len(case.specs))]
            start = clock()
            alone = [run(s, replace(how, channels_last=False), Path(folder) / f"alone{i}") for i, s in enumerate(part)]
            middle = clock()
            stacked = run_many(case.specs, how, folders)
            end = clock()
        found["alone"].append((middle - start) / len(alone))
        found["stacked"].append((end - middle) / len(stacked))
        found["epochs alone"].append(_epochs(alone))
        found["epochs stacked"].append(_epochs(stacked))
        print(f"{name} {number + 1}/{rounds}: " + ", ".join(f"{v[-1]:.4f} s {k}" for k, v in found.items()), flush=True)
    return found


def _epochs(results: list[TrialResult]) -> float:
    """Seconds that the epochs of a trial took, by the clock on the wall; stacked trials record their share."""
    return sum(t["train"] + t["validate"] for r in results for t in r.timings) / len(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--trials", type=int, help="train the first N trials of a stack only")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    how = Execution(threads=1)
    lines = []
    for name in arguments.case or CASES:
        case = replace(CASES[name], specs=CASES[name].specs[: arguments.trials])
        with tempfile.TemporaryDirectory() as folder:  # imports, caches of the data, first calls
            first = [replace(s, epochs=1) for s in case.specs[:2]]
            run(first[0], replace(how, channels_last=False), Path(folder) / "alone")
            run_many(first, how, [Path(folder) / "a", Path(folder) / "b"])
        columns = measured(name, case, arguments.rounds, how, CLOCKS[arguments.clock])
        ratio, low, high = bench.ratio(columns, "alone", "stacked")
        epochs, *_ = bench.ratio(columns, "epochs alone", "epochs stacked")
        times = f"{median(columns['alone']):8.3f} s alone  {median(columns['stacked']):8.4f} s stacked"
        ratios = f"{ratio:6.2f}x ({low:.2f} .. {high:.2f}), epochs {epochs:.2f}x; wanted {case.target}x"
        lines.append(f"{name:16} {len(case.specs):4} trials  {times}  {ratios}")
    print("\n".join(lines))
    facts = env.facts()
    print(f"seconds ({arguments.clock}) per trial, medians over {arguments.rounds} interleaved rounds, one thread")
    print(f"{facts['processor']}, torch {facts['torch']}, {facts['backend']}")


if __name__ == "__main__":
    main()
