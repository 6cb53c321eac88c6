"""One forward on example inputs, before anything is changed: what each activation sees, and which layer feeds it.

Every tensor that the forward makes gets a record of what made it, and from what; the records of a forward are the data
flow that flow.py reads from graphs, for the forwards that have none.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.weak import WeakIdKeyDictionary

from apical.convert.flow import FlowGraph, Site
from apical.convert.kinds import ADDITIONS, FUNCTIONS, NORM_FUNCTIONS, NORMS, call_kind, is_affine
from apical.convert.source import Place, codes, running_place
from apical.convert.trace import in_mode
from apical.errors import ConversionError

SATURATED = 5.0
"""An input is called saturated where alpha*x is above this: ADA has fallen to 9 % of its peak there, and falls on."""

_CALLS = {getattr(Tensor, f) if isinstance(f, str) else f for f in FUNCTIONS}
_SUMS = {getattr(Tensor, f) if isinstance(f, str) else f for f in ADDITIONS} | {
    Tensor.__add__,
    Tensor.__iadd__,
    Tensor.__radd__,
}
_NORMS = {function.__name__ for function in NORM_FUNCTIONS}
_PASSING = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "contiguous", "clone", "to", "float"}


@dataclass
class Share:
    """How many inputs of an activation were seen, below zero, and saturated."""

    seen: int = 0
    inactive: int = 0
    saturated: int | None = None

    def count(self, x: Tensor, alpha: float | None) -> None:
        self.seen += x.numel()
        self.inactive += int((x < 0).sum())
        if alpha is not None:
            self.saturated = (self.saturated or 0) + int((alpha * x > SATURATED).sum())

    def __str__(self) -> str:
        if not self.seen:
            return ""
        saturated = "" if self.saturated is None else f", {self.saturated / self.seen:.0%} saturated"
        return f"{self.inactive / self.seen:.0%} inactive{saturated}"


@dataclass(eq=False)
class Record:
    """What made a tensor (an affine layer, a norm, or the name of a function), and from what."""

    maker: nn.Module | str
    sources: tuple["Record", ...] = ()


@dataclass(eq=False)
class _Frame:
    """A running forward: what it was called with, the activations it calls in order, and how many it has called."""

    module: nn.Module
    source: Record | None
    order: list[Site | None]
    known: dict[Any, str]
    expressions: list[Site]
    inside: bool
    called: int = 0
    running: set[int] = field(default_factory=set)


@dataclass(eq=False)
class Observation:
    """What one forward showed: by activation, the shares of its inputs, the places it was called from, its sources."""

    network: FlowGraph
    shares: dict[Site, Share] = field(default_factory=dict)
    calls: dict[Site, list[tuple[Place | None, Record | None]]] = field(default_factory=dict)

    def note(self, site: Site, x: Tensor, place: Place | None, record: Record | None, alpha: float | None) -> None:
        self.shares.setdefault(site, Share()).count(x, alpha)
        self.calls.setdefault(site, []).append((place, record))

    def split(self, sites: list[Site]) -> list[Site]:
        """The sites, those of modules whose calls no graph shows by the places that called them."""
        done: list[Site] = []
        for site in sites:
            places = list(dict.fromkeys(place for place, _ in self.calls.get(site, ())))
            if site.nodes or site.module is None or not places or None in places:
                done.append(site)
                continue
            site.place = places[0]
            done.append(site)
            for number, place in enumerate(places[1:], start=2):
                other = replace(site, call=number, place=place)
                self.calls[other] = [call for call in self.calls[site] if call[0] == place]
                done.append(other)
            self.calls[site] = [call for call in self.calls[site] if call[0] == places[0]]
        return done

    def feed(self, site: Site) -> tuple[nn.Module, nn.Module | None, int] | str:
        """The affine layer that fed an activation, the norm between them and the sums; or why there is none."""
        calls = self.calls.get(site, [])
        if not calls:
            return "it did not run on example_inputs"
        fed = [self._fed(record, site.owner.module) for _, record in calls]
        wrong = next((each for each in fed if isinstance(each, str)), None)
        if wrong is not None:
            return wrong
        if len({(id(each[0]), id(each[1])) for each in fed}) > 1:
            return "several layers feed it, one after another"
        return fed[0]

    def _fed(self, record: Record | None, owner: nn.Module) -> tuple[nn.Module, nn.Module | None, int] | str:
        ends: list[str] = []
        feeds = list(self._search(record, owner, None, 0, ends)) if record is not None else []
        if not feeds:
            return f"it is fed by {ends[0] if ends else 'an input of the model'}, not by an affine layer"
        main = [each for each in feeds if all(o is each or _after(each[0], o[0]) for o in feeds)] or _widest(feeds)
        if len(main) != 1:
            return f"several affine layers feed it alike ({len(feeds)} of them)"
        affine, norm, sums = main[0]
        assert isinstance(affine.maker, nn.Module)
        return affine.maker, norm, sums

    def _search(
        self, record: Record, owner: nn.Module, norm: nn.Module | None, sums: int, ends: list[str]
    ) -> Iterator[tuple[Record, nn.Module | None, int]]:
        maker = record.maker
        if isinstance(maker, nn.Module) and is_affine(maker):
            yield record, norm, sums
        elif isinstance(maker, nn.Module) and norm is None and self.network.is_norm(maker):
            yield from self._search(record.sources[0], owner, maker, sums, ends)
        elif maker == "+" and norm is None:
            for source in record.sources:
                yield from self._search(source, owner, norm, sums + 1, ends)
        elif maker in _PASSING and record.sources:
            yield from self._search(record.sources[0], owner, norm, sums, ends)
        elif maker in _NORMS and norm is None and isinstance(owner, NORMS) and record.sources:
            yield from self._search(record.sources[0], owner, owner, sums, ends)  # a norm whose class activates too
        else:
            ends.append(maker if isinstance(maker, str) else type(maker).__name__)


def _after(record: Record, other: Record) -> bool:
    """Whether the input of one layer is computed from the input of the other."""
    first, target = record.sources[0], other.sources[0]
    waiting, seen = [first], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each is target and target is not first:
            return True
        waiting.extend(each.sources)
    return False


def _widest(feeds: list[tuple[Record, nn.Module | None, int]]) -> list[tuple[Record, nn.Module | None, int]]:
    """Of layers beside one another on the same input, the one with the most weights."""
    if len({id(record.sources[0]) for record, _, _ in feeds}) != 1:
        return []
    return [max(feeds, key=lambda feed: _size(feed[0].maker))]


def _size(layer: nn.Module | str) -> int:
    return 0 if isinstance(layer, str) else sum(parameter.numel() for parameter in layer.parameters())


class _Watch(TorchFunctionMode):
    """Knows which activation each call is: by the forward it happens in and its place there."""

    def __init__(self, network: FlowGraph, sites: list[Site], alpha: float | None) -> None:
        super().__init__()
        self.network, self.alpha = network, alpha
        self.observed = Observation(network)
        self.by_node = {site.nodes[False]: site for site in sites if False in site.nodes}
        self.by_module = {id(site.module): site for site in sites if site.module is not None and not site.nodes}
        self.expressions: dict[int, list[Site]] = {}
        for site in sites:
            if site.expression is not None and (site.owner.keeps_code or site.owner.error):
                self.expressions.setdefault(id(site.owner.module), []).append(site)
        self.records: Any = WeakIdKeyDictionary()
        self.frames: list[_Frame] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, Tensor)]
        inputs += [x for each in args if isinstance(each, (list, tuple)) for x in each if isinstance(x, Tensor)]
        frame = self.frames[-1] if self.frames else None
        sources = tuple(self._record(x) for x in inputs)
        if frame is not None and not frame.inside and inputs:
            self._look(frame, func, inputs[0], sources[0])
        result = func(*args, **(kwargs or {}))
        record = Record("+" if func in _SUMS else str(getattr(func, "__name__", func)), sources)
        for each in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(each, Tensor):
                self.records[each] = record
        return result

    def _record(self, x: Tensor) -> Record:
        record = self.records.get(x)
        if record is None:
            record = self.records[x] = Record("an input or parameter")
        return record  # type: ignore[no-any-return]

    def _look(self, frame: _Frame, func: Any, x: Tensor, record: Record) -> None:
        """Whether this call is an activation, or the first of an expression that is one."""
        if frame.expressions:
            place = running_place(frame.known, sys._getframe(2))
            for site in frame.expressions:
                assert site.expression is not None
                if site.expression.place.holds(place) and not site.expression.source.holds(place):
                    if id(site) not in frame.running:
                        self.observed.note(site, x, place, record, self.alpha)
                    frame.running.add(id(site))
                    return
            frame.running.clear()
        if func in _CALLS and not frame.expressions:
            self._called(frame, x, record)

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        record = self._record(inputs[0]) if inputs else None
        caller = self.frames[-1] if self.frames else None
        inside = caller is not None and caller.inside
        if self.network.activation(module) is not None and inputs and not inside:
            if id(module) in self.by_module:
                place = running_place(caller.known, sys._getframe(1)) if caller is not None else None
                self.observed.note(self.by_module[id(module)], inputs[0], place, record, self.alpha)
            elif caller is not None:
                self._called(caller, inputs[0], record)
            inside = True
        known = codes(type(module)) if id(module) in self.network.traced else {}
        expressions = self.expressions.get(id(module), [])
        self.frames.append(_Frame(module, record, self._order(module), known, expressions, inside))

    def leave(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        frame = self.frames.pop()
        layer = is_affine(module) or self.network.is_norm(module) or self.network.activation(module) is not None
        if layer and isinstance(result, Tensor) and frame.source is not None:
            self.records[result] = Record(module, (frame.source,))

    def _called(self, frame: _Frame, x: Tensor, record: Record | None) -> None:
        if frame.called < len(frame.order):
            site = frame.order[frame.called]
            frame.called += 1
            if site is not None:
                self.observed.note(site, x, site.place, record, self.alpha)

    def _order(self, module: nn.Module) -> list[Site | None]:
        traced = self.network.traced.get(id(module))
        if traced is None or traced.error or self.network.activation(module) is not None:
            return []
        calls_only = id(module) in self.expressions  # its other activations are known by their places
        return [
            self.by_node.get(node)
            for node in traced.graphs[False].nodes
            if self._is_activation(module, node, calls_only=calls_only)
        ]

    def _is_activation(self, module: nn.Module, node: Node, *, calls_only: bool) -> bool:
        if node.op == "call_module":
            return self.network.activation(module.get_submodule(str(node.target))) is not None
        return call_kind(node) is not None and not calls_only


def observe(network: FlowGraph, sites: list[Site], example_inputs: Any, alpha: float | None) -> Observation:
    """What the activations saw in one forward, in evaluation mode."""
    watch = _Watch(network, sites, alpha)
    args, kwargs = _arguments(example_inputs)
    with ExitStack() as stack:
        for module in network.model.modules():
            stack.callback(module.register_forward_pre_hook(watch.enter, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(watch.leave, with_kwargs=True).remove)
        stack.enter_context(in_mode(network.model, False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        try:
            with watch:
                network.model(*args, **kwargs)
        except Exception as error:
            raise ConversionError(
                f"the model does not run on example_inputs ({_first_line(error)}): give what it is called with, "
                "e.g. example_inputs=torch.randn(8, 3, 224, 224)"
            ) from error
    return watch.observed


def multiply_adds(model: nn.Module, example_inputs: Any) -> int:
    """Multiplications with an addition in one forward: those of matrix products and convolutions."""
    args, kwargs = _arguments(example_inputs)
    with in_mode(model, False), torch.no_grad(), torch.random.fork_rng(devices=[]), FlopCounterMode(display=False) as n:
        model(*args, **kwargs)
    return int(n.get_total_flops()) // 2


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A tensor is the one argument, a tuple all of them, a dict (or what behaves as one) those by name."""
    if hasattr(example_inputs, "keys") and hasattr(example_inputs, "__getitem__"):
        return (), {name: example_inputs[name] for name in example_inputs.keys()}  # noqa: SIM118 - not only dicts
    return (example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)), {}
