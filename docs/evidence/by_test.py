"""A what-if: the epoch and the trial chosen by the TEST score, as nobody should, beside the choice by validation.

    python docs/evidence/by_test.py by-test.csv

The authors' scripts log the test score after every epoch and keep every checkpoint. This script says what a choice by
that score would print. It decides nothing: its seeds are its own, and no study of apical can select by test. A plain
loop in torch, with the paper's training settings and the first weights and batches of `apical.train`. Each line of the
file is one trial; lines that are there already are not run again.
"""

import argparse
import csv
from pathlib import Path

import torch
from torch.nn import functional

from apical import data, models

SEEDS, EPOCHS, BATCH, RATE, DROP = range(2000, 2005), 30, 64, 1e-3, 15
UNITS = ("relu", "ada(alpha=learn)", "pynrelu", "pynada(alpha=learn)")
SETTINGS = [(network, unit) for network in ("mlp-2", "mlp-1") for unit in UNITS]
FIELDS = ("network", "unit", "seed", "epoch", "validation", "test", "epoch_by_test", "best_test")


def trial(fashion: data.DataSet, name: str, unit: str, seed: int) -> dict[str, object]:
    """Train, and read the test images after every epoch."""
    network = models.create(name, unit, seed=seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE, fused=True)
    batches = fashion.train.batches(BATCH, seed=seed, shuffle=True)
    whole = [next(iter(split.batches(len(split)).epoch(0))) for split in (fashion.validation, fashion.test)]
    scores = []
    for epoch in range(EPOCHS):
        if epoch == DROP:
            optimiser.param_groups[0]["lr"] *= 0.1
        for batch in batches.epoch(epoch):
            optimiser.zero_grad()
            functional.cross_entropy(network(batch.inputs), batch.labels).backward()
            optimiser.step()
        with torch.no_grad():
            right = [(network(x.inputs).argmax(1) == x.labels).double().mean().item() for x in whole]
        scores.append(tuple(round(100 * share, 2) for share in right))
    chosen = max(range(EPOCHS), key=lambda epoch: scores[epoch][0])
    by_test = max(range(EPOCHS), key=lambda epoch: scores[epoch][1])
    values = (name, unit, seed, chosen, *scores[chosen], by_test, scores[by_test][1])
    return dict(zip(FIELDS, values, strict=True))


def main() -> None:
    """Run what the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the table, a .csv; trials that it holds are not run again")
    path = parser.parse_args().file
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    with path.open() as file:
        done = {(line["network"], line["unit"], line["seed"]) for line in csv.DictReader(file)}
    fashion = data.load("fashion-mnist")
    for network, unit in SETTINGS:
        for seed in SEEDS:
            if (network, unit, str(seed)) not in done:
                line = trial(fashion, network, unit, seed)
                print(f"{network} {unit} {seed} is trained", flush=True)
                with path.open("a") as file:
                    csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(line)


if __name__ == "__main__":
    main()
