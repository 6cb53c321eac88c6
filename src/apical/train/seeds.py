"""Randomness of a trial: order and augmentation belong to the data, first weights to their names, dropout to this.

Dropout starts anew in each epoch from (seed, epoch, rank), so that an epoch does not depend on how the ones before it
were cut into processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from apical.data.keys import number


def start_epoch(seed: int, epoch: int, rank: int) -> None:
    """Seed torch's generators for one epoch of one process."""
    torch.manual_seed(number("dropout", seed, epoch, rank) >> 1)


@contextmanager
def kept(device: torch.device) -> Iterator[None]:
    """Give the caller's random state back at the end."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield


def state(device: torch.device) -> dict[str, Tensor]:
    """The generators' states, to be stored."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore(states: dict[str, Tensor], device: torch.device) -> None:
    """Continue where `state` was taken; a state of another kind of device is left out."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
