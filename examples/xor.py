"""One neuron learns XOR, which no ReLU neuron can. Run: python examples/xor.py [starts]"""

import sys

import torch

from apical import Unit
from apical.nn import evolve_, initialise_

STARTS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
POINTS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
XOR = torch.tensor([[0.0], [1.0], [1.0], [0.0]])


def learn(unit: str, seed: int) -> torch.nn.Module:
    """A neuron of two inputs, trained by CMA-ES from a random start."""
    neuron = Unit.parse(unit).layers().linear(2, 1)
    initialise_(neuron, seed=seed)
    evolve_(neuron, POINTS, XOR, seed=seed)
    return neuron


for unit in ("ada(c=1)", "relu"):
    neurons = [learn(unit, seed) for seed in range(STARTS)]
    solved = [neuron for neuron in neurons if neuron(POINTS).round().equal(XOR)]
    print(f"{unit}: XOR solved from {len(solved)} of {STARTS} starts")

print("\noutput of the first ADA neuron between the corners (# above 0.5):\n")
neuron, axis = learn("ada(c=1)", 0), torch.linspace(-0.2, 1.2, 15)
for b in axis.flip(0):
    row = neuron(torch.stack([axis.repeat_interleave(2), b.expand(30)], 1)).detach()
    print("  " + "".join("#" if value > 0.5 else "." for value in row.flatten()))
