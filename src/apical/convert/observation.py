"""One forward on example inputs, before anything is changed: what each activation sees, and which layer feeds it.

Every tensor that the forward makes gets a record of what made it, and from what; the records of a forward are the data
flow that flow.py reads from graphs, for the forwards that have none.
"""

import copy
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.nn import functional
from torch.nn.utils.parametrize import ParametrizationList
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.weak import WeakIdKeyDictionary

from apical import torch_private
from apical.convert.flow import (
    AFFINE_FUNCTIONS,
    MOVING,
    OF_A_PARAMETER,
    Activation,
    FlowGraph,
    Site,
    fixed_site,
    not_fed,
)
from apical.convert.formula import FORMULA, Formulas, Role, Step, filled, is_of_stack, is_pointwise, plain_name, put
from apical.convert.kinds import (
    ADDITIONS,
    FUNCTIONS,
    INSIDE,
    NORM_FUNCTIONS,
    NORMS,
    call_kind,
    function_kind,
    is_affine,
    is_ours,
    written_class,
)
from apical.convert.operators import LOSSES, WHOLE_CALLS, Data, Operation, operation, quotient, unexplained
from apical.convert.probe import called_alone
from apical.convert.source import (
    LEAVING,
    OF_TABLE,
    PICKED,
    UNKNOWN,
    Place,
    called_names,
    codes,
    leaves_by,
    not_linear,
    out_of_reach,
    running_place,
    taking_place,
)
from apical.convert.trace import Traced, attributes_kept, in_mode, own_calls, place_of, values_kept
from apical.errors import ConversionError

SATURATED = 5.0
"""An input is called saturated where alpha*x is above this: ADA has fallen to 9 % of its peak there, and falls on."""

_METHODS = {getattr(Tensor, name): name for name in FUNCTIONS if isinstance(name, str)}
_SUMS = {getattr(Tensor, f) if isinstance(f, str) else f for f in ADDITIONS} | {
    Tensor.__add__,
    Tensor.__iadd__,
    Tensor.__radd__,
}
_LEAVING = {getattr(Tensor, name): name.strip("_") for name in LEAVING}
_NORMS = {function.__name__ for function in NORM_FUNCTIONS}
_AFFINE_FUNCTIONS = {getattr(functional, name) for name in AFFINE_FUNCTIONS}
_PASSING = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "contiguous", "clone", "to", "float"}


@dataclass
class Share:
    """How many inputs of an activation were seen, below zero, and saturated."""

    seen: int = 0
    inactive: int = 0
    floating: bool = False
    complex: bool = False
    saturated: int | None = None

    def count(self, x: Tensor, alpha: float | None) -> None:
        while torch._C._functorch.is_functorch_wrapped_tensor(x):  # inside of vmap, which has no numbers to look at
            x = torch._C._functorch.get_unwrapped(x)
        self.seen += x.numel()
        self.floating = self.floating or x.is_floating_point() or x.is_complex()
        if x.is_complex():
            self.complex = True
            return
        self.inactive += int((x < 0).sum())
        if alpha is not None:
            self.saturated = (self.saturated or 0) + int((alpha * x > SATURATED).sum())

    def __str__(self) -> str:
        if not self.seen or self.complex:
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
    """A running forward: the activations it calls in order, and how many it has called; `blind` without a graph.

    `inside` says that it is an activation, a part of one, or code that nothing can change; `whole` that it is an
    activation, which counts as one step.
    """

    module: nn.Module
    order: list[Site | None]
    known: dict[Any, str]
    expressions: list[Site]
    inside: bool
    blind: bool
    whole: bool = False
    called: int = 0
    running: dict[int, set[Place | None]] = field(default_factory=dict)
    """The places of an expression that have run; one that runs again begins another call of it."""


DID_NOT_RUN = "did not run"
IN_SCRIPT = "it is called inside of TorchScript that no other call can stand for: convert the model without torch.jit"
INPUT = "an input or parameter"


