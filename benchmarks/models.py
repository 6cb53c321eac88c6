"""Training steps of whole networks: what a unit costs, interleaved.

python benchmarks/models.py [--rounds 15] [--threads 2] [--csv FILE]

A step is forward, cross-entropy, backward and SGD on one batch of random images. The lines that the project promises:
pyramidal ResNet-18 at most 2.1 times the standard one (64-pixel images, batch 32), PyNADA at most 1.02 times PyNReLU,
ADA within 5 % of ReLU in LeNet and ResNet-18. LeNet with torch's own SiLU stands beside them: an activation that must
save its input and compute an exponential, at its cost in C++.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

from apical import bench, models
from apical.bench.measure import Work

SILU = "torch.nn.SiLU"

# case -> network, dimensions, batch, reference, units compared with it
CASES: dict[str, tuple[str, dict[str, Any], int, str, tuple[str, ...]]] = {
    "lenet, batch 64": ("lenet", {}, 64, "relu", ("ada", "leaky_ada", SILU, "pynrelu", "pynada")),
    "resnet-18, 64 px, batch 32": ("resnet-18", {"stem": 64, "outputs": 200}, 32, "relu", ("ada", "pynrelu", "pynada")),
    "resnet-18 pyramidal, 64 px, batch 32": ("resnet-18", {"stem": 64, "outputs": 200}, 32, "pynrelu", ("pynada",)),
    "resnet-18 longer dendrites, 64 px, batch 32": (
        "resnet-18", {"stem": 64, "outputs": 200, "skip": "apical"}, 32, "pynrelu", ("pynada",)
    ),
}  # fmt: skip


def training_step(model: nn.Module, batch: int) -> Work:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, *model.input_size, generator=generator)
    y = torch.randint(10, (batch,), generator=generator)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def network(name: str, unit: str, dims: dict[str, Any]) -> nn.Module:
    if unit != SILU:
        return models.create(name, unit, seed=0, **dims)
    model = models.create(name, "relu", seed=0, **dims)
    for module in list(model.modules()):
        for key, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, key, nn.SiLU())
    return model


def measured(case: str, rounds: int) -> list[bench.Timing]:
    name, dims, batch, reference, units = CASES[case]
    steps = {unit: training_step(network(name, unit, dims), batch) for unit in (reference, *units)}
    return bench.compare(case, steps, reference=reference, rounds=rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help="the cases whose name contains this")
    parser.add_argument("--csv", type=Path, help="write the timings there too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    timings = []
    for case in CASES:
        if not arguments.only or arguments.only in case:
            timings += measured(case, arguments.rounds)
            print(bench.as_text(timings[-len(CASES[case][4]) - 1 :]), flush=True)
    if arguments.csv:
        arguments.csv.write_text(bench.as_csv(timings), encoding="utf-8")


if __name__ == "__main__":
    main()
