"""A function of a tensor as an activation, its settings fixed or learned; and some such functions."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from apical import functional
from apical.errors import InvalidArgumentError
from apical.nn.activations import Activation

Value = float | Tensor


class Elementwise(Activation):
    """`function(x, **settings)`. The settings in `learn` are Parameters of shape `(num_parameters,)` that start at the
    value given: one value, or one per channel along `dim`."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        *,
        learn: Sequence[str] = (),
        num_parameters: int = 1,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.function, self.names, self.dim = function, tuple(settings), dim
        self.learned = learn[0] if learn else None
        if num_parameters > 1 and not learn:
            raise InvalidArgumentError(f"num_parameters is {num_parameters}, but nothing is learned: leave it out")
        for name, value in settings.items():
            learned = name in learn
            self._register(name, value, learned, num_parameters if learned else 1, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x, self.dim, **{name: getattr(self, name) for name in self.names})

    def compute(self, x: Tensor, dim: int, **values: Value) -> Tensor:
        return self.function(x, **{name: _fitted(name, value, x, dim) for name, value in values.items()})

    def extra_repr(self) -> str:
        learned = f"learned: {', '.join(self._parameters)}" if self._parameters else ""
        name = getattr(self.function, "__name__", repr(self.function))
        return ", ".join(filter(None, (name, super().extra_repr(), learned)))


def _fitted(name: str, value: Any, x: Tensor, dim: int) -> Any:
    """A learned value in the dtype of `x`, shaped so that it meets the channels along `dim`."""
    if not isinstance(value, Tensor):
        return value
    value = value.to(x.dtype)
    if value.numel() == 1:
        return value.reshape(())
    if isinstance(x, Tensor):
        functional.check_channels(name, value, x, dim)
    after = -1 - dim if dim < 0 else x.dim() - 1 - dim
    return value.reshape(-1, *[1] * after)


def prelu(x: Tensor, weight: Value) -> Tensor:
    """x above 0, weight * x below."""
    return torch.where(x > 0, x, weight * x)


def gcu(x: Tensor) -> Tensor:
    """The growing cosine unit x * cos(x)."""
    return x * torch.cos(x)


def gaussian(x: Tensor) -> Tensor:
    """exp(-x^2 / 2), the bell of deviation 1."""
    return torch.exp(-0.5 * x * x)


def sine(x: Tensor, omega: Value = 1.0) -> Tensor:
    """sin(omega * x)."""
    return torch.sin(omega * x)
