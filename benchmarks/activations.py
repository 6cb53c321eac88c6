"""The figures of benchmarks/README.md on activations: forward + backward, interleaved rounds, medians.

python benchmarks/activations.py [rounds] [--device cuda]

Away from the CPU one more column has the share of the memory bandwidth that ADA reaches, measured by a copy.
"""

import argparse

import torch

from apical import env
from apical.bench import interleaved, ratio
from apical.bench.activations import DTYPES, LEAST, SHAPES, available, copy, steps, waiting

PAIRS = (
    ("ADA", "SiLU"),
    ("ADA", "ReLU"),
    ("LeakyADA", "SiLU"),
    ("ADA learned", "ADA"),
    ("ADA per channel", "ADA"),
    ("printed formula", "ADA"),
)


def main(rounds: int, device: str) -> None:
    torch.set_num_threads(2)
    place = available(device)
    shares = ["ADA, of a copy's bandwidth"] if place.type != "cpu" else []
    print(env.machine(device))
    print(f"forward + backward, {rounds} interleaved rounds; ratio of medians per round, 95 % interval\n")
    print("| case | " + " | ".join([*(f"{a} / {b}" for a, b in PAIRS), *shares]) + " |")
    print("|---" * (len(PAIRS) + len(shares) + 1) + "|")
    for dtype in DTYPES:
        for shape in SHAPES:
            work = steps(shape, dtype, device=place) | ({"copy": copy(shape, dtype, place)} if shares else {})
            times = interleaved(work, rounds=rounds, seconds=0.05, synchronise=waiting(place))
            cells = ["{:.2f} ({:.2f} to {:.2f})".format(*ratio(times, a, b)) for a, b in PAIRS]
            cells += [f"{LEAST / ratio(times, 'ADA', 'copy')[0]:.0%}"] if shares else []
            name = f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=15)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    main(arguments.rounds, arguments.device)
