"""Each module's own forward as a torch.fx graph, with every child a leaf, in both training modes.

One module is traced at a time, so that a graph can replace one forward and leave all others alone.
"""

import dis
import functools
import inspect
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node, Proxy, Tracer
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from apical.convert.kinds import iadd, imul, ipow, is_ours, isub, itruediv
from apical.convert.outside import Lines, acts_outside, leaves_traces, lines_run, picks_modules, settings_read
from apical.convert.probe import OF_TORCH, containers_read, contents_kept, held
from apical.convert.source import (
    Expression,
    Mention,
    Place,
    called_names,
    codes,
    entries,
    has_source,
    methods,
    running_place,
)

MODES = (True, False)
"""The values of `module.training`."""


@dataclass(eq=False)
class Traced:
    """A module and the graph of its own forward in each mode, or the sentence that says why there is none.

    `words` are torch's own about that. `fixed` are the arguments that have one value in the graph (such as
    `mask=None`), `numbers` the values of arguments that are numbers. A forward with fixed arguments, without a graph,
    or that does more than a graph shows, `keeps_code`: its calls are changed in its source, where that can be read,
    and never in the graph. One that `acts_outside` has a graph that tells what feeds what, and must not be replaced by
    it. `settings` are the plain attributes that it reads (`self.scale`), of which a graph holds the values.
    """

    name: str
    module: nn.Module
    graphs: dict[bool, Graph] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    words: str = ""
    expressions: list[Expression] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    unseen: set[int] = field(default_factory=set)
    numbers: dict[str, list[float]] = field(default_factory=dict)
    keeps_code: bool = False
    acts_outside: bool = False
    settings: set[str] = field(default_factory=set)

    @property
    def signature(self) -> inspect.Signature:
        try:
            return inspect.signature(self.module.forward)
        except ValueError:  # a builtin function that is set as forward has none
            return inspect.signature(lambda x: x)

    def nodes(self) -> Iterator[tuple[bool, Node]]:
        for mode, graph in self.graphs.items():
            for node in graph.nodes:
                yield mode, node

    def arguments(self, call: Node) -> dict[str, Any] | None:
        """What `call` passes to this module, by parameter name; None where a graph does not show it (`*args`)."""
        try:
            return dict(self.signature.bind(*call.args, **call.kwargs).arguments)
        except TypeError:
            return None


class InPlaceProxy(Proxy):
    """A symbolic value that knows `x += y`: torch.fx would take it for `x = x + y`, which leaves other names alone."""

    def __iadd__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", iadd, (self, other), {})

    def __isub__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", isub, (self, other), {})

    def __imul__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", imul, (self, other), {})

    def __itruediv__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", itruediv, (self, other), {})

    def __ipow__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", ipow, (self, other), {})


class OwnForward(Tracer):
    """Traces one forward: every child is a leaf, parameters and buffers are read, never computed with."""

    proxy_buffer_attributes = True
    running: "OwnForward | None" = None

    def __init__(self, module: nn.Module, fixed: dict[str, Any]) -> None:
        super().__init__()
        self.fixed, self.codes = fixed, codes(type(module))
        self.read: dict[str, Any] = {}
        self.hidden = False
        self.written, self.names = called_names(type(module)), dict[int, list[str]]()
        self.calls: Counter[int] = Counter()
        for name, part in every_name(module):
            self.names.setdefault(id(part), []).append(name)

    def trace(self, *args: Any, **kwargs: Any) -> Graph:
        OwnForward.running = self
        try:
            return super().trace(*args, **kwargs)
        finally:
            OwnForward.running = None

    def create_node(self, *args: Any, **kwargs: Any) -> Node:
        node = super().create_node(*args, **kwargs)
        node.meta["place"] = running_place(self.codes, sys._getframe(1))
        if node.op == "get_attr":
            node.meta["value"] = functools.reduce(_stored, str(node.target).split("."), self.root)
        return node

    def path_of_module(self, mod: nn.Module) -> str:
        """The name by which a module is called; where the source does not say which of several, the next of a list."""
        names = sorted(self.names.get(id(mod), []), key=lambda name: "." not in name)
        place = running_place(self.codes, sys._getframe(1)) if len(names) > 1 else None
        if place is not None and (written := self.written.get(place)) in names:
            return written
        self.calls[id(mod)] += 1
        return names[min(self.calls[id(mod)], len(names)) - 1] if names else super().path_of_module(mod)

    def proxy(self, node: Node) -> Proxy:
        return InPlaceProxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of a child; torch's modules that nobody registered and that hold no values are functions."""
        held = has_own_forward(m) or any(True for _ in (*m.parameters(), *m.buffers()))
        if held or any(m is own for own in self.root.modules()):
            return super().call_module(m, forward, args, kwargs)
        return forward(*args, **kwargs)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        free: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.root.forward).parameters.items():
            if name not in self.fixed:
                default = () if parameter.default is parameter.empty else (parameter.default,)
                free[name] = self.create_proxy("placeholder", name, default, {})
        forward, fixed = self.root.forward, self.fixed
        return lambda *_: _call(forward, {**free, **fixed}), [self.root, *free.values()]


