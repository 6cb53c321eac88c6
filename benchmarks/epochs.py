"""Seconds per epoch of every unit, relative to ReLU, in four networks of the paper.

python benchmarks/epochs.py [--rounds 15] [--threads 1] [--only lenet] [--csv FILE]

A step of the paper's protocol (its loss, its optimiser) on random data of the right shape, all units interleaved; an
epoch is as many steps as the data set has training batches. Reading data, validation and checkpoints are left out: they
cost every unit the same. VGG-9 and char-CNN are measured on a share of their batch, since a whole takes seconds: the
optimiser's step, once for each share, then counts for more than its due.
"""

import argparse
from collections.abc import Mapping
from math import ceil
from pathlib import Path

import numpy as np
import torch

from apical import bench
from apical.bench.measure import Work
from apical.data.registry import RECIPES
from apical.study.cost import sketch
from apical.train import TrialSpec, losses
from apical.train.optimisation import optimiser_of
from apical.train.session import build, dims_for

REFERENCE = "relu"
UNITS = (
    "relu", "rbf", "swish", "ada", "ada(alpha=learn)", "leaky_relu", "leaky_ada",
    "pynrelu", "pynrbf", "pynswish", "pynada", "pynada(alpha=learn)", "leaky_pynada",
)  # fmt: skip
NETWORKS = {
    "mlp-1": ("fashion-mnist", 64),
    "lenet": ("fashion-mnist", 64),
    "vgg-9": ("fashion-mnist", 32),
    "char-cnn": ("moroco", 4),
}
"""Network -> its data, and how many samples of a batch are measured."""


TEXT = "{network:9} {unit:20} {seconds_per_epoch:>9} s  {ratio_to_relu} ({low} to {high})"


def step_of(spec: TrialSpec, samples: int) -> Work:
    """A training step on that many samples."""
    data = sketch(spec)
    network = build(spec, dims_for(spec, data)).train()
    optimiser, loss = optimiser_of(spec, network), losses.find(spec.loss).compute
    rows = np.arange(samples) % len(data.train)
    inputs, labels = data.train.inputs(rows), torch.from_numpy(data.train.labels[rows])

    def step() -> None:
        optimiser.zero_grad()
        loss(network(inputs), labels).backward()
        optimiser.step()

    return step


def measured(model: str, rounds: int) -> tuple[TrialSpec, list[bench.Timing]]:
    """One line for each unit: the time of an epoch, and its ratio to ReLU's."""
    data, samples = NETWORKS[model]
    spec = TrialSpec.paper(data, model)
    steps = {unit: step_of(TrialSpec.paper(data, model, unit=unit), samples) for unit in UNITS}
    return spec, bench.compare(model, steps, reference=REFERENCE, rounds=rounds)


def epoch(spec: TrialSpec, samples: int, microseconds: float) -> float:
    """Seconds of an epoch of whole batches, from those of a step on `samples` of them."""
    batches = ceil(RECIPES[spec.data].counts[0] / spec.batch)
    return batches * (spec.batch / samples) * microseconds / 1e6


def lines(spec: TrialSpec, timings: list[bench.Timing]) -> list[Mapping[str, object]]:
    """The table of one network."""
    samples = NETWORKS[spec.model][1]
    return [
        {
            "network": spec.model,
            "unit": t.candidate,
            "seconds_per_epoch": f"{epoch(spec, samples, t.microseconds):.4g}",
            "ratio_to_relu": f"{t.ratio:.3f}",
            "low": f"{t.low:.3f}",
            "high": f"{t.high:.3f}",
            "rounds": t.rounds,
            "samples_of_a_batch": f"{samples} of {spec.batch}",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        for t in timings
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=NETWORKS, help="one network")
    parser.add_argument("--csv", type=Path, help="write the table there too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    table: list[Mapping[str, object]] = []
    for model in [arguments.only] if arguments.only else NETWORKS:
        for line in lines(*measured(model, arguments.rounds)):
            print(
                "{network:9} {unit:20} {seconds_per_epoch:>9} s  {ratio_to_relu} ({low} to {high})".format(**line),
                flush=True,
            )
            table.append(line)
    if arguments.csv:
        text = [",".join(table[0]), *(",".join(map(str, line.values())) for line in table)]
        arguments.csv.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