@dataclass(eq=False)
class Observation:
    """What one forward showed: by activation, the shares of its inputs, the places it was called from, its sources."""

    network: FlowGraph
    shares: dict[Site, Share] = field(default_factory=dict)
    calls: dict[Site, list[tuple[Place | None, Record | None]]] = field(default_factory=dict)
    strays: list[Site] = field(default_factory=list)
    """Activations that ran and that no site stands for."""
    cleared: set[Site] = field(default_factory=set)
    """What was suspected to be an activation of several parts, until the parts were seen."""
    taken: dict[tuple[int, Place], Site | None] = field(default_factory=dict)
    """Where a forward took a value out of torch: the site to list if it was computed from the inputs, None if not."""
    ran: dict[int, set[Place | None]] = field(default_factory=dict)
    """The places in each forward where an operator ran."""
    inside: set[int] = field(default_factory=set)
    """The layers of torch that ran and apply an activation in their own code."""
    operators: list[Site] = field(default_factory=list)
    """Operators that are not linear, and that are no part of an activation."""
    asleep: list[Site] = field(default_factory=list)
    """Activations of a table that were not picked."""

    @property
    def counted(self) -> set[Site]:
        """The calls on whole numbers alone, such as indices, which are no activations."""
        return {site for site, share in self.shares.items() if share.seen and not share.floating}

    @property
    def counting(self) -> set[str]:
        """Their names, and those of what was not picked, for the record; modules stay listed."""
        return {site.name for site in (*self.counted, *self.asleep) if site.module is None}

    def inputs(self, site: Site) -> str:
        """What an activation was called with, for its row."""
        if site.module is not None:
            unused = site not in self.calls and id(site.module) not in self.inside
        else:
            unused = site.expression is not None and site.place is not None and not self._has_run(site)
        return DID_NOT_RUN if unused else str(self.shares.get(site, ""))

    def others(self) -> list[Site]:
        """The values that left torch; those of code that did not run, and calls in it, as far as the source tells."""
        unseen = [site for site in self.network.leaving if (id(site.owner.module), site.place) not in self.taken]
        for site in self.network.unknown:
            if not self._has_run(site):
                reason = f"{UNKNOWN}; on example_inputs it computed nothing that torch shows{site.place or ''}"
                unseen.append(replace(site, fixed=reason))
        unseen += [site for site in self.network.operators if not self._has_run(site)]
        return [*(site for site in self.taken.values() if site is not None), *self.operators, *unseen]

    def awake(self, sites: list[Site]) -> list[Site]:
        """The sites without those of a table that were not picked when the model ran, which are listed as such."""
        picked = f"it is {PICKED} ({OF_TABLE}"
        self.asleep = [site for site in sites if site not in self.calls and str(site.fixed).startswith(picked)]
        for site in self.asleep:
            site.fixed = f"{site.fixed}; it did not run on example_inputs"
        self.network.dormant += self.asleep
        return [site for site in sites if site not in self.asleep]

    def _has_run(self, site: Site) -> bool:
        """Whether an operator ran where a site stands."""
        ran = self.ran.get(id(site.owner.module), set())
        return any(map(site.place.holds, ran)) if site.place is not None else bool(ran)

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
            places += [place for place in self.network.places(site) if place not in places]  # what did not run
            site.place = places[0]
            done.append(site)
            for number, place in enumerate(places[1:], start=2):
                other = replace(site, call=number, place=place)
                self.calls[other] = [call for call in self.calls[site] if call[0] == place]
                done.append(other)
            self.calls[site] = [call for call in self.calls[site] if call[0] == places[0]]
            for each in done[-len(places) :]:
                self.network.note_further(each)
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
            return not_fed(ends[0] if ends else "an input of the model")
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
        if isinstance(maker, nn.Module) and self.network.is_feed(maker):
            yield record, norm, sums
        elif isinstance(maker, nn.Module) and norm is None and self.network.is_norm(maker):
            yield from self._search(record.sources[0], owner, maker, sums, ends)
        elif maker == "+" and norm is None:
            inner: list[str] = []
            for source in record.sources:
                yield from self._search(source, owner, norm, sums + 1, inner)
            ends += ["a sum"] if INPUT in inner else inner
        elif maker in _PASSING and record.sources:
            yield from self._search(record.sources[0], owner, norm, sums, ends)
        elif maker in MOVING and record.sources:
            if any(True for _ in self._search(record.sources[0], owner, norm, sums, ends)):
                ends.append("values of a layer that are rearranged where no graph shows it")
        elif maker in _NORMS and norm is None and isinstance(owner, NORMS) and record.sources:
            yield from self._search(record.sources[0], owner, owner, sums, ends)  # a norm whose class activates too
        else:
            name = maker if isinstance(maker, str) else written_class(maker)
            ends.append("a sum" if name == "+" else name)


def _after(record: Record, other: Record) -> bool:
    """Whether a layer is further along: its input is computed from the other's, or by more layers."""
    first, target = record.sources[0], other.sources[0]
    own, others = _before(first), _before(target)
    layers = [
        {key for key, each in seen.items() if isinstance(each.maker, nn.Module) and is_affine(each.maker)}
        for seen in (own, others)
    ]
    return (id(target) in own and target is not first) or layers[1] < layers[0]


