"""Fused pyramidal layers against two plain layers: time of a training step, and bytes saved for backward.

python benchmarks/pyramidal.py [--rounds 15] [--only linear] [--csv] [--device cuda]

A step is forward and backward, the gradients of the input and of all weights included. "plain PyNReLU" and
"plain PyNADA" are two torch layers, two activations and a sum, ADA as the paper prints it.
"""

import argparse
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from apical import PyramidalConv1d, PyramidalConv2d, PyramidalLinear, env
from apical.bench import Timing, as_csv, as_text, interleaved, ratio
from apical.bench.activations import available, waiting

CASES = {
    "conv2d 64->64 at 32x32, batch 32": (PyramidalConv2d, nn.Conv2d, (64, 64, 3, 1, 1), (32, 64, 32, 32)),
    "conv1d 256->128 length 5000, batch 8": (PyramidalConv1d, nn.Conv1d, (256, 128, 7), (8, 256, 5000)),
    "linear 784->100, batch 64": (PyramidalLinear, nn.Linear, (784, 100), (64, 784)),
    "linear 1024->1024, batch 256": (PyramidalLinear, nn.Linear, (1024, 1024), (256, 1024)),
}


def printed_ada(x: Tensor) -> Tensor:
    """ADA exactly as printed in Eq. 3, alpha = 1, c = 0."""
    return torch.clamp(x, min=0) * torch.exp(-x)


class Plain(nn.Module):
    """Two layers, two activations, a sum: Eq. 12 without any care."""

    def __init__(self, layer: type[nn.Module], args: tuple[int, ...], apical: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.activation = layer(*args), layer(*args), apical

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.first(x)) + self.activation(self.second(x))


def models(case: str, device: torch.device) -> dict[str, nn.Module]:
    pyramidal, standard, args, _ = CASES[case]
    candidates = {
        "PyNADA, fused": pyramidal(*args),
        "PyNReLU, plain": Plain(standard, args, torch.relu),
        "PyNADA, plain": Plain(standard, args, printed_ada),
        "PyNReLU, apical": pyramidal(*args, apical="relu"),
    }
    return {name: model.to(device) for name, model in candidates.items()}


def step(model: nn.Module, x: Tensor, g: Tensor) -> Callable[[], object]:
    inputs = [x, *model.parameters()]
    return lambda: torch.autograd.grad(model(x), inputs, g)


def timings(case: str, rounds: int, device: torch.device) -> list[Timing]:
    x = torch.randn(CASES[case][3]).to(device).requires_grad_()
    candidates = models(case, device)
    g = torch.randn_like(candidates["PyNADA, fused"](x))
    steps = {name: step(model, x, g) for name, model in candidates.items()}
    times = interleaved(steps, rounds=rounds, synchronise=waiting(device))
    pairs = [(name, "PyNReLU, plain") for name in candidates] + [("PyNADA, fused", "PyNADA, plain")]
    return [
        Timing(case, name, reference, median(times[name]) * 1e6, *ratio(times, name, reference), rounds)
        for name, reference in pairs
    ]


def saved_bytes(model: nn.Module, x: Tensor) -> int:
    """Bytes kept for backward besides the parameters, each storage counted once."""
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = model(x)  # held, so that no storage is freed and counted as another
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    del y
    return sum(size for pointer, size in storages.items() if pointer not in own)


def memory_table(device: torch.device) -> str:
    lines = ["saved for backward, beside the weights:"]
    for case, (_, _, _, shape) in CASES.items():
        x = torch.randn(shape).to(device).requires_grad_()
        candidates = models(case, device)
        allowed = x.nbytes + 2 * candidates["PyNADA, fused"](x).nbytes
        sizes = ", ".join(f"{name} {saved_bytes(model, x) / 2**20:.2f} MiB" for name, model in candidates.items())
        lines.append(f"{case}: {sizes} (input + one pre-activation of twice the outputs: {allowed / 2**20:.2f} MiB)")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="the cases whose name holds this text")
    parser.add_argument("--csv", action="store_true", help="the timings as CSV, without the memory")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    device = available(arguments.device)
    rows = [row for case in CASES if arguments.only in case for row in timings(case, arguments.rounds, device)]
    print(
        as_csv(rows)
        if arguments.csv
        else f"{as_text(rows)}\n\n{memory_table(device)}\n\n{env.machine(arguments.device)}"
    )


if __name__ == "__main__":
    main()
