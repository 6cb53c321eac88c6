"""An epoch of MLP-1 and of LeNet with ADA on the real Fashion-MNIST, one thread: our loop against two others.

    python benchmarks/training.py --rounds 7

plain    what one writes first: DataLoader, the printed formula, unfused Adam
bare     the steps of our loop written out: gather from one tensor, our ADA, fused Adam
apical   `apical.train`'s loop with everything it does in an epoch of training (dynamics, reports, checks)

All three train the same network from the same weights with the same batch size; rounds are interleaved. Validation and
checkpoints are in none of them; the time of a checkpoint is printed beside.
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from apical import bench, env
from apical.train import Execution, TrialSpec
from apical.train.devices import SingleDevice
from apical.train.loop import Reporter, Stop, fit
from apical.train.session import Session
from apical.train.trial import open_data

UNIT = "ada"


class PrintedFormula(nn.Module):
    """ADA exactly as printed in Eq. 3, alpha = 1, c = 0."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, min=0) * torch.exp(-x)


def plain_network(model: str) -> nn.Module:
    """The network as one writes it from the paper's description."""
    if model == "mlp-1":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), PrintedFormula(), nn.Linear(100, 10))
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), PrintedFormula(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), PrintedFormula(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), PrintedFormula(), nn.Linear(120, 84), PrintedFormula(), nn.Linear(84, 10),
    )  # fmt: skip


def plain(model: str, inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    network = plain_network(model)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=64, shuffle=True)

    def epoch() -> float:
        network.train()
        total = 0.0
        for x, y in loader:
            optimiser.zero_grad()
            loss = functional.cross_entropy(network(x), y)
            loss.backward()
            optimiser.step()
            total += loss.item()
        return total

    return epoch


def bare(session: Session, inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    network = session.network
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def epoch() -> float:
        network.train()
        total = 0.0
        for rows in torch.randperm(len(inputs)).split(64):
            loss = functional.cross_entropy(network(inputs.index_select(0, rows)), labels.index_select(0, rows))
            total += loss.item()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return total

    return epoch


class TrainingOnly(Exception):  # noqa: N818
    """Leaves the loop where training ends and validation would begin."""


def ours(session: Session) -> Callable[[], object]:
    """The loop itself, left at the end of the training part of an epoch; the next call trains the next epoch."""

    def leave() -> bool:
        raise TrainingOnly

    session.finite = leave  # type: ignore[method-assign]
    epochs = itertools.count()

    def epoch() -> None:
        session.epoch, session.batch, session.samples = next(epochs), 0, 0
        session.loss_sum = session.seconds = 0.0
        report = Reporter((), epochs=session.spec.epochs, batches=len(session.train), samples=len(session.train.split))
        try:
            fit(session, stop=Stop(), report=report)
        except TrainingOnly:
            return

    return epoch


def measure(model: str, rounds: int, folder: Path) -> list[bench.Timing]:
    spec = TrialSpec.paper("fashion-mnist", model, unit=UNIT, epochs=10**6)
    how = Execution(threads=1)
    data = open_data(spec, how)
    first, second = (Session(spec, how, SingleDevice(), data, folder) for _ in range(2))
    inputs, labels = first.train.split.tensors(first.train.device)
    second.train = first.train
    candidates = {
        "plain": plain(model, inputs, labels),
        "bare": bare(first, inputs, labels),
        "apical": ours(second),
    }
    found = bench.compare(f"{model} {UNIT}, one epoch", candidates, reference="apical", rounds=rounds, seconds=0.0)
    start = perf_counter()
    second.save()
    print(f"{model}: a checkpoint takes {1e3 * (perf_counter() - start):.1f} ms")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", choices=["mlp-1", "lenet"], action="append")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        timings = [
            t for model in arguments.model or ["mlp-1", "lenet"] for t in measure(model, arguments.rounds, Path(folder))
        ]
    print(bench.as_text(timings))
    facts = env.facts()
    print(f"ratios above 1 are slower than apical; {arguments.rounds} interleaved rounds, medians, one thread")
    print(f"{facts['processor']}, torch {facts['torch']}, {facts['backend']}")


if __name__ == "__main__":
    main()