def _before(record: Record) -> dict[int, Record]:
    """All records that one was made from, and itself, by id."""
    waiting, seen = [record], dict[int, Record]()
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            waiting.extend(each.sources)
    return seen


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
        self.names = {id(module): name for name, module in network.model.named_modules()}
        self.taken = {site.name for site in sites}
        self.by_node = {site.nodes[False]: site for site in sites if False in site.nodes}
        self.by_module: dict[int, list[Site]] = {}
        self.shown_elsewhere: dict[int, list[Site]] = {}
        """Activations in graphs, by their module: a slice of a Sequential runs them where no graph shows it."""
        for site in sites:
            if site.module is not None:
                known = self.shown_elsewhere if site.nodes else self.by_module
                known.setdefault(id(site.module), []).append(site)
        self.expressions: dict[int, list[Site]] = {}
        self.functions: dict[int, list[Site]] = {}
        for site in sites:
            if site.expression is not None and (site.owner.keeps_code or site.owner.error):
                self.expressions.setdefault(id(site.owner.module), []).append(site)
            elif site.module is None:
                self.functions.setdefault(id(site.owner.module), []).append(site)
        self.listed: dict[int, list[Site]] = {}
        for site in sites:
            self.listed.setdefault(id(site.owner.module), []).append(site)
        self.records: Any = WeakIdKeyDictionary()
        self.frames: list[_Frame] = [self._enter(network.model, None, [], None)]
        self.calling = self.muted = self.hidden = False
        self.function = ""
        self.steps, self.formulas = _Steps(), Formulas()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.calling:
            return func(*args, **(kwargs or {}))
        inputs = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, Tensor)]
        inputs += [x for each in args if isinstance(each, (list, tuple)) for x in each if isinstance(x, Tensor)]
        sources = tuple(self._record(x) for x in inputs)
        for x, made in zip(inputs, sources, strict=True):
            self.steps.see(x, made)
        kind = function_kind(_METHODS.get(func, func), args, kwargs or {}) if inputs else None
        if inputs:
            data = next((i for i, x in enumerate(inputs) if not self.steps.is_weight(x)), 0)
            self.look(kind, inputs[data], sources[data])
        if func in _LEAVING:
            self._leave(_LEAVING[func], inputs[0])
        whole = self._whole(kind, func, args, kwargs or {}) if kind is not None else None
        self.calling, self.muted, self.function = True, whole is not None, plain_name(func)
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self.calling, self.muted, self.function = False, False, ""
        if whole is not None:
            whole(result)
        if func in _AFFINE_FUNCTIONS:
            self.steps.affine(result)
        name = "an assignment in place" if func is Tensor.__setitem__ else plain_name(func)
        record = Record("+" if func in _SUMS else name, sources)
        written = args[0] if func is Tensor.__setitem__ else result
        for each in written if isinstance(written, (list, tuple)) else (written,):
            if isinstance(each, Tensor):
                self.records[each] = record
        return result

    def _leave(self, name: str, x: Tensor) -> None:
        """A value leaves torch: list it, unless it is no number computed from the inputs, or only decides or counts."""
        frame = self.frames[-1]
        place, name = taking_place(frame.known, sys._getframe(2), name)
        key, listed = (id(frame.module), place), self.observed.taken
        if name and self.steps.is_number(x) and not frame.inside:
            known = [site for site in self.network.leaving if (id(site.owner.module), site.place) == key]
            site = listed.get(key) or next(iter(known), None)
            listed[key] = site or self._stray(frame.module, Activation(name), leaves_by(name, place))
        listed.setdefault(key, None)

    def _record(self, x: Tensor) -> Record:
        record = self.records.get(x)
        if record is None:
            record = self.records[x] = Record(INPUT)
        return record  # type: ignore[no-any-return]

    def _whole(
        self, kind: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], role: Role = None
    ) -> Callable[[Any], None] | None:
        """For a call that is an activation by itself, what notes its result as one step; None inside of others."""
        frame = self.frames[-1]
        if frame.inside:
            return None
        place = running_place(frame.known, sys._getframe(2)) if frame.known else None
        role = role or Activation(kind).role
        return self.steps.whole(self.formulas, kind, function, args, kwargs, role, (frame.module, place))

    def look(self, kind: str | None, x: Tensor, record: Record | None = None, *, own: bool = False) -> None:
        """Note which activation a call of a function is: the first of an expression, one of a graph, or one unseen."""
        frame = self.frames[-1]
        if frame.inside or not (frame.expressions or kind):
            return
        if self.steps.is_weight(x):  # a graph has the call, and no activation there
            if kind is not None and frame.order[frame.called : frame.called + 1] == [None]:
                frame.called += 1
            return
        place = running_place(frame.known, sys._getframe(2))
        if place is not None and self.hidden:
            place = replace(place, helper=True)
        for written in frame.expressions:
            if written.is_at(place):
                ran = frame.running.setdefault(id(written), set())
                if not ran or (place in ran and place and not place.helper):
                    self._note(written, x, place, record)
                    ran.clear()
                ran.add(place)
                return
        frame.running.clear()
        if kind is None or (not frame.expressions and self._called(frame, x, record)):
            return
        functions = self.functions.setdefault(id(frame.module), [])
        known = [site for site in functions if site.kind == kind and site.place in (None, place)]
        site = known[0] if known else None
        if site is None:
            if self._inside_activation(x, record):
                return
            site = self._stray(frame.module, Activation(kind, default=own), IN_SCRIPT if self.hidden else "")
            site.place = place
            functions.append(site)
            self.listed.setdefault(id(frame.module), []).append(site)
            self.observed.strays.append(site)
        self._note(site, x, place, record)

    def _inside_activation(self, x: Tensor, record: Record | None) -> bool:
        """Whether a registered activation runs that was not called, but its forward was: `self.act.forward(x)`."""
        caller = sys._getframe(2)
        while caller is not None and caller.f_code not in self.frames[-1].known:
            sites = self.by_module.get(id(caller.f_locals.get("self")))
            if sites is not None:
                self._note(sites[0], x, None, record)
                return True
            caller = caller.f_back  # type: ignore[assignment]
        return False

    def operator(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any, role: Role) -> None:
        """An operator ran: what it made, as a function of what it was made from."""
        frame, place = self.frames[-1], self._running()
        if frame.whole or self.muted:
            return
        known = frame.inside or role is not None or any(site.is_at(place) for site in frame.expressions)
        within = "layer_norm" if isinstance(frame.module, NORMS) else self.function
        whole = within in LOSSES or (within in WHOLE_CALLS and not is_pointwise(within))
        self.steps.note(
            self.formulas,
            func,
            args,
            kwargs,
            result,
            role,
            (frame.module, place),
            follow=not (frame.inside or whole),
            known=known,
            within=within,
        )

    def _running(self) -> Place | None:
        """The place of the running forward where an operator or a module is called."""
        frame = self.frames[-1]
        place = running_place(frame.known, sys._getframe(2)) if frame.known else None
        self.observed.ran.setdefault(id(frame.module), set()).add(place)
        return place

    def returns(self, result: Any) -> None:
        """Note what the model returns."""
        self.calling = True
        for each in tree_leaves(result):
            if isinstance(each, Tensor):
                self.steps.operation(each).returned = True

    def conclude(self) -> None:
        """List the activations that were computed step by step and that nothing lists yet."""
        wholes = [site.part_of for site in self.observed.calls]
        self.observed.cleared = {whole for whole in wholes if whole is not None and whole.suspected}
        for counted in self.observed.counted:
            if counted.module is None:
                self.observed.cleared.add(counted)
            else:
                counted.fixed = "it is called with whole numbers"
        for called, share in self.observed.shares.items():
            if share.complex:
                called.fixed = "it is called with complex numbers"
        for own in self.listed.values():
            own[:] = self.network.clear(own, self.observed.cleared)
        noted, explained = set(self.observed.calls), set[int]()
        for formula in reversed([*self.formulas.formulas()]):  # in the order in which they ran
            module, place = formula.top.origin
            listed = self.listed.setdefault(id(module), [])
            same = [site for site in listed if _same_formula(site, formula.kind, place)]
            site = min(same, key=lambda site: len(self.observed.calls.get(site, ())), default=None)
            if site is None:
                what = out_of_reach(formula.words(place or " outside its class"), formula.kind)
                site = self._stray(module, Activation(formula.kind, default=formula.default), what)
                site.place = place
                listed.append(site)
                self.observed.strays.append(site)
            if site not in noted and formula.source.seen is not None:
                self.observed.calls.setdefault(site, []).append((place, formula.source.seen))
            explained |= {id(part) for part in formula.parts}
            parts = [(part.name, part.origin[1]) for part in formula.parts if part.role]
            for other in listed:
                if other is not site and other.part_of is None and not other.nodes:
                    self._part(other, site, parts)

        self._list_others(explained)

    def _list_others(self, explained: set[int]) -> None:
        """List the operators on data that are neither harmless nor a part of anything that is listed."""
        in_graphs = {(id(site.owner.module), place_of(node)) for site in self.by_node.values() for node in site.members}
        for each in self.steps.ran:
            module, place = each.origin
            shown = place is not None and not place.helper and (id(module), place) in in_graphs
            each.known = each.known or shown or id(each.step) in explained
        listed: set[Any] = set()
        for each in unexplained(self.steps.ran):
            module, place = each.origin
            if (id(module), place, each.name) not in listed:
                listed.add((id(module), place, each.name))
                site = self._stray(module, Activation(each.name), not_linear(each.label, place))
                site.place = place
                self.observed.operators.append(site)

    def _part(self, site: Site, whole: Site, parts: list[tuple[str, Place | None]]) -> None:
        """Note that a site is a part of a formula, if all its calls are, or that it cannot be changed, if some are."""
        called = [(site.kind, place) for place, _ in self.observed.calls.get(site, ())]
        if called and all(call in parts for call in called):
            site.part_of = whole
        elif any(call in parts for call in called):
            site.fixed = f"it is a part of {whole.name} too"

    def _note(self, site: Site, x: Tensor, place: Place | None, record: Record | None) -> None:
        """Count what an activation is called with; the counting itself is not a part of the forward."""
        before, self.calling, self.muted = (self.calling, self.muted), True, True
        self.observed.note(site, x, place, record, self.alpha)
        self.calling, self.muted = before

    def _stray(self, module: nn.Module, activation: Activation, reason: str = "") -> Site:
        name = self.names[id(module)]
        reason = reason or out_of_reach("called where its forward does not show it", activation.kind)
        owner = self.network.traced.get(id(module)) or Traced(name, module, error="torch's own code calls it")
        site = fixed_site(owner, activation, activation.kind, reason)
        while site.name in self.taken:
            site.target += "_"
        self.taken.add(site.name)
        return site

    def call(self, call: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """A call of a module, registered or not."""
        if self.calling:
            return call(module, *args, **kwargs)
        inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        record = self._record(inputs[0]) if inputs else None
        self._running()
        self.calling = True  # of the module itself, to know it
        activation = self.network.activation(module) if inputs else None
        self.calling = False
        self.frames[-1].running.clear()
        frame, whole = self._enter(module, activation, inputs, record), None
        if activation is not None:
            function = partial(called_alone, module)
            whole = self._whole(activation.kind, function, inputs[:1], {}, activation.role)
        self.frames.append(frame)
        try:
            result = call(module, *args, **kwargs)
        finally:
            self.frames.pop()
        if whole is not None:
            self.calling = True  # of its shape, to note it
            whole(result)
            self.calling = False
        layer = activation is not None or is_affine(module) or self.network.is_norm(module)
        if layer and isinstance(result, Tensor) and record is not None:
            self.records[result] = Record(module, (record,))
            if activation is None:
                self.steps.affine(result)
        return result

    def entering(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The forward of a class that somebody may call directly, `self.block.forward(x)`, as a call of the module.

        A graph of the caller has what such a forward does as its own.
        """

        @wraps(forward)
        def run(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            caller = self.frames[-1]
            if self.calling or not caller.blind or caller.module is module or id(module) not in self.names:
                return forward(module, *args, **kwargs)
            self.frames.append(self._enter(module, None, [], None))
            try:
                return forward(module, *args, **kwargs)
            finally:
                self.frames.pop()

        return run

    def _enter(
        self, module: nn.Module, activation: Activation | None, inputs: list[Tensor], record: Record | None
    ) -> _Frame:
        caller = self.frames[-1] if getattr(self, "frames", None) else None
        inside = is_ours(module) or isinstance(module, ParametrizationList) or type(module) in INSIDE
        if type(module) in INSIDE:
            self.observed.inside.add(id(module))
        inside = inside or (caller is not None and caller.inside)
        if id(module) not in self.names and caller is not None:  # nobody registered it: it is a part of the caller
            if activation is not None and caller.blind:
                self.look(activation.kind, inputs[0], record, own=activation.default)
                inside = True
            return replace(caller, inside=True, whole=activation is not None) if inside else caller
        if activation is not None and not inside:
            self._activate(caller, module, inputs[0], record)
            inside = True
        traced = self.network.traced.get(id(module))
        known = codes(type(module)) if traced is not None else {}
        expressions = self.expressions.get(id(module), [])
        blind = traced is not None and traced.error is not None
        whole = activation is not None or (caller is not None and caller.whole)
        return _Frame(module, self._order(module), known, expressions, inside, blind, whole)

    def _activate(self, caller: _Frame | None, module: nn.Module, x: Tensor, record: Record | None) -> None:
        """A registered activation is called: by the name that the source or the graph of its caller has for it."""
        sites, place = self.by_module.get(id(module), []), None
        own = [site for site in sites if caller is not None and caller.module is site.owner.module]
        if caller is not None and own:
            place = running_place(caller.known, sys._getframe(3))
            written = called_names(type(caller.module)).get(place) if place is not None else None
            own = [site for site in own if site.target == written] or own
        elif caller is not None and self._called(caller, x, record):
            return
        sites = sites or self.shown_elsewhere.get(id(module), [])
        if sites:  # of several names that nothing tells apart, each call takes the next
            site = min(own or sites, key=lambda site: len(self.observed.calls.get(site, ())))
            if self.steps.is_weight(x):
                site.fixed = OF_A_PARAMETER
            self._note(site, x, place, record)

    def _called(self, frame: _Frame, x: Tensor, record: Record | None) -> bool:
        """The next activation of the frame's graph is called; whether there is one."""
        if frame.called == len(frame.order):
            return False
        site = frame.order[frame.called]
        frame.called += 1
        if site is not None:
            self._note(site, x, site.place, record)
        return True

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


def _same_formula(site: Site, kind: str, place: Place | None) -> bool:
    """Whether a site that is listed is the formula of this kind that ends at `place`."""
    if site.place is None or place is None:
        return bool(site.fixed or site.formula) and site.kind in (kind, FORMULA)
    source = site.expression.source if site.expression is not None else None
    whole = site.fixed is not None or site.formula is not None or source is not None
    return whole and site.place.holds(place) and not (source and source.holds(place))


class _Steps:
    """Tensors as functions of one another. What nobody noted is a constant: a parameter, or made from such."""

    def __init__(self) -> None:
        self.values: Any = WeakIdKeyDictionary()
        self.written: set[int] = set()
        self.weights: Any = WeakIdKeyDictionary()
        self.weighted: Any = WeakIdKeyDictionary()
        """What is computed from parameters in any way, and from no data."""
        self.operations: Any = WeakIdKeyDictionary()
        self.ran: list[Operation] = []

    def is_weight(self, tensor: Tensor) -> bool:
        """Whether this is a parameter, or computed from parameters number by number."""
        return isinstance(tensor, nn.Parameter) or tensor in self.weights

    def is_number(self, tensor: Tensor) -> bool:
        """Whether this is a floating-point input, or computed from such, or a mask of such."""
        step = self._step(tensor)
        mask = tensor.dtype == torch.bool and step is not None and step.base is not None
        return mask or (step is not None and tensor.is_floating_point())

    def start(self, tensors: Any) -> None:
        """The inputs of the model."""
        for tensor in tree_leaves(tensors):
            if isinstance(tensor, Tensor):
                self.values[tensor] = Step("input")

    def affine(self, result: Any) -> None:
        """A layer or a norm made this."""
        if isinstance(result, Tensor):
            self.values[result] = Step("layer", affine=True)

    def note(
        self,
        formulas: Formulas,
        func: Any,
        args: Any,
        kwargs: dict[str, Any],
        result: Any,
        role: Role,
        origin: Any,
        *,
        follow: bool,
        known: bool,
        within: str,
    ) -> None:
        """An operator made `result`; without `follow`, it is a new value whatever the operator does.

        It is `known` as a part of an activation; `within` is the function of torch that it is a part of.
        """
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        data = [each for each in tensors if self._step(each) is not None]
        results = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        name = plain_name(func)
        if not data and (is_pointwise(name) or name in MOVING) and any(self.is_weight(each) for each in tensors):
            for each in results:
                self.weights[each] = True
        if not data:
            if any(isinstance(each, nn.Parameter) or each in self.weighted for each in tensors):
                self.weighted.update((each, True) for each in results)
            return
        numbers = any(each.is_floating_point() or self.values[each].base is not None for each in data)
        arguments = tree_map_only(Tensor, lambda each: self._step(each) or each, (args, kwargs))
        stacked = is_of_stack(name, arguments[0])
        pointwise = follow and numbers and (stacked or (len(results) == 1 and _maps(name, args, data, results[0])))
        function = put if name == "index_put" else func
        if filled(name) is not None and len(results) == 1:
            function, arguments = filled(name) or func, (arguments[0][:1], {})
            pointwise = numbers and results[0].shape == args[0].shape
        if stacked and len(results) > 1:  # the largest and where it is
            function = partial(_first, function)
        step = formulas.made(name, function, arguments[0], arguments[1], origin, pointwise=pointwise, role=role)
        given = [self.operation(each) for each in data]
        weighted = any(isinstance(each, nn.Parameter) or each in self.weighted for each in tensors)
        for number, each in enumerate(results):
            self.values[each] = step if number == 0 else Step(name, origin=origin)
            floating = each.is_floating_point() or each.is_complex()
            made = operation(
                *(_named(func, args, kwargs, data) if within not in LOSSES else (within, within)),
                given,
                origin,
                floating=floating,
                weighted=weighted,
                constants=not weighted and len(data) < len(tensors),
            )
            made.step, made.known = (
                self.values[each],
                known or (within in WHOLE_CALLS and max(i.data for i in given) != Data.MASK),
            )
            self.operations[each] = made
            self.ran.append(made)
        if func._schema.is_mutable and isinstance(step, Step):
            step.ends.add(name)
            self.written |= {each.untyped_storage().data_ptr() for each in results}

    def operation(self, tensor: Tensor) -> Operation:
        """What made a value; an input of the model, or of an activation that is followed as a whole, begins anew."""
        if tensor not in self.operations:
            floating = tensor.is_floating_point() or tensor.is_complex()
            data = Data.NUMBERS if floating else Data.WHOLE
            self.operations[tensor] = Operation("value", "value", data, floating=floating, origin=(None, None))
        made: Operation = self.operations[tensor]
        return made

    def see(self, tensor: Tensor, record: Record) -> None:
        """Keep with a value what made it."""
        step = self.values.get(tensor)
        if step is not None and step.seen is None:
            step.seen = record

    def whole(
        self, formulas: Formulas, kind: str, function: Any, args: Any, kwargs: dict[str, Any], role: Role, origin: Any
    ) -> Callable[[Any], None] | None:
        """For a call that is one activation, what notes its result; None where its input is a constant."""
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        if not given or self._step(given[0]) is None:
            return None
        arguments = tree_map_only(Tensor, lambda each: self._step(each) or each, (tuple(args), kwargs))

        def note(result: Any) -> None:
            if isinstance(result, Tensor):
                pointwise = result.shape == given[0].shape
                step = formulas.made(kind, function, arguments[0], arguments[1], origin, pointwise=pointwise, role=role)
                self.values[result] = step
                self.operations.pop(result, None)
                if result is given[0] and isinstance(step, Step):
                    step.ends.add(kind)
                    self.written.add(result.untyped_storage().data_ptr())

        return note

    def before(self, func: Any, args: Any) -> Any:
        """The arguments, with a constant that is about to be overwritten as it is now."""
        constant = func._schema.is_mutable and isinstance(args[0], Tensor) and self._step(args[0]) is None
        return (args[0].clone(), *args[1:]) if constant else args

    def _step(self, tensor: Tensor) -> Step | None:
        step = self.values.get(tensor)
        if step is None and self.written and tensor.untyped_storage().data_ptr() in self.written:
            step = self.values[tensor] = Step("a part of it was written")
        return step  # type: ignore[no-any-return]


def _named(func: Any, args: Any, kwargs: dict[str, Any], data: list[Tensor]) -> tuple[str, str]:
    """The name of an operator, and the one that torch shows."""
    label = str(getattr(func, "__name__", func)).removesuffix(".default")
    if kwargs.get("rounding_mode") is not None:
        return "floor_divide", label
    return quotient(plain_name(func), [any(part is each for each in data) for part in args[:2]]), label


def _first(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)[0]


def _maps(name: str, args: Any, data: list[Tensor], result: Tensor) -> bool:
    """Whether an operator maps each number by itself, those under a mask of the same shape included."""
    if name in ("index", "index_put"):
        masks = [each for each in tree_leaves(args[1]) if isinstance(each, Tensor)]
        return len(masks) == 1 and masks[0].dtype == torch.bool and masks[0].shape == args[0].shape
    return is_pointwise(name) and any(each.shape == result.shape for each in data)


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator; those that no function of torch called, TorchScript's, are `hidden` in a helper."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch_private.graph_task() != -1:  # derivatives of what was noted going forward
            return func(*args, **(kwargs or {}))
        watch, called = self.watch, self.watch.calling
        watch.calling = True  # of the tensors, to note them
        kind = None if called else function_kind(func, args, kwargs or {})
        before = watch.steps.before(func, args)
        watch.calling, watch.hidden = called, not called
        result = func(*args, **(kwargs or {}))  # one that no function called comes to the watch here
        watch.calling, watch.hidden = True, False
        watch.operator(func, before, kwargs or {}, result, None if kind is None else Activation(kind).role)
        watch.calling = called
        return result


def observe(network: FlowGraph, sites: list[Site], example_inputs: Any, alpha: float | None) -> Observation:
    """What the activations saw in one forward, in evaluation mode."""
    watch = _Watch(network, sites, alpha)
    with ExitStack() as stack:
        forward = stack.enter_context(tried(network.model, example_inputs))
        watch.steps.start((forward.args, forward.keywords))
        for kind in (nn.Module, *own_calls(network.model.modules())):
            call = vars(kind)["__call__"]
            stack.enter_context(patch.object(kind, "__call__", lambda *a, _call=call, **k: watch.call(_call, *a, **k)))
        for kind in {_definer(type(traced.module)) for traced in network.traced.values()}:
            stack.enter_context(patch.object(kind, "forward", watch.entering(vars(kind)["forward"])))
        try:
            with watch, _Operators(watch):
                watch.returns(forward())
        except Exception as error:
            if _runs(network.model, example_inputs):
                raise ConversionError(
                    f"the model runs on example_inputs, but not while convert_ watches it without gradients "
                    f"({_first_line(error)}): leave example_inputs out"
                ) from error
            raise ConversionError(
                f"the model does not run on example_inputs ({_first_line(error)}): give what it is called with, "
                "e.g. torch.randn(8, 3, 224, 224), (x, mask) or {'input_ids': tokens}"
            ) from error
    watch.conclude()
    return watch.observed


def _definer(kind: type) -> type:
    """The class that has the forward of a class of modules."""
    return next(base for base in kind.__mro__ if "forward" in vars(base))


def _runs(model: nn.Module, example_inputs: Any) -> bool:
    """Whether a forward runs with gradients and unwatched."""
    try:
        with tried(model, example_inputs) as forward, torch.enable_grad():
            forward()
    except Exception:  # a forward is any code
        return False
    return True


def multiply_adds(model: nn.Module, example_inputs: Any) -> int:
    """Multiplications with an addition in one forward: those of matrix products and convolutions; 0 if none can count.

    A forward that differentiates has no place for the hooks by which torch counts, nor have views of parameters, which
    therefore ask for no gradients meanwhile.
    """
    asking = [parameter for parameter in model.parameters() if parameter.requires_grad and not parameter.is_inference()]
    with tried(model, example_inputs) as forward, FlopCounterMode(display=False) as counter:
        try:
            for parameter in asking:
                parameter.requires_grad_(False)
            forward()
        except RuntimeError:
            return 0
        finally:
            for parameter in asking:
                parameter.requires_grad_()
    return int(counter.get_total_flops()) // 2


@contextmanager
def parametrizations_at_rest(model: nn.Module) -> Iterator[None]:
    """Reading a weight changes nothing: in training mode each read is a step of spectral_norm's power iteration."""
    lists = [module for module in model.modules() if isinstance(module, ParametrizationList)]
    active = [part for each in lists for part in each.modules() if part.training]
    for part in active:
        part.training = False
    try:
        yield
    finally:
        for part in active:
            part.training = True


@contextmanager
def tried(model: nn.Module, example_inputs: Any, mode: bool | None = False) -> Iterator["partial[Any]"]:
    """A forward that leaves no trace: not in attributes, values, modes, random numbers or what it is given.

    It runs in evaluation mode, or, if `mode` is None, in the modes that modules are in. torch's transformer layers take
    the path that calls their parts, as they do with another activation: the fused one shows neither calls nor products.
    """
    args, kwargs = tree_map(_copied, _arguments(example_inputs))
    with (
        values_kept(model),
        nullcontext() if mode is None else in_mode(model, mode),
        attributes_kept(model.modules()),
        _unfused_attention(),
        torch.no_grad(),
        torch.random.fork_rng(devices=gpus(model)),
    ):
        yield partial(model, *args, **kwargs)


def seed(model: nn.Module) -> None:
    """Start every source of random numbers that a forward may draw from anew."""
    torch.default_generator.manual_seed(0)
    for device in gpus(model):
        torch.cuda.default_generators[device].manual_seed(0)
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)


@contextmanager
def _unfused_attention() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def gpus(model: nn.Module) -> list[int]:
    """The CUDA devices that a model is on, which have random numbers of their own."""
    return sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})


def _copied(value: Any) -> Any:
    """A copy of an argument, which a forward may change; the argument itself where there can be none."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever cannot be copied is given as it is
        return value


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A tensor is the one argument, a tuple all of them, a dict (or what behaves as one) those by name."""
    if hasattr(example_inputs, "keys") and hasattr(example_inputs, "__getitem__"):
        return (), {name: example_inputs[name] for name in example_inputs.keys()}  # noqa: SIM118 - not only dicts
    return (example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)), {}
