"""Trials one by one (`run`) against one stack (`run_many`), whole trials in their folders, one thread.

    OMP_NUM_THREADS=1 python benchmarks/stacking.py --rounds 5
    OMP_NUM_THREADS=1 python benchmarks/stacking.py --case xor
    OMP_NUM_THREADS=1 python benchmarks/stacking.py --case lenet --trials 8 --workers 2 --samples 12800

A round trains some of the trials one by one, then the stack of all; figures are seconds per trial and their ratio,
medians over the interleaved rounds. Whole trials: data into memory, training, validation, checkpoints, results; the
ratio of `epochs` is that of training and validation alone. Epochs are cut (see CASES), both sides alike.
Alone is torch's own layout: a single LeNet is a stack of one by default, which `--trials 1` measures.
With `--workers N`, a round also does the same in N processes at the same time: what N workers give against one, and
what stacks give where N workers run; by both clocks, of which that of the processor says how much the workers disturb
each other, whoever else uses the machine.
On a machine that others use, `--clock cpu` counts the seconds of this process instead of those of the clock.
"""

import argparse
import multiprocessing
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

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


def rows(model: str, *units: str, **changes: object) -> tuple[TrialSpec, ...]:
    return tuple(TrialSpec.paper("fashion-mnist", model, unit=unit, **changes) for unit in units)


STANDARD = ("relu", "rbf", "swish", "ada(alpha=0.3)", "leaky_relu", "leaky_ada(alpha=0.9)")
PYRAMIDAL = ("pynrelu", "pynrbf", "pynswish", "pynada(alpha=0.3)", "leaky_pynada(alpha=learn)")
CASES: dict[str, Case] = {
    "mlp-1": Case(grid("mlp-1", epochs=3), alone=2, target=2.2),
    "mlp-2": Case(grid("mlp-2", epochs=3), alone=2, target=2.2),
    "mlp-1-pyramidal": Case(grid("mlp-1", "pynada", epochs=2), alone=2, target=0.0),
    "mlp-approx": Case(seeds("sin", "mlp-approx", 20, epochs=10), alone=4, target=6.0),
    "xor": Case(seeds("xor", "neuron", 200), alone=4, target=50.0),
    "lenet": Case(grid("lenet", epochs=1), alone=1, target=2.2),
    "lenet-rows": Case(rows("lenet", *STANDARD, epochs=1), alone=1, target=0.0),
    "lenet-pyramidal-rows": Case(rows("lenet", *PYRAMIDAL, epochs=1), alone=1, target=0.0),
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


class Worker:
    """A process that trains when it is told to, and says how long it took by both clocks."""

    def __init__(self, case: Case) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(theirs, case), daemon=True)
        self.process.start()


def serve(connection: Any, case: Case) -> None:
    torch.set_num_threads(1)
    how = Execution(threads=1)
    warm_up(case, how)
    connection.send(None)
    while (what := connection.recv()) is not None:
        with tempfile.TemporaryDirectory() as folder:
            starts = [clock() for clock in CLOCKS.values()]
            if what == "alone":
                count = len(
                    [
                        run(s, replace(how, channels_last=False), Path(folder) / s.digest)
                        for s in case.specs[: case.alone]
                    ]
                )
            else:
                count = len(run_many(case.specs, how, [Path(folder) / s.digest for s in case.specs]))
            took = [(clock() - start) / count for clock, start in zip(CLOCKS.values(), starts, strict=True)]
        connection.send(dict(zip(CLOCKS, took, strict=True)))


def beside(case: Case, rounds: int, count: int) -> None:
    """One worker and `count` of them, interleaved: seconds per trial of the slowest one, and the ratios."""
    workers = [Worker(case) for _ in range(count)]
    for worker in workers:
        worker.connection.recv()
    found: dict[tuple[str, str, int], list[float]] = {}
    for number in range(rounds):
        for what in ("alone", "stacked"):
            for some in (workers[:1], workers):
                for worker in some:
                    worker.connection.send(what)
                answers = [worker.connection.recv() for worker in some]
                for clock in CLOCKS:
                    found.setdefault((clock, what, len(some)), []).append(max(a[clock] for a in answers))
        print(
            f"{number + 1}/{rounds}: " + ", ".join(f"{v[-1]:.3f} {' '.join(map(str, k))}" for k, v in found.items()),
            flush=True,
        )
    for clock in CLOCKS:
        columns = {f"{what} {n}": found[clock, what, n] for what in ("alone", "stacked") for n in (1, count)}
        for words, a, b, factor in (
            ("stacks against trials alone, one worker", "alone 1", "stacked 1", 1),
            (f"stacks against trials alone, {count} workers", f"alone {count}", f"stacked {count}", 1),
            (f"{count} workers against one, alone", "alone 1", f"alone {count}", count),
            (f"{count} workers against one, stacked", "stacked 1", f"stacked {count}", count),
        ):
            ratio, low, high = (factor * r for r in bench.ratio(columns, a, b))
            print(f"{clock:4} {words:45} {ratio:5.2f}x ({low:.2f} .. {high:.2f})")
    for worker in workers:
        worker.connection.send(None)
        worker.process.join()


def _epochs(results: list[TrialResult]) -> float:
    """Seconds that the epochs of a trial took, by the clock on the wall; stacked trials record their share."""
    return sum(t["train"] + t["validate"] for r in results for t in r.timings) / len(results)


def warm_up(case: Case, how: Execution) -> None:
    """Imports, caches of the data, first calls."""
    with tempfile.TemporaryDirectory() as folder:
        first = [replace(s, epochs=1) for s in case.specs[:2]]
        run(first[0], replace(how, channels_last=False), Path(folder) / "alone")
        run_many(first, how, [Path(folder) / "a", Path(folder) / "b"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--trials", type=int, help="train the first N trials of a stack only")
    parser.add_argument("--workers", type=int, help="also as many processes at the same time")
    parser.add_argument("--samples", type=int, help="train on so many samples only")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    how = Execution(threads=1)
    lines = []
    for name in arguments.case or CASES:
        case = replace(CASES[name], specs=CASES[name].specs[: arguments.trials])
        if arguments.samples:
            subset = (f"subset(samples={arguments.samples})",)
            case = replace(case, specs=tuple(replace(s, corruptions=subset) for s in case.specs))
        if arguments.workers:
            beside(case, arguments.rounds, arguments.workers)
            continue
        warm_up(case, how)
        columns = measured(name, case, arguments.rounds, how, CLOCKS[arguments.clock])
        ratio, low, high = bench.ratio(columns, "alone", "stacked")
        epochs, *_ = bench.ratio(columns, "epochs alone", "epochs stacked")
        times = f"{median(columns['alone']):8.3f} s alone  {median(columns['stacked']):8.4f} s stacked"
        ratios = f"{ratio:6.2f}x ({low:.2f} .. {high:.2f}), epochs {epochs:.2f}x; wanted {case.target}x"
        lines.append(f"{name:16} {len(case.specs):4} trials  {times}  {ratios}")
    facts = env.facts()
    if lines:
        print("\n".join(lines))
        print(f"seconds ({arguments.clock}) per trial, medians over {arguments.rounds} interleaved rounds, one thread")
    print(f"{facts['processor']}, torch {facts['torch']}, {facts['backend']}")


if __name__ == "__main__":
    main()
