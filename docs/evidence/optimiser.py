"""MLP-2 under other settings of Adam: its epsilon, and a learning rate of its own for a learned alpha.

    python docs/evidence/optimiser.py optimiser.csv

A plain loop in torch, with the paper's training settings and the first weights and batches of `apical.train`. Each line
of the file is one trial; lines that are there already are not run again. The test images are read once for each trial,
with the weights of the epoch that did best in validation.
"""

import argparse
import copy
import csv
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from apical import ADA, data, models

TRIALS, EPOCHS, BATCH, RATE, DROP = 3, 30, 64, 1e-3, 15
SETTINGS = [
    *[(unit, epsilon, 1.0) for unit in ("relu", "ada(alpha=0.4)") for epsilon in (1e-8, 1e-7)],
    *[("ada(alpha=learn)", 1e-8, times) for times in (0.1, 1.0, 10.0)],
]
FIELDS = ("unit", "epsilon", "alpha_rate", "seed", "epoch", "validation", "test", "alpha")


def optimiser_of(network: nn.Module, epsilon: float, times: float) -> torch.optim.Adam:
    """Adam in which alpha, the only scalar, learns `times` as fast as the weights."""
    scalars = [p for p in network.parameters() if p.numel() == 1]
    weights = [p for p in network.parameters() if p.numel() > 1]
    groups = [{"params": weights, "lr": RATE}, {"params": scalars, "lr": times * RATE}]
    return torch.optim.Adam([g for g in groups if g["params"]], eps=epsilon, fused=True)


@torch.no_grad()
def accuracy(network: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """The share of right answers, in percent."""
    return 100 * (network(inputs).argmax(1) == labels).double().mean().item()


def whole(split: data.Split) -> tuple[Tensor, Tensor]:
    """All samples of a split at once."""
    batch = next(iter(split.batches(len(split)).epoch(0)))
    return batch.inputs, batch.labels


def trial(fashion: data.DataSet, unit: str, epsilon: float, times: float, seed: int) -> dict[str, object]:
    """Train, keep the best epoch by validation, and read the test images once."""
    network = models.create("mlp-2", unit, seed=seed)
    optimiser = optimiser_of(network, epsilon, times)
    batches = fashion.train.batches(BATCH, seed=seed, shuffle=True)
    validation = whole(fashion.validation)
    best, kept, at = -1.0, network, 0
    for epoch in range(EPOCHS):
        if epoch == DROP:
            for group in optimiser.param_groups:
                group["lr"] *= 0.1
        for batch in batches.epoch(epoch):
            optimiser.zero_grad()
            functional.cross_entropy(network(batch.inputs), batch.labels).backward()
            optimiser.step()
        reached = accuracy(network, *validation)
        if reached > best:
            best, kept, at = reached, copy.deepcopy(network), epoch
    alphas = {round(m.effective_alpha.item(), 4) for m in kept.modules() if isinstance(m, ADA)}  # one for the network
    test = accuracy(kept, *whole(fashion.test))
    values = (unit, epsilon, times, seed, at, round(best, 2), round(test, 2), *alphas)
    return dict(zip(FIELDS, values, strict=False))


def main() -> None:
    """Run what the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the table, a .csv; trials that it holds are not run again")
    path = parser.parse_args().file
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    with path.open() as file:
        done = {(line["unit"], line["epsilon"], line["alpha_rate"], line["seed"]) for line in csv.DictReader(file)}
    fashion = data.load("fashion-mnist")
    for seed in range(TRIALS):
        for setting in SETTINGS:
            if tuple(map(str, (*setting, seed))) not in done:
                found = trial(fashion, *setting, seed)
                print(found, flush=True)
                with path.open("a") as file:
                    csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(found)


if __name__ == "__main__":
    main()
