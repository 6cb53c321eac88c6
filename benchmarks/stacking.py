"""Trials one by one (`run`) against one stack (`run_many`), whole trials in their folders, one thread.

    OMP_NUM_THREADS=1 python benchmarks/stacking.py --rounds 5
    OMP_NUM_THREADS=1 python benchmarks/stacking.py --case xor

A round trains the stack once, then `alone` of its trials one by one; figures are seconds per trial and their ratio,
medians over the interleaved rounds. Epochs are cut (see CASES), both sides alike; data are loaded before.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from apical import bench, env
from apical.train import Execution, TrialSpec, run, run_many

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
    "mlp-1": Case(grid("mlp-1", epochs=2), alone=2, target=2.2),
    "mlp-2": Case(grid("mlp-2", epochs=2), alone=2, target=2.2),
    "mlp-1-pyramidal": Case(grid("mlp-1", "pynada", epochs=2), alone=2, target=0.0),
    "mlp-approx": Case(seeds("sin", "mlp-approx", 20, epochs=10), alone=4, target=6.0),
    "xor": Case(seeds("xor", "neuron", 200), alone=4, target=50.0),
    "lenet": Case(grid("lenet", epochs=1), alone=1, target=1.2),
}


def measured(name: str, case: Case, rounds: int, how: Execution) -> list[tuple[float, float]]:
    """Seconds per trial, alone and stacked, of each round."""
    found = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            part = [case.specs[(number * case.alone + i) % len(case.specs)] for i in range(case.alone)]
            alone = _seconds(lambda: [run(s, how, Path(folder) / f"alone{i}") for i, s in enumerate(part)])  # noqa: B023
            folders = [Path(folder) / str(i) for i in range(len(case.specs))]
            stacked = _seconds(lambda: run_many(case.specs, how, folders))  # noqa: B023
        found.append((alone / case.alone, stacked / len(case.specs)))
        print(f"{name} {number + 1}/{rounds}: {found[-1][0]:.3f} s alone, {found[-1][1]:.4f} s stacked", flush=True)
    return found


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--no-dynamics", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    how = Execution(threads=1, dynamics=not arguments.no_dynamics)
    lines = []
    for name in arguments.case or CASES:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:  # imports, caches of the data, first calls
            run_many([replace(s, epochs=1) for s in case.specs[:2]], how, [Path(folder) / "a", Path(folder) / "b"])
        times = measured(name, case, arguments.rounds, how)
        columns = {"alone": [a for a, _ in times], "stacked": [s for _, s in times]}
        ratio, low, high = bench.ratio(columns, "alone", "stacked")
        lines.append(
            f"{name:16} {len(case.specs):4} trials  {median(columns['alone']):8.3f} s alone  "
            f"{median(columns['stacked']):8.4f} s stacked  {ratio:6.2f}x ({low:.2f} .. {high:.2f}) for {case.target}x"
        )
    print("\n".join(lines))
    facts = env.facts()
    print(f"seconds per trial, medians over {arguments.rounds} interleaved rounds, one thread")
    print(f"{facts['processor']}, torch {facts['torch']}, {facts['backend']}")


if __name__ == "__main__":
    main()
