"""A training step of a network in every layout and precision: python benchmarks/layouts.py [--only lenet] [--rounds 9]

torch's default layout, channels-last, both in bfloat16 (autocast, an option: `--precision bf16-mixed`), and for LeNet a
stack of one. Processor seconds of one thread, interleaved, medians with their range; GFLOP/s by the operations of the
convolutions and products, beside those of a product of two large matrices, which no step can pass.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time

import torch
from torch.utils.flop_counter import FlopCounterMode

from apical import env
from apical.study.cost import sketch
from apical.train import TrialSpec, losses
from apical.train.optimisation import optimiser_of
from apical.train.session import build, dims_for
from apical.train.stack import faster_as_stack
from apical.train.stack.activations import StackedAdam
from apical.train.stack.network import StackedNetwork

CASES = {
    "lenet": TrialSpec.paper("fashion-mnist", "lenet", unit="ada"),
    "vgg-9": TrialSpec.paper("fashion-mnist", "vgg-9", unit="ada"),
    "resnet-18": TrialSpec.paper("tiny-imagenet", "resnet-18", unit="ada", batch=16),
}
WAYS = {
    "torch": (torch.contiguous_format, False),
    "channels-last": (torch.channels_last, False),
    "torch, bfloat16": (torch.contiguous_format, True),
    "channels-last, bfloat16": (torch.channels_last, True),
}
SIDE = 1024


def alone(spec: TrialSpec, layout: torch.memory_format, half: bool) -> Callable[[], object]:
    data = sketch(spec)
    network = build(spec, dims_for(spec, data)).train().to(memory_format=layout)
    optimiser, loss = optimiser_of(spec, network), losses.find(spec.loss).compute
    inputs, labels = batch(spec)
    inputs = inputs.contiguous(memory_format=layout)

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            outputs = network(inputs)
        loss(outputs.float(), labels).backward()
        optimiser.step()

    return step


def stacked(spec: TrialSpec) -> Callable[[], object]:
    networks = [build(spec, dims_for(spec, sketch(spec)))]
    stack = StackedNetwork(networks)
    optimiser, loss = StackedAdam([spec], networks, stack.parameters), losses.find(spec.loss)
    inputs, labels = batch(spec)

    def step() -> None:
        stack.backward(loss.gradients(stack.forward(inputs, keep=True), labels)[1])
        optimiser.step(0)

    return step


def batch(spec: TrialSpec) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [i % 8 for i in range(spec.batch)]
    data = sketch(spec).train
    return data.inputs(rows), torch.from_numpy(data.labels[rows])


def seconds(work: Callable[[], object], least: float = 0.05) -> float:
    """Of the processor, for one call; short ones are repeated."""
    start, count = process_time(), 0
    while process_time() - start < least:
        work()
        count += 1
    return (process_time() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=CASES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    matrix = torch.rand(SIDE, SIDE)
    for name in [arguments.only] if arguments.only else CASES:
        spec = CASES[name]
        steps = {way: alone(spec, *how) for way, how in WAYS.items()}
        with FlopCounterMode(display=False) as counted:
            steps["torch"]()
        if faster_as_stack(spec):
            steps["stack of one"] = stacked(spec)
        works = {**steps, "product of matrices": lambda: matrix @ matrix}
        operations = dict.fromkeys(steps, counted.get_total_flops()) | {"product of matrices": 2 * SIDE**3}
        found: dict[str, list[float]] = {way: [] for way in works}
        for _ in range(arguments.rounds + 1):  # the first one warms up
            for way, work in works.items():
                found[way].append(seconds(work))
        for way, (_, *times) in found.items():
            ratios = sorted(a / b for a, b in zip(found["torch"][1:], times, strict=True))
            print(
                f"{name:10} {way:25} {1e3 * median(times):9.2f} ms  {median(ratios):5.2f}x ({ratios[0]:.2f} .. "
                f"{ratios[-1]:.2f})  {operations[way] / median(times) / 1e9:6.1f} GFLOP/s",
                flush=True,
            )
    facts = env.facts()
    print(f"processor seconds of a step, medians of {arguments.rounds} interleaved rounds, one thread; above 1: faster")
    print(f"{facts['processor']}, torch {facts['torch']}")


if __name__ == "__main__":
    main()
