"""The figures of benchmarks/README.md on activations: forward + backward, interleaved rounds, medians.

python benchmarks/activations.py [rounds]
"""

import sys

import torch

from apical import env
from apical.bench import interleaved, ratio
from apical.bench.activations import DTYPES, SHAPES, steps

PAIRS = (
    ("ADA", "SiLU"),
    ("ADA", "ReLU"),
    ("LeakyADA", "SiLU"),
    ("ADA learned", "ADA"),
    ("ADA per channel", "ADA"),
    ("printed formula", "ADA"),
)


def main(rounds: int) -> None:
    torch.set_num_threads(2)
    facts = env.facts()
    print(f"{facts['processor']}, {facts['threads']} threads, torch {facts['torch']}, {facts['backend']}")
    print(f"forward + backward, {rounds} interleaved rounds; ratio of medians per round, 95 % interval\n")
    print("| case | " + " | ".join(f"{a} / {b}" for a, b in PAIRS) + " |")
    print("|---" * (len(PAIRS) + 1) + "|")
    for dtype in DTYPES:
        for shape in SHAPES:
            times = interleaved(steps(shape, dtype), rounds=rounds, seconds=0.05)
            cells = ("{:.2f} ({:.2f} to {:.2f})".format(*ratio(times, a, b)) for a, b in PAIRS)
            name = f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
