"""The same network with ReLU and with ADA, side by side. Run: python examples/swap_activation.py [epochs]"""

import sys
from copy import deepcopy

import torch
from torch import nn

from apical import convert_, data

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
torch.manual_seed(0)
digits = data.load("digits")
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))


def accuracy(model: nn.Module) -> float:
    """On the validation images."""
    (batch,) = digits.validation.batches(len(digits.validation)).epoch()
    with torch.no_grad():
        return (model(batch.inputs).argmax(1) == batch.labels).float().mean().item()


def train(model: nn.Module) -> None:
    """Train with Adam; the seed fixes the order of the batches, so all networks see the same ones."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)  # made after the conversion
    batches = digits.train.batches(64, seed=0, shuffle=True)
    for epoch in range(EPOCHS):
        for batch in batches.epoch(epoch):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(batch.inputs), batch.labels).backward()
            optimiser.step()


for unit in ("relu", "ada(alpha=0.3)", "pynada(alpha=0.3)"):
    model = deepcopy(network)  # the same initial weights
    if unit != "relu":
        print(convert_(model, unit))
    train(model)
    print(f"{unit}: validation accuracy {100 * accuracy(model):.1f} %\n")