def _stored(module: Any, name: str) -> Any:
    """An attribute as it is stored: reading it would be traced."""
    for values in (vars(module), *(vars(module).get(each, {}) for each in ("_parameters", "_buffers", "_modules"))):
        if name in values:
            return values[name]
    return None


@contextmanager
def _patched_once(model: nn.Module) -> Iterator[None]:
    """The methods of nn.Module that a trace replaces, replaced once for all traces of a model.

    Each replacement clears what Python caches about every subclass of nn.Module, which took most of the time. fx
    leaves methods with this mark alone; one that knows no mark replaces them again, to the same effect. A `__call__` of
    a module's own is replaced too: what it does is a part of that module.
    """
    getattr_ = nn.Module.__getattr__

    def read(module: nn.Module, name: str) -> Any:
        value, tracer = getattr_(module, name), OwnForward.running
        return value if tracer is None else tracer.getattr(name, value, tracer.read)

    def calling(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            tracer = OwnForward.running
            if tracer is None:
                return call(module, *args, **kwargs)
            return tracer.call_module(module, functools.partial(call, module), args, kwargs)

        return run

    replaced: list[tuple[type, str, Callable[..., Any]]] = [(nn.Module, "__getattr__", read)]
    replaced += [
        (kind, "__call__", calling(vars(kind)["__call__"])) for kind in (nn.Module, *own_calls(model.modules()))
    ]
    with ExitStack() as stack:
        for kind, name, method in replaced:
            setattr(method, "__fx_already_patched", True)
            stack.enter_context(patch.object(kind, name, method))
        for holder, name in _HIDDEN:
            stack.enter_context(patch.object(holder, name, _noticed(vars(holder)[name])))
        yield


_HIDDEN: list[tuple[Any, str]] = [
    (torch.autograd.Function, "apply"),
    (torch.autograd.graph.saved_tensors_hooks, "__enter__"),
    (torch.autograd.profiler.record_function, "__enter__"),
    (torch.no_grad, "__enter__"),
    (torch.enable_grad, "__enter__"),
    (torch.inference_mode, "__enter__"),
    (torch.set_grad_enabled, "__init__"),
    (torch.autocast, "__enter__"),
    (torch, "is_grad_enabled"),
    (torch, "is_inference_mode_enabled"),
    (torch, "is_autocast_enabled"),
]
"""What a forward may call, itself or in a function of any library, and no graph holds: backward passes of their own,
contexts, and questions about those."""


def _noticed(member: Any) -> Any:
    """A function or class method that tells the running trace that it was called."""
    function = member.__func__ if isinstance(member, classmethod) else member

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if OwnForward.running is not None:
            OwnForward.running.hidden = True
        return function(*args, **kwargs)

    return classmethod(run) if isinstance(member, classmethod) else run


class _Computed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices what a forward computes, while it is traced, with tensors that it did not make itself.

    `sum(p.sum() for p in self.parameters())` and `self.table * 2` are numbers then, and a graph would hold them for
    good. Views share memory with what they show, so that memory tells who made a tensor.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: dict[int, Tensor] = {}
        self.foreign = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        if function is not torch.ops.aten.lift_fresh.default:  # `torch.tensor(0.0)` makes one out of sight
            self.foreign = self.foreign or not self.has_made(given)
        result = function(*args, **(kwargs or {}))
        self.made |= {_memory(value): value for value in tree_leaves(result) if isinstance(value, Tensor)}
        return result

    def has_made(self, tensors: Iterable[Tensor]) -> bool:
        """Whether all of these were made in this forward."""
        return all(_memory(tensor) in self.made for tensor in tensors)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def _call(forward: Callable[..., Any], values: dict[str, Any]) -> Any:
    positional, by_name = [], {}
    for name, parameter in inspect.signature(forward).parameters.items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(values[name])
        elif parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            by_name[name] = values[name]
    return forward(*positional, **by_name)


def place_of(node: Node) -> Place | None:
    """The expression of the forward's source that made this node."""
    place: Place | None = node.meta.get("place")
    return place


def trace(model: nn.Module, is_activation: Callable[[nn.Module], bool]) -> dict[int, Traced]:
    """Every module of `model` whose forward is its own, by id, parents before children; activations are not entered."""
    forwards: dict[int, Traced] = {}
    calls: dict[int, list[dict[str, Any]]] = {}
    entered = [each for each in _entered("", model, is_activation, set()) if has_own_forward(each[1])]
    for _, module in entered:
        methods(type(module))  # read before a `__call__` is replaced
    with values_kept(model), _patched_once(model):  # what a forward does to `self.parameters()` is done, not traced
        for name, module in entered:
            traced = forwards[id(module)] = _trace_module(name, module, calls.get(id(module), []))
            for _, node in traced.nodes():
                _record(node, module, calls)
    return forwards


def _entered(
    name: str, module: nn.Module, is_activation: Callable[[nn.Module], bool], seen: set[int]
) -> Iterator[tuple[str, nn.Module]]:
    if id(module) in seen or is_activation(module) or isinstance(module, ParametrizationList):
        return
    seen.add(id(module))
    yield name, module
    for child_name, child in module.named_children():
        yield from _entered(f"{name}.{child_name}".lstrip("."), child, is_activation, seen)


def every_name(
    module: nn.Module,
    enters: Callable[[nn.Module], bool] = lambda _: True,
    name: str = "",
    above: tuple[int, ...] = (),
) -> Iterator[tuple[str, nn.Module]]:
    """Every name of every module, shared ones included; `enters` says of a module whether to go on inside."""
    if id(module) in above:
        return
    yield name, module
    for child_name, child in module._modules.items() if enters(module) else ():
        if child is not None:
            yield from every_name(child, enters, f"{name}.{child_name}".lstrip("."), (*above, id(module)))


def has_own_forward(module: nn.Module) -> bool:
    """Whether `forward` is code that may hold or call activations; torch's own layers are known by their class."""
    if is_ours(module):
        return False
    return isinstance(module, nn.Sequential) or "forward" in vars(module) or bool(entries(type(module)))


def own_calls(modules: Iterable[nn.Module]) -> list[type]:
    """The classes of modules that have a `__call__` of their own."""
    bases = dict.fromkeys(base for kind in dict.fromkeys(map(type, modules)) for base in kind.__mro__)
    return [base for base in bases if "__call__" in vars(base) and _is_own_class(base)]


def _is_own_class(base: type) -> bool:
    return issubclass(base, nn.Module) and not base.__module__.startswith("torch.")


def _record(node: Node, owner: nn.Module, calls: dict[int, list[dict[str, Any]]]) -> None:
    if node.op == "call_module":
        child = owner.get_submodule(str(node.target))
        try:
            bound = inspect.signature(child.forward).bind(*node.args, **node.kwargs)
        except (TypeError, ValueError):  # a builtin function that is set as forward has no signature
            return
        calls.setdefault(id(child), []).append(dict(bound.arguments))


def _trace_module(name: str, module: nn.Module, calls: list[dict[str, Any]]) -> Traced:
    traced, hidden = Traced(name, module, settings=settings_read(module)), _enters_contexts(module)
    lines: Lines = set()
    try:
        traced.fixed = _fixed_arguments(module, calls)
        for mode in MODES:
            if traced.graphs and not _looks_at_training(module):
                traced.graphs[mode] = _copied(traced.graphs[MODES[0]])
                continue
            with in_mode(module, mode), attributes_kept(module.modules()):
                before = _random_states()
                tracer = OwnForward(module, traced.fixed)
                with torch.set_grad_enabled(torch.is_grad_enabled()), _Computed() as computed, lines_run() as run:
                    graph = traced.graphs[mode] = tracer.trace(module)
                lines |= run
                constants = _constants(graph)
                own = {id(buffer) for buffer in module.buffers()}
                made = computed.has_made(value for value in constants if id(value) not in own)
                hidden = hidden or tracer.hidden or computed.foreign or not made
                if hidden and not has_source(type(module)):
                    raise TypeError("it enters a context, has a backward pass of its own or computes with tensors "
                                    "from elsewhere, which no graph holds")  # fmt: skip
                if constants and not _equal(constants, _constants(OwnForward(module, traced.fixed).trace(module))):
                    raise TypeError("it creates different tensors on each call")
                if not _equal(before, _random_states()):
                    raise TypeError("it draws random numbers, and a graph would repeat one draw")
    except Exception as error:  # a forward is any code: whatever it raises on symbolic values is the reason
        traced.graphs, traced.error = {}, f"the forward of {type(module).__name__} could not be traced"
        traced.words = _first_sentence(error)
    no_graph = bool(traced.error or traced.fixed or hidden) or leaves_traces(module) or picks_modules(module)
    traced.keeps_code = no_graph and has_source(type(module))
    traced.acts_outside = not traced.keeps_code and acts_outside(module, lines)
    return traced


def _random_states() -> list[Any]:
    """The states of the sources of random numbers that a forward may draw from."""
    numpy: Any = sys.modules.get("numpy")
    return [torch.get_rng_state(), random.getstate(), *([] if numpy is None else numpy.random.get_state()[1:3])]


def _constants(graph: Graph) -> list[Any]:
    """The tensors that a forward made while it was traced."""
    nodes = [node for node in graph.nodes if node.op == "get_attr" and "_tensor_constant" in str(node.target)]
    return [node.meta["value"] for node in nodes]


def _equal(first: list[Any], second: list[Any]) -> bool:
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else bool((a == b).all() if hasattr(a, "all") else a == b)
        for a, b in pairs
    )


