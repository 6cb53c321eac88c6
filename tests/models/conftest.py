"""Small versions of every network, so that looping over all of them stays cheap."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from apical import models

SMALL: dict[str, dict[str, Any]] = {
    "resnet-18": {"stem": 64, "outputs": 10},
    "resnet-50": {"stem": 64, "outputs": 10},
    "char-cnn": {"length": 80, "embedding": 16},
    "char-cnn-se": {"length": 80, "embedding": 16},
}


def _small(name: str, unit: str, **dims: Any) -> nn.Module:
    return models.create(name, unit, seed=0, **SMALL.get(name, {}) | dims)


def _inputs(model: nn.Module, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    size = tuple(model.input_size)  # type: ignore[arg-type]
    if hasattr(model, "avgpool"):  # the ResNets take images of any size
        size = (size[0], 16, 16)
    if getattr(model, "input_dtype", torch.float32) == torch.int64:
        return torch.randint(104, (batch, *size), generator=generator)
    return torch.randn(batch, *size, generator=generator)


@pytest.fixture
def small() -> Callable[..., nn.Module]:
    """`small(name, unit, **dims)`: the network with few outputs, a small stem or a short text, always the same."""
    return _small


@pytest.fixture
def inputs() -> Callable[..., Tensor]:
    """`inputs(model, batch)`: random inputs that the model takes."""
    return _inputs
