"""XOR with one neuron: from how many random starts do Adam and CMA-ES reach 4/4?

python benchmarks/xor.py [--starts 200] [--update docs/xor.md]

A start is one neuron (two inputs, one output) with Xavier uniform weights and zero bias from `initialise_(seed=k)`,
k = 0, 1, ... A start reaches 4/4 if, after training, the rounded output equals the target for all four points.
"""

import argparse
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from apical import Unit
from apical.nn import evolve_, initialise_

INPUTS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
TARGETS = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
UNITS = ("ada(c=1)", "leaky_ada(c=1)", "rbf", "swish", "pynada(c=1)", "relu")
ADAM = {"lr": 0.01, "steps": 2000}


@dataclass(frozen=True)
class Result:
    """How many of the starts reached 4/4."""

    unit: str
    starts: int
    adam: int
    evolved: int


def neuron(unit: str, seed: int) -> nn.Module:
    made = Unit.parse(unit).layers().linear(2, 1)
    initialise_(made, seed=seed)
    return made


def solved(outputs: Tensor) -> Tensor:
    """True for each start whose four rounded outputs are the targets; `outputs` is (starts, 4, 1)."""
    return (outputs.round() == TARGETS).flatten(1).all(1)


def by_adam(neurons: list[nn.Module]) -> int:
    """Train all starts at once; Adam works on each value by itself, so the starts do not touch each other."""
    parameters, _ = stack_module_state(neurons)
    optimiser = torch.optim.Adam(parameters.values(), lr=ADAM["lr"])
    outputs = vmap(lambda values: functional_call(neurons[0], values, (INPUTS,)))
    for _ in range(ADAM["steps"]):
        optimiser.zero_grad()
        ((outputs(parameters) - TARGETS) ** 2).mean((1, 2)).sum().backward()
        optimiser.step()
    return int(solved(outputs(parameters).detach()).sum())


def by_evolution(neurons: list[nn.Module]) -> int:
    for seed, one in enumerate(neurons):
        evolve_(one, INPUTS, TARGETS, seed=seed)
    with torch.no_grad():
        return int(solved(torch.stack([one(INPUTS) for one in neurons])).sum())


def experiment(starts: int, units: tuple[str, ...] = UNITS) -> list[Result]:
    """Both methods from the same starts, seeds 0 to starts - 1."""
    results = []
    for unit in units:
        neurons = [neuron(unit, seed) for seed in range(starts)]
        results.append(Result(unit, starts, by_adam(neurons), by_evolution(neurons)))
    return results


def as_markdown(results: list[Result]) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("apical", "torch", "cma", "numpy"))
    lines = [
        f"Starts of {results[0].starts} that reach 4/4, seeds 0 to {results[0].starts - 1} "
        f"(Python {platform.python_version()}, {packages}):",
        "",
        f"| neuron | Adam, {ADAM['steps']} steps of {ADAM['lr']} | `evolve_` |",
        "|---|---:|---:|",
    ]
    rows = (
        f"| `{r.unit}` | {r.adam} ({r.adam / r.starts:.1%}) | {r.evolved} ({r.evolved / r.starts:.1%}) |"
        for r in results
    )
    return "\n".join((*lines, *rows))


def update(page: Path, table: str) -> None:
    """Put the table between the page's two marks."""
    start, end = "<!-- benchmarks/xor.py -->\n", "\n<!-- end -->"
    text = page.read_text(encoding="utf-8")
    before, after = text[: text.index(start) + len(start)], text[text.index(end) :]
    page.write_text(before + table + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--update", type=Path, help="a page whose table is replaced")
    arguments = parser.parse_args()
    table = as_markdown(experiment(arguments.starts))
    print(table)
    if arguments.update:
        update(arguments.update, table)


if __name__ == "__main__":
    main()
