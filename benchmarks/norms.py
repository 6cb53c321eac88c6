"""Batch norm and activation in one kernel against torch's, in both layouts: python benchmarks/norms.py [--width 8]

A training step of ResNet-18 on images of 64 pixels, small stem, Adam. "torch" is torch's batch norm, then the
activation or the pyramidal sum; "fused" is our kernel (kernels/norm.h) for all of them. Processor seconds of one
thread, interleaved, medians with their range.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from apical import env, models

UNITS = ("relu", "ada(alpha=0.1)", "pynrelu", "pynada(alpha=0.5)")
LAYOUTS = {"torch's layout": torch.contiguous_format, "channels-last": torch.channels_last}


def step_of(unit: str, layout: torch.memory_format, width: int, batch: int, *, fused: bool) -> Callable[[], object]:
    network = models.create("resnet-18", unit, seed=0, stem=64, outputs=2, width=width).train().to(memory_format=layout)
    if not fused:
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):  # who listens to a norm gets torch's
                module.register_forward_hook(lambda *_: None)
    optimiser = torch.optim.Adam(network.parameters(), fused=True)
    inputs = torch.randn(batch, 3, 64, 64).contiguous(memory_format=layout)
    labels = torch.arange(batch) % 2

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(network(inputs), labels).backward()
        optimiser.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--unit", action="append")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for unit in arguments.unit or UNITS:
        steps = {
            (layout, norm): step_of(unit, how, arguments.width, arguments.batch, fused=norm == "fused")
            for layout, how in LAYOUTS.items()
            for norm in ("torch", "fused")
        }
        times: dict[tuple[str, str], list[float]] = {way: [] for way in steps}
        for _ in range(arguments.rounds + 1):  # the first one warms up
            for way, step in steps.items():
                start = process_time()
                step()
                times[way].append(process_time() - start)
        reference = times[next(iter(steps))][1:]
        for (layout, norm), (_, *own) in times.items():
            ratios = sorted(a / b for a, b in zip(reference, own, strict=True))
            print(
                f"{unit:18} {layout:15} {norm:6} {1e3 * median(own):8.1f} ms  "
                f"{median(ratios):.2f}x ({ratios[0]:.2f} .. {ratios[-1]:.2f})",
                flush=True,
            )
    facts = env.facts()
    print(f"ResNet-18 of width {arguments.width}, batch {arguments.batch}, one thread, {arguments.rounds} rounds")
    print(f"{facts['processor']}, torch {facts['torch']}")


if __name__ == "__main__":
    main()
