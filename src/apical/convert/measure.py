"""The inputs that each activation sees, measured on example inputs before anything is changed."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.overrides import TorchFunctionMode

from apical.convert.flow import Network, Site
from apical.convert.kinds import FUNCTIONS, call_kind
from apical.convert.trace import in_mode
from apical.errors import ConversionError

SATURATED = 5.0
"""An input is called saturated where alpha*x is above this: ADA has fallen to 9 % of its peak there, and falls on."""

_CALLS = {getattr(Tensor, f) if isinstance(f, str) else f for f in FUNCTIONS}


@dataclass
class Share:
    """How many inputs of an activation were seen, below zero, and saturated."""

    seen: int = 0
    inactive: int = 0
    saturated: int = 0

    def count(self, x: Tensor, alpha: float | None) -> None:
        self.seen += x.numel()
        self.inactive += int((x < 0).sum())
        self.saturated += int((alpha * x > SATURATED).sum()) if alpha is not None else 0

    def __str__(self) -> str:
        return f"{self.inactive / self.seen:.0%} inactive, {self.saturated / self.seen:.0%} saturated"


@dataclass
class _Frame:
    """A running forward: the activations that it calls, in order, and how many it has called."""

    module: nn.Module
    order: list[Site | None]
    called: int = 0


class _Watch(TorchFunctionMode):
    """Knows which activation each call is, by the forward it happens in and its place there."""

    def __init__(self, network: Network, sites: list[Site], see: Callable[[Site, Tensor], None]) -> None:
        super().__init__()
        self.network, self.see = network, see
        self.by_node = {site.nodes[False]: site for site in sites if False in site.nodes}
        self.by_module = {id(site.module): site for site in sites if site.module is not None and not site.nodes}
        self.frames: list[_Frame] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inside = self.frames and self.network.kind(self.frames[-1].module) is not None
        if func in _CALLS and not inside and args and isinstance(args[0], Tensor):
            self._called(args[0])
        return func(*args, **(kwargs or {}))

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self.network.kind(module) is not None and args:
            if id(module) in self.by_module:
                self.see(self.by_module[id(module)], args[0])
            else:
                self._called(args[0])
        self.frames.append(_Frame(module, self._order(module)))

    def leave(self, module: nn.Module, args: Any, result: Any) -> None:
        self.frames.pop()

    def _called(self, x: Tensor) -> None:
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.called < len(frame.order):
            site = frame.order[frame.called]
            frame.called += 1
            if site is not None:
                self.see(site, x)

    def _order(self, module: nn.Module) -> list[Site | None]:
        traced = self.network.traced.get(id(module))
        if traced is None or traced.error or self.network.kind(module) is not None:
            return []
        return [self.by_node.get(node) for node in traced.graphs[False].nodes if self._is_activation(module, node)]

    def _is_activation(self, module: nn.Module, node: Node) -> bool:
        if node.op == "call_module":
            return self.network.kind(module.get_submodule(str(node.target))) is not None
        return call_kind(node) is not None


def shares(network: Network, sites: list[Site], example_inputs: Any, alpha: float | None) -> dict[Site, Share]:
    """For each activation called in evaluation mode, the share of its inputs below zero and with alpha*x > 5."""
    found: dict[Site, Share] = {}
    watch = _Watch(network, sites, lambda site, x: found.setdefault(site, Share()).count(x, alpha))
    args, kwargs = _arguments(example_inputs)
    with ExitStack() as stack:
        for module in network.model.modules():
            stack.callback(module.register_forward_pre_hook(watch.enter).remove)
            stack.callback(module.register_forward_hook(watch.leave).remove)
        stack.enter_context(in_mode(network.model, False))
        stack.enter_context(torch.no_grad())
        try:
            with watch:
                network.model(*args, **kwargs)
        except Exception as error:
            raise ConversionError(
                f"the model does not run on example_inputs ({error}): give what it is called with, "
                "e.g. example_inputs=torch.randn(8, 3, 224, 224)"
            ) from error
    return found


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A tensor is the one argument, a tuple all of them, a dict those by name."""
    if isinstance(example_inputs, dict):
        return (), example_inputs
    return (example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)), {}
