"""Memory that one step after the other uses.

What a step of a stack computes is large, and the system clears such memory each time it hands it out, which takes as
long as filling it.
"""

from math import prod

import torch
from torch import Tensor


class Rooms:
    """Tensors by name. Those of one name share their memory, whatever their shapes."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def __call__(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor of this shape and of the dtype of `like`, which holds whatever was written there last."""
        found = self._views.get((name, shape))
        if found is None:
            found = self._views[name, shape] = self._memory_of(name, prod(shape), like.dtype).view(shape)
        return found

    def _memory_of(self, name: str, size: int, dtype: torch.dtype) -> Tensor:
        if name not in self._memory or len(self._memory[name]) < size:
            self._memory[name] = torch.empty(size, dtype=dtype)
            self._views = {key: view for key, view in self._views.items() if key[0] != name}
        return self._memory[name][:size]