def _looks_at_training(module: nn.Module) -> bool:
    """Whether a forward may depend on the mode: its code, or a function that it calls, names `training`."""
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        return False
    return not has_source(type(module)) or any("training" in code.co_names for code in _codes_read(module))


def _enters_contexts(module: nn.Module) -> bool:
    """Whether a forward, or a function that it calls, has a `with` statement, of which a graph shows nothing."""
    return any(_has_with(code) for code in _codes_read(module))


def _codes_read(module: nn.Module) -> list[CodeType]:
    """The code of a module's methods and of the functions that they name."""
    known = methods(type(module))
    found = [method.function.__code__ for method in known.values()]
    for method in known.values():
        values = (method.function.__globals__.get(name) for name in method.function.__code__.co_names)
        found += [code for value in values if (code := getattr(value, "__code__", None)) is not None]
    return found


@functools.cache
def _has_with(code: CodeType) -> bool:
    if "/torch/" in code.co_filename:
        return False  # of its contexts, a trace notices those that matter
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return any(each.opname in ("BEFORE_WITH", "LOAD_SPECIAL") for each in dis.get_instructions(code)) or any(
        _has_with(each) for each in inner
    )


def _copied(graph: Graph) -> Graph:
    """The same graph with nodes of its own."""
    twin = Graph()
    twin.output(twin.graph_copy(graph, {}))
    return twin


