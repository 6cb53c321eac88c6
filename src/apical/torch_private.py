"""The private names of torch that apical calls for speed, each with the public way to the same numbers.

A torch that lacks one of them, or APICAL_TORCH=public in the environment, takes the public way: slower, and equal bit
for bit. Nothing else in apical looks below torch's public surface for these things.
"""

import inspect
import os
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adam import adam
from torch.optim.adamw import adamw


def _private(path: str, public: Callable[..., Any]) -> Callable[..., Any]:
    """torch's private function at that path, or the public way."""
    if os.environ.get("APICAL_TORCH") == "public":
        return public
    try:
        return reduce(getattr, path.split("."), torch)  # type: ignore[return-value]
    except AttributeError:
        return public


def without_compiler(optimizer: type[Optimizer]) -> type[Optimizer]:
    """A class that does the same without torch's compiler, whose import takes as long as that of torch itself.

    Five methods of an optimizer import `torch._dynamo` only to tell a compiler, of which a trial's optimizer sees
    none, to stay away.
    """
    if os.environ.get("APICAL_TORCH") == "public":
        return optimizer
    names = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in names}
    return type(optimizer.__name__, (optimizer,), methods | {"step": torch.no_grad()(inspect.unwrap(optimizer.step))})


def _step(function: Callable[..., Any]) -> Callable[..., None]:
    """torch's functional optimiser, called as the kernel inside it is; it counts a step itself before it begins."""

    def step(
        parameters: list[Tensor], gradients: list[Tensor], first: list[Tensor], second: list[Tensor],
        maxima: list[Tensor], steps: list[Tensor], **settings: Any,
    ) -> None:  # fmt: skip
        before = [s - 1 for s in steps]
        function(parameters, gradients, first, second, maxima, before, foreach=False, fused=True, **settings)

    return step


def _backward(losses: tuple[Tensor, ...], ones: tuple[Tensor, ...], *_: bool | tuple[()], **__: bool) -> None:
    torch.autograd.backward(losses, ones)


fused_adam = _private("_fused_adam_", _step(adam))
fused_adamw = _private("_fused_adamw_", _step(adamw))
run_backward = _private("autograd.Variable._execution_engine.run_backward", _backward)
"""What `loss.backward()` calls when it has looked at its arguments, which takes as long again."""

# What may look at operations other than plain autograd. Without a way to ask, somebody does: kernels then step aside.
dispatch_modes = _private("_C._len_torch_dispatch_stack", lambda: 1)
function_modes = _private("_C._len_torch_function_stack", lambda: 1)
functorch_level = _private("_C._functorch.maybe_current_level", lambda: 0)
graph_task = _private("_C._current_graph_task_id", lambda: -1)
"""Not -1 while autograd computes gradients."""
tracing_state = _private("_C._get_tracing_state", lambda: torch.jit.is_tracing() or None)  # type: ignore[attr-defined, no-untyped-call]
