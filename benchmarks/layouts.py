"""A training step of a network in every layout and precision: python benchmarks/layouts.py [--only lenet] [--rounds 9]

torch's default layout, channels-last, both in bfloat16 (autocast, an option: `--precision bf16-mixed`), channels-last
with Winograd's convolutions, and for LeNet a stack of one. Processor seconds of one thread, interleaved, medians with
their range; GFLOP/s by the operations of torch's convolutions and products, of which Winograd does fewer. What bounds
them stands beside: the network's convolutions alone, forward and backward on random tensors of their shapes, and a
product of two large matrices. `--layers` measures each convolution that Winograd serves, in torch's layout and by
Winograd.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from time import process_time

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from apical import env
from apical.kernels import winograd
from apical.models.registry import find
from apical.study.cost import sketch
from apical.train import Execution, TrialSpec, losses
from apical.train.optimisation import optimiser_of
from apical.train.session import build, dims_for, use_winograd_
from apical.train.stack import faster_as_stack
from apical.train.stack.activations import StackedAdam
from apical.train.stack.network import StackedNetwork

CASES = {
    "lenet": TrialSpec.paper("fashion-mnist", "lenet", unit="ada"),
    "vgg-9": TrialSpec.paper("fashion-mnist", "vgg-9", unit="ada"),
    "resnet-18": TrialSpec.paper("tiny-imagenet", "resnet-18", unit="ada", batch=16),
    "resnet-18 of width 8": TrialSpec.paper("tiny-imagenet", "resnet-18", unit="ada", batch=64, dims={"width": 8}),
}
LAYOUTS = {"torch": torch.contiguous_format, "channels-last": torch.channels_last}
WAYS = {
    "torch": (torch.contiguous_format, False),
    "channels-last": (torch.channels_last, False),
    "torch, bfloat16": (torch.contiguous_format, True),
    "channels-last, bfloat16": (torch.channels_last, True),
}
SIDE = 1024


def alone(
    spec: TrialSpec, layout: torch.memory_format, half: bool, *, by_winograd: bool = False
) -> Callable[[], object]:
    data = sketch(spec)
    network = build(spec, dims_for(spec, data)).train().to(memory_format=layout)
    if by_winograd:
        use_winograd_(network, Execution(winograd=True))
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


def convolutions(spec: TrialSpec, layout: torch.memory_format) -> Callable[[], object]:
    """Every convolution of a step, forward and backward, and nothing else; of the first, x needs no gradient."""
    network = build(spec, dims_for(spec, sketch(spec))).to(memory_format=layout)
    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    calls: list[tuple[nn.Conv2d, Tensor, Tensor]] = []

    def remember(layer: nn.Conv2d, inputs: tuple[Tensor], _: object) -> None:
        x = torch.randn(inputs[0].shape).contiguous(memory_format=layout).requires_grad_(bool(calls))
        y = layer._conv_forward(x, layer.weight, layer.bias)  # without what a pyramidal layer adds to it
        calls.append((layer, x, torch.randn_like(y)))

    hooks = [layer.register_forward_hook(remember) for layer in layers]
    network(batch(spec)[0].contiguous(memory_format=layout))
    for hook in hooks:
        hook.remove()

    def step() -> None:
        for layer, x, g in calls:
            wanted = [t for t in (x, layer.weight, layer.bias) if t is not None and t.requires_grad]
            torch.autograd.grad(layer._conv_forward(x, layer.weight, layer.bias), wanted, g)

    return step


def layers(name: str, spec: TrialSpec, rounds: int) -> None:
    """Each convolution that Winograd serves, forward and backward on random tensors; shapes that repeat, once."""
    network, shapes = build(spec, dims_for(spec, sketch(spec))), dict[tuple[int, ...], None]()
    for layer in network.modules():
        if winograd.suits(layer):
            layer.register_forward_hook(
                lambda own, inputs, _: shapes.setdefault((*inputs[0].shape[:3], own.weight.size(0)))
            )
    network(batch(spec)[0])
    for n, channels, side, outputs in shapes:
        shape = (n, channels, side, side), (outputs, channels, 3, 3), (outputs,), (n, outputs, side, side)
        torch_s = one_layer(shape, partial(torch.conv2d, padding=1), torch.contiguous_format)
        ours = one_layer(shape, winograd.conv2d, torch.channels_last)
        pairs = [(seconds(torch_s), seconds(ours)) for _ in range(rounds + 1)][1:]  # the first one warms up
        ratios, operations = sorted(a / b for a, b in pairs), counted(torch_s)
        first, second = (median(times) for times in zip(*pairs, strict=True))
        print(
            f"{name:20} {channels:3} to {outputs:4}, {side:2} px: torch {1e3 * first:7.2f} ms, "
            f"{operations / first / 1e9:5.1f} GFLOP/s; Winograd {1e3 * second:7.2f} ms, "
            f"{operations / second / 1e9:5.1f} GFLOP/s  {median(ratios):5.2f}x ({ratios[0]:.2f} .. {ratios[-1]:.2f})",
            flush=True,
        )


def one_layer(
    shapes: tuple[tuple[int, ...], ...], function: Callable[..., Tensor], layout: torch.memory_format
) -> Callable[[], object]:
    """Forward and backward on random tensors of these shapes: x, weight, bias, and the gradient of the result."""
    *inputs, g = (torch.randn(s).to(memory_format=layout if len(s) == 4 else torch.preserve_format) for s in shapes)
    for tensor in inputs:
        tensor.requires_grad_()
    return lambda: torch.autograd.grad(function(*inputs), inputs, g)


def stacked(spec: TrialSpec) -> Callable[[], object]:
    networks = [build(spec, dims_for(spec, sketch(spec)))]
    stack = StackedNetwork(networks)
    optimiser, loss = StackedAdam([spec], networks, stack.parameters), losses.find(spec.loss)
    inputs, labels = batch(spec)

    def step() -> None:
        stack.backward(loss.gradients(stack.forward(inputs, keep=True), labels)[1])
        optimiser.step(0)

    return step


def batch(spec: TrialSpec) -> tuple[Tensor, Tensor]:
    rows = [i % 8 for i in range(spec.batch)]
    data = sketch(spec).train
    return data.inputs(rows), torch.from_numpy(data.labels[rows])


def counted(work: Callable[[], object]) -> int:
    """Floating-point operations of convolutions and products in one call."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


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
    parser.add_argument("--unit", default="ada")
    parser.add_argument("--float32", action="store_true", help="no bfloat16, which processors without it emulate")
    parser.add_argument("--layers", action="store_true", help="the convolutions that Winograd serves, one by one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    matrix = torch.rand(SIDE, SIDE)
    for name in [arguments.only] if arguments.only else CASES:
        spec = replace(CASES[name], unit=arguments.unit)
        if arguments.layers:
            layers(name, spec, arguments.rounds)
            continue
        ways = {way: how for way, how in WAYS.items() if not (arguments.float32 and how[1])}
        works = {way: alone(spec, *how) for way, how in ways.items()}
        works |= {f"convolutions, {way}": convolutions(spec, layout) for way, layout in LAYOUTS.items()}
        works["product of matrices"] = lambda: matrix @ matrix
        operations = {way: counted(work) for way, work in works.items()}
        if find(spec.model).winograd and winograd.available():
            works["Winograd"] = alone(spec, torch.channels_last, half=False, by_winograd=True)
            operations["Winograd"] = operations["torch"]
        if faster_as_stack(spec):
            works["stack of one"] = stacked(spec)
            operations["stack of one"] = operations["torch"]
        found: dict[str, list[float]] = {way: [] for way in works}
        for _ in range(arguments.rounds + 1):  # the first one warms up
            for way, work in works.items():
                found[way].append(seconds(work))
        for way, (_, *times) in found.items():
            ratios = sorted(a / b for a, b in zip(found["torch"][1:], times, strict=True))
            print(
                f"{name:20} {way:27} {1e3 * median(times):9.2f} ms  {median(ratios):5.2f}x ({ratios[0]:.2f} .. "
                f"{ratios[-1]:.2f})  {operations[way] / median(times) / 1e9:6.1f} GFLOP/s",
                flush=True,
            )
    facts = env.facts()
    print(f"processor seconds of a step, medians of {arguments.rounds} interleaved rounds, one thread; above 1: faster")
    print(f"{facts['processor']}, torch {facts['torch']}")


if __name__ == "__main__":
    main()