def _fixed_arguments(module: nn.Module, calls: list[dict[str, Any]]) -> dict[str, Any]:
    """The arguments that decide how forward runs rather than what it computes on, with the one value they have."""
    fixed: dict[str, Any] = {}
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            fixed[name] = () if parameter.kind is parameter.VAR_POSITIONAL else {}
        elif isinstance(parameter.default, (type(None), bool, str)):
            values = [call.get(name, parameter.default) for call in calls] or [parameter.default]
            if not any(isinstance(value, Node) for value in values):
                if any(value != values[0] for value in values):
                    raise TypeError(f"it is called with different values of {name}")
                fixed[name] = values[0]
    return fixed


@contextmanager
def in_mode(model: nn.Module, mode: bool) -> Iterator[None]:
    """Every module of `model` in that mode, for a while."""
    before = [(module, module.training) for module in model.modules()]
    for module, _ in before:
        module.training = mode
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def values_kept(model: nn.Module) -> Iterator[None]:
    """Undo what a forward changes in parameters and buffers, be it through `.data`, of which torch keeps no count."""
    state = [tensor for tensor in (*model.parameters(), *model.buffers()) if not tensor.is_inference()]
    before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in state]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, version, value in before:
                if tensor.shape != value.shape:
                    tensor.data = value
                elif tensor._version != version or not same_values(tensor, value):
                    tensor.copy_(value)


def same_values(tensor: Tensor, value: Tensor) -> bool:
    """Whether two tensors of one device are equal; those of the device `meta` are."""
    return tensor.is_meta or (tensor.layout is torch.strided and torch.equal(tensor, value))


@contextmanager
def attributes_kept(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Undo what a forward sets on modules, in lists, tables and objects of theirs or of their code, or draws.

    torch's own random numbers are not among it.
    """
    numpy: Any = sys.modules.get("numpy")
    drawn = random.getstate(), numpy and numpy.random.get_state()
    before = [(module, dict(vars(module))) for module in modules]
    values = held(value for _, own in before for name, value in own.items() if name not in OF_TORCH)
    values += [value for _, own in before for name, value in own.items() if name in OF_TORCH]
    values += [value for each in {type(m): m for m, _ in before}.values() for value in containers_read(each)]
    try:
        with contents_kept(values):
            yield
    finally:
        for module, own in before:
            vars(module).clear()
            vars(module).update(own)
        random.setstate(drawn[0])
        if numpy is not None:
            numpy.random.set_state(drawn[1])


def _first_sentence(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
