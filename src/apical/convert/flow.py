"""Data flow through a model: where its activations are called, and what feeds them, across module boundaries.

The idea. Every module's own forward is one small graph whose children are leaves (trace.py), so the model is a forest
of graphs joined by calls: a placeholder of a child is an argument of its caller, a call of a child is the output of
the child's graph. A `Value` is a node of one of these graphs together with the calls that led there. From the input of
an activation the search walks backwards: over placeholders up into the only caller, over calls down into the child,
through identities, dropout and at most one normalisation, along both operands of a sum, until an affine layer, or
anything else, ends it. What ends in one affine layer is a `Feed`. Of several that a residual sum brings, the one whose
input is computed from the others' inputs is the block's last layer, and the neuron's. Graphs exist for training and
evaluation; an activation is the same in both when its calls align. Where there is no graph, an observed forward tells
(observation.py).
"""

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from itertools import product
from typing import Any

from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils._pytree import tree_leaves

from apical.convert.branch import WiredNeuron
from apical.convert.formula import (
    FORMULA,
    Formula,
    Formulas,
    Role,
    Step,
    as_function,
    filled,
    is_fresh,
    is_of_stack,
    is_pointwise,
    plain_name,
    setting,
)
from apical.convert.kinds import (
    FUNCTIONS,
    GATES,
    IDENTITIES,
    INSIDE,
    NORM_FUNCTIONS,
    NORMS,
    Further,
    HeldFunction,
    Selection,
    call_as_function,
    call_in_place,
    call_input,
    call_kind,
    further,
    is_addition,
    is_affine,
    is_of_parameters,
    is_ours,
    module_kind,
    written_class,
)
from apical.convert.operators import Data, Operation, unexplained
from apical.convert.outside import named_elsewhere
from apical.convert.probe import changes_shape, elementwise, is_bent, module_function, overwrites, whole_activation
from apical.convert.source import (
    Calls,
    Expression,
    Method,
    Place,
    called_names,
    dormant,
    hooks,
    methods,
    not_linear,
    out_of_reach,
    read,
    read_names,
    unknown,
)
from apical.convert.trace import MODES, Traced, every_name, has_own_forward, place_of, same_values, trace
from apical.errors import ConversionError

AFFINE_FUNCTIONS = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
OF_A_PARAMETER = "it is called with a parameter, and with no data"
SHAPE_READS = ("ndim", "shape", "dtype", "device", "is_cuda", "size", "dim")
MOVING = {
    "view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "transpose", "swapaxes", "permute", "movedim",
    "squeeze", "unsqueeze", "contiguous", "split", "chunk", "narrow", "select", "getitem", "mean",
    *(f"{how}_pool{n}d" for how in ("max", "avg", "adaptive_max", "adaptive_avg") for n in (1, 2, 3)),
}  # fmt: skip
"""What a second layer's values can go through as well as the first one's: it works on places, not on what is there."""
MOVING_MODULES = (
    nn.Flatten, nn.Unflatten, nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd, nn.modules.pooling._AdaptiveMaxPoolNd,
)  # fmt: skip
MAKING = {
    *AFFINE_FUNCTIONS, *(function.__name__ for function in NORM_FUNCTIONS), "cat", "concat", "stack", "matmul", "bmm",
    "mm", "addmm", "baddbmm", "softmax", "log_softmax", "sum", "mean", "scaled_dot_product_attention", "embedding",
    *(name for name in MOVING if "_pool" in name),
}  # fmt: skip
"""Calls whose result has memory of its own, beside those that map each number by itself."""
MAKING_MODULES = (*(kind for kind in MOVING_MODULES if kind not in (nn.Flatten, nn.Unflatten)), nn.Embedding)
DROPOUTS = (nn.modules.dropout._DropoutNd,)
DROPOUT_FUNCTIONS = (
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout",
)  # fmt: skip
UNCALLED = "no forward that was traced calls it"
ALONE = Further()
"""What a call passes beside its input that passes nothing else."""


@dataclass(frozen=True)
class Activation:
    """What is known of an activation: its kind, other names it goes by, whether it is chosen without being asked."""

    kind: str
    names: tuple[str, ...] = ()
    default: bool = False

    @property
    def role(self) -> Role:
        """Whether it is one by itself, or a gate, which may be a part of a larger one."""
        return "gate" if self.kind in GATES and not self.default else "whole"


@dataclass(eq=False)
class Site:
    """One call of an activation: a module (`module`, under `target` in its owner), a function or an expression.

    `nodes` holds the call in each mode of the owner's forward, `starts` its input; a call of one mode alone has one
    entry, a call in a forward without a graph none. `expression` is the same call in the source. Where `fixed` is set,
    it says why the activation has to stay. A `formula` is an activation of several steps; the calls it consists of are
    `part_of` it, and not activations for themselves. `suspected`: the source does not tell whether they are.
    `written_alone`: its expression in the source is this activation and no other. A module may be called with numbers
    beside its input: `further` has those of each call, `...` for one that is not known.
    """

    owner: Traced
    activation: Activation
    target: str
    module: nn.Module | None
    call: int = 1
    nodes: dict[bool, Node] = field(default_factory=dict)
    starts: dict[bool, Any] = field(default_factory=dict)
    members: set[Node] = field(default_factory=set)
    expression: Expression | None = None
    place: Place | None = None
    fixed: str | None = None
    formula: Formula | None = None
    part_of: "Site | None" = None
    suspected: bool = False
    written_alone: bool = False
    further: list[Further] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.activation.kind

    @property
    def name(self) -> str:
        """The qualified name that `filter_fn` sees."""
        return f"{self.owner.name}.{self.target}".lstrip(".")

    @property
    def label(self) -> str:
        return self.name if self.call == 1 else f"{self.name} (call {self.call})"

    @property
    def slot(self) -> tuple[nn.Module, str]:
        """The module that holds the activation, and the name it has there."""
        path, _, name = self.target.rpartition(".")
        return self.owner.module.get_submodule(path), name

    @property
    def in_place(self) -> bool:
        """Whether it changes its input, as far as calling it tells."""
        if self.module is not None:
            widths = (*(p.numel() for p in self.module.parameters() if p.numel() > 1), 3)
            function = module_function(self.module)
            if function is None:
                return bool(getattr(self.module, "inplace", False))
            return any(overwrites(_with(function, call), widths) for call in self.further or [ALONE])
        if self.expression is not None and self.formula is None:
            return overwrites(self.expression.function)
        return any(map(self._writes, self.nodes.values()))

    def _writes(self, node: Node) -> bool:
        function = call_as_function(node) if self.formula is None else None
        return call_in_place(node) if function is None else overwrites(function)

    @property
    def is_mixed(self) -> bool:
        """Whether it changes its input in one mode alone: `F.relu(x, inplace=not self.training)`."""
        return self.module is None and len(set(map(self._writes, self.nodes.values()))) > 1

    def is_at(self, place: Place | None) -> bool:
        """Whether a place is a part of its expression, and not of the input of that."""
        own = self.expression
        return own is not None and own.place.holds(place) and not own.source.holds(place)

    @property
    def written(self) -> str:
        """How the network writes it."""
        if self.module is not None:
            return written_class(self.module)
        if self.expression is not None and self.kind not in self.expression.text:
            return self.expression.text
        return f"a formula{self.place or ''}" if self.kind == FORMULA else f"{self.kind}()"

    @property
    def original(self) -> Callable[[Tensor], Any] | None:
        """The activation as a function of its input, which it may overwrite; None where other values decide too."""
        several = self.formula is not None and any(len(values) > 1 for values in self.owner.numbers.values())
        if self.expression.varies if self.expression is not None else several:
            return None
        if (formula := self.formula) is not None:
            return lambda x: formula(x.cpu().double()).to(x)  # where its constants are
        if self.module is not None:
            return _with(self.module.forward, (self.further or [ALONE])[0])
        if self.expression is not None:
            return self.expression.function
        if self.nodes:
            return call_as_function(next(iter(self.nodes.values())))
        return getattr(self.owner.module, self.target, None)

    @property
    def learned(self) -> bool:
        """Whether what it computes depends on parameters."""
        if self.module is not None:
            given = tree_leaves(self.further)
            return any(isinstance(each, nn.Parameter) for each in (*given, *self.module.parameters()))
        if self.formula is not None:
            return self.formula.learned
        return self.expression.learned if self.expression else any(map(is_of_parameters, self.nodes.values()))

    @property
    def function(self) -> Callable[[Tensor], Any] | None:
        """What the activation computes, or None where that is learned, random, or depends on other values."""
        function = self.original
        if any(each is ... for each in tree_leaves(self.further)) or len({repr(c[:2]) for c in self.further}) > 1:
            return None
        if function is None or self.kind == "rrelu" or self.fixed is not None or self.learned:
            return None
        return lambda x: function(x.clone())


@dataclass(frozen=True)
class Value:
    """A node of a module's graph, with the calls (`trail`) that lead there from the module where the walk began."""

    owner: Traced
    node: Node
    trail: tuple[tuple[Traced, Node], ...] = ()
    above: bool = False


@dataclass(frozen=True)
class Feed:
    """The affine layer that feeds an activation, the norm between them, and every value passed on the way back.

    `moves` are the calls on the way that rearrange, select or pool values, and the norm among them, in the order in
    which they run; empty where nothing does.
    """

    affine: Value
    norm: Value | None
    additions: int
    path: tuple[Value, ...]
    dropped: bool = False
    moves: tuple[Value, ...] = ()


_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def _is_copy(first: nn.Module, second: nn.Module) -> bool:
    """Whether two modules have the same parts and values."""
    kinds = [[(name, type(part)) for name, part in module.named_modules()] for module in (first, second)]
    values = [[*module.parameters(), *module.buffers()] for module in (first, second)]
    if kinds[0] != kinds[1] or len(values[0]) != len(values[1]):
        return False
    pairs = zip(*values, strict=True)
    return all(a.device == b.device and same_values(a, b) for a, b in pairs)


class FlowGraph:
    """The traced modules of a model and the calls between them; `aliases` are second names of modules."""

    def __init__(self, model: nn.Module, selection: Selection, aliases: Collection[tuple[nn.Module, str]] = ()) -> None:
        self.model, self.selection, self.aliases = model, selection, aliases
        self._activations: dict[int, Activation | None] = {}
        self._feeds: dict[int, bool] = {}
        self._shared: dict[Node, list[Node]] = {}
        self._further: dict[int, list[tuple[Traced, Place, Further | None]]] = {}
        self._names: set[str | None] | None = None
        self.traced = trace(model, lambda module: self.activation(module) is not None)
        self.callers: dict[tuple[int, bool], list[tuple[Traced, Node]]] = {}
        self.reads: set[int] = set()
        self.open: set[int] = set()
        self.live: list[Traced] = []
        self.entered: set[int] = set()
        self.unread: dict[str, str] = {}
        self.doubtful: list[str] = []
        """The forwards without a graph in which something may run that nothing lists."""
        self.leaving: list[Site] = []
        """Values that leave torch, as far as the source tells: no activations, but listed like them."""
        self.unknown: list[Site] = []
        """Calls of code that nothing tells, where no graph shows what they do: listed likewise."""
        self.operators: list[Site] = []
        """Calls of functions that are not linear, and that are no part of an activation, as far as code tells."""
        self.dormant: list[Site] = []
        """Activations that do not run as long as attributes of their modules are what they are: listed likewise."""
        self._visit(model)
        registered = {id(module) for module in model.modules()}
        for traced in self._forwards():
            follow = bool(traced.error or traced.fixed)
            traced.numbers = self._numbers(traced)
            traced.expressions, traced.mentions, calls, doubts = read(
                traced.module, registered, traced.numbers, follow=follow
            )
            traced.unseen = self._unseen(traced, calls)
            self.open |= traced.unseen
            chosen = [self._is_chosen(Activation(each.kind, default=each.default)) for each in doubts]
            if traced.error and (any(chosen) or any(each.unknown for each in doubts)):
                self.doubtful.append(traced.name or "(the model)")
            shown = [place_of(node) for _, node in traced.nodes()]
            self.unknown += [
                fixed_site(traced, Activation(each.kind), each.kind, each.reason, each.place)
                for each in doubts
                if each.unknown and (traced.error or not (each.place is None or any(map(each.place.holds, shown))))
            ]
            for called, place, beside in calls if traced.error or traced.keeps_code else ():
                self._further.setdefault(id(called), []).append((traced, place, beside))
            traced.keeps_code = traced.keeps_code or any(
                _is_call(e.place) and self.chosen(_expression_site(traced, e, "")) for e in traced.expressions
            )

    def _numbers(self, traced: Traced) -> dict[str, list[float]]:
        """The arguments of a forward that are numbers: what other forwards call it with, or else the default."""
        module, signature = traced.module, traced.signature
        calls: list[Further | None] = [further(n) for m in MODES for _, n in self.callers.get((id(module), m), [])]
        calls += [beside for _, _, beside in self._further.get(id(module), [])]
        given: list[dict[str, Any]] = []
        for call in calls:
            with suppress(TypeError):  # a call that is never made
                given.append({} if call is None else signature.bind(None, *call.args, **call.kwargs).arguments)
        numbers: dict[str, list[float]] = {}
        for name, parameter in signature.parameters.items():
            values = [call.get(name, parameter.default) for call in given] or [parameter.default]
            if all(type(value) in (int, float) for value in values) and None not in calls:
                numbers[name] = list(dict.fromkeys(values))
        return numbers

    def _forwards(self) -> list[Traced]:
        """The forwards of the model's own code that may run."""
        return [traced for traced in self.traced.values() if id(traced.module) in self.entered]

    def _visit(self, module: nn.Module) -> None:
        """Follow the calls from `module` on; what code that could not be traced holds may be called by anyone."""
        if id(module) in self.entered or is_ours(module) or self.activation(module) is not None:
            return
        self.entered.add(id(module))
        traced = self.traced.get(id(module))
        if traced is None or traced.error is not None:
            self.open |= {id(child) for child in module.modules() if child is not module}
            for child in module.children():
                self._visit(child)
            return
        self.live.append(traced)
        for mode, node in traced.nodes():
            if node.op == "call_module":
                child = self.resolve(traced, node)
                self.callers.setdefault((id(child), mode), []).append((traced, node))
                self._visit(child)
            elif node.op == "get_attr":
                self.reads.add(id(module.get_submodule(str(node.target).rpartition(".")[0])))

    def _unseen(self, traced: Traced, calls: Calls) -> set[int]:
        """The layers and activations that a forward with fixed arguments also has where its graph does not show it."""
        shown = {place_of(node) for _, node in traced.nodes() if node.op == "call_module"}
        called = [child for child, place, _ in calls if place not in shown]
        layers = {id(child) for child in called if is_affine(child) or self.activation(child) is not None}
        hidden = {id(e) for e in traced.expressions if not any(_members(traced, e).values())}
        return layers | hidden if traced.fixed and not traced.error else set()

    @staticmethod
    def resolve(owner: Traced, node: Node) -> nn.Module:
        """The module that this call_module node calls."""
        return owner.module.get_submodule(str(node.target))

    def activation(self, module: nn.Module) -> Activation | None:
        """What is known of a module that is one activation, torch's or anybody's; None for all others."""
        if id(module) not in self._activations:
            self._activations[id(module)] = self._recognised(module)
        return self._activations[id(module)]

    def _recognised(self, module: nn.Module) -> Activation | None:
        name = type(module).__name__
        if isinstance(module, self.selection.also):
            if is_affine(module) or changes_shape(module):
                raise ConversionError(
                    f"also names {name}, which is not elementwise, so an activation cannot replace it: "
                    "leave it out of also"
                )
            return Activation(module_kind(module) or name, (name,))
        if isinstance(module, HeldFunction):
            return _held_activation(module)
        if (kind := module_kind(module)) is not None:
            return Activation(kind, (name,))
        if module is self.model or is_ours(module) or not has_own_forward(module):
            return None
        answer = whole_activation(module)
        return None if answer is None else Activation(answer.kind or name, (name,), not (answer.kind or answer.gate))

    def slots(self, module: nn.Module) -> int:
        """The number of places that hold a module."""
        return sum(child is module for parent in self.model.modules() for child in parent._modules.values())

    @cached_property
    def basal(self) -> set[int]:
        """The activations that are the basal ones of wired neurons, by id."""
        return {id(module.basal) for module in self.model.modules() if isinstance(module, WiredNeuron)}

    @cached_property
    def frozen_copies(self) -> dict[int, nn.Module]:
        """The layers of frozen copies (a target network, a moving average) by id, and the layers they are copies of.

        The code that lets a copy follow needs both of one structure.
        """
        copies: dict[int, nn.Module] = {}
        for parent in self.model.modules():
            parts = [part for part in dict.fromkeys(parent.children()) if not is_affine(part)]
            frozen = [part for part in parts if not any(p.requires_grad for p in part.parameters())]
            inner = [each for part in frozen for each in _unwrapped(part)]
            for copy, source in product(inner, parts if not isinstance(parent, _CONTAINERS) else ()):
                if any(p.requires_grad for p in source.parameters()) and _is_copy(copy, source):
                    copies |= {id(a): b for a, b in zip(copy.modules(), source.modules(), strict=True) if is_affine(a)}
        return copies

    def named_elsewhere(self, part: nn.Module) -> str | None:
        """The name of a layer under which code beside the forwards that a graph shows may look for it."""
        names = {name for module in self.model.modules() for name, child in module._modules.items() if child is part}
        return next(iter(sorted(names & self._named_elsewhere)), None)

    @cached_property
    def _named_elsewhere(self) -> frozenset[str]:
        kinds = {type(module) for module in self.model.modules()}
        return frozenset(name for kind in kinds for name in named_elsewhere(kind))

    def chosen(self, site: Site) -> bool:
        """Whether the conversion is about this activation."""
        return self._is_chosen(site.activation, site.module)

    def _is_chosen(self, known: Activation, module: nn.Module | None = None) -> bool:
        return self.selection.accepts(known.kind, known.names, own=known.default, module=module)

    def sites(self) -> list[Site]:
        """Every activation: calls in forwards that run, modules that no call was seen of, what torch's code holds."""
        by_node = {node: s for traced in self.live for s in self._own_sites(traced) for node in s.nodes.values()}
        called = list(dict.fromkeys(by_node[node] for node in self._in_order() if node in by_node))
        slots = {*self.aliases, *(site.slot for site in called if site.module is not None)}
        held = [site for site in self._walk() if (site.owner.module, site.target) not in slots]
        unread = {site for site in held if self._is_unread(site)}
        named = {id(site.module) for site in (*called, *held) if site not in unread}
        held = [site for site in held if site not in unread or id(site.module) not in named]
        for site in (*called, *held):
            self.note_further(site)
        self._note_looks([*called, *held])
        return called + held + self._unplaced(called, held)

    def _note_looks(self, sites: list[Site]) -> None:
        """Activations that a forward knows by their class or reads an attribute of stay: another has neither."""
        known: dict[type, list[Look]] = {}
        for traced in self._forwards():
            kind = type(traced.module)
            if kind not in known:
                known[kind] = [look for method in methods(kind).values() for look in _looks(method)]
            for look in known[kind]:
                inside = {*traced.module.modules()}
                for site in sites:
                    if site.module in inside and site.fixed is None and look.meets(traced.module, site.module):
                        site.fixed = f"the forward of {kind.__name__} {look.words}"

    def _is_unread(self, site: Site) -> bool:
        """Whether no forward calls a module by this name; another name of it may be called."""
        if site.owner.error == UNCALLED and id(site.module) not in self.open:
            return True
        if site.nodes or id(site.owner.module) not in self.traced or isinstance(site.owner.module, nn.Sequential):
            return False
        if self._names is None:
            kinds = {type(traced.module) for traced in self._forwards()}
            own = [read_names(kind) for kind in kinds if kind.forward is not nn.Sequential.forward]
            self._names = {None} if None in own else {name for names in own for name in names or ()}
        return None not in self._names and site.target not in self._names

    def places(self, site: Site) -> list[Place]:
        """Where the forward that holds an activation calls it by this name, as far as its source tells."""
        names = called_names(type(site.owner.module))
        written = [place for traced, place, _ in self._further.get(id(site.module), []) if traced is site.owner]
        return list(dict.fromkeys(place for place in written if names.get(place, site.target) == site.target))

    def note_further(self, site: Site) -> None:
        """What an activation is called with beside its input; one that other data decide about stays."""
        calls = [further(node) for node in site.nodes.values() if site.module is not None]
        if not calls or site.owner.keeps_code:
            written = self._further.get(id(site.module), [])
            calls = [beside for _, place, beside in written if site.nodes or site.place in (None, place)]
        site.further = [call for call in calls if call is not None]
        if None in calls:
            site.fixed = (
                "it is called with other data beside its input, which a new one would not take: apply those after it"
            )

    def _unplaced(self, called: list[Site], held: list[Site]) -> list[Site]:
        """The expressions in forwards that keep their code and that no graph shows; what is out of reach of all."""
        sites: list[Site] = []
        placed = {id(site.expression) for site in called if site.expression}
        taken = {(id(site.owner.module), site.target) for site in called}
        for traced in self._forwards():
            names, keeps = _Names(traced.module, taken), bool(traced.error or traced.fixed)
            unplaced = [e for e in traced.expressions if id(e) not in placed]
            places = [place_of(node) for _, node in traced.nodes()]
            asleep = [e for e in unplaced if not (keeps or _is_call(e.place) or any(map(e.place.holds, places)))]
            awake = [e for e in asleep if traced.keeps_code]
            written = [e for e in unplaced if keeps or _is_call(e.place) or e in awake]
            mentions = [*traced.mentions, *(dormant(e) for e in asleep if e not in awake)]
            sites += [_expression_site(traced, expression, names(expression.kind)) for expression in written]
            shown = {call_kind(node) for _, node in traced.nodes()}
            computed = {site.kind for site in called if site.owner is traced and site.nodes}
            own = [site for site in (*called, *sites) if site.owner is traced]
            for mention in mentions:
                if mention.dormant:
                    known = Activation(mention.kind, default=mention.default)
                    if self._is_chosen(known):
                        name = names(known.kind)
                        self.dormant.append(fixed_site(traced, known, name, mention.reason, mention.place))
                    continue
                if mention.operator:
                    if traced.error or not any(map(mention.place.holds, places) if mention.place else places):
                        kind = Activation(mention.kind)
                        self.operators.append(fixed_site(traced, kind, names(kind.kind), mention.reason, mention.place))
                    continue
                if mention.leaves:
                    known = Activation(mention.kind)
                    self.leaving.append(fixed_site(traced, known, names(known.kind), mention.reason, mention.place))
                    continue
                if mention.steps:
                    hidden = not any(mention.place and mention.place == site.place for site in own)
                else:
                    hidden = mention.formula or (keeps and mention.kind not in shown)
                    hidden = hidden and mention.kind not in computed
                if hidden:
                    activation = Activation(mention.kind, default=mention.default)
                    name = names(mention.kind)
                    sites.append(fixed_site(traced, activation, name, mention.reason, mention.place))
                    sites[-1].suspected = mention.suspected
                for part in (*own, *held) if hidden else ():
                    if part.place in mention.parts or id(part.module) in mention.modules:
                        part.part_of = sites[-1]
        return sites + self._hooked()

    def _hooked(self) -> list[Site]:
        """What forward hooks apply."""
        sites: list[Site] = []
        registered = {id(module) for module in self.model.modules()}
        for name, module in self.model.named_modules():
            mentions, unread = hooks(module, registered)
            owner = self.traced.get(id(module)) or Traced(name, module, error="a hook calls it")
            names = _Names(module)
            for m in mentions:
                activation, place = Activation(m.kind, default=m.default), m.place if m.leaves else None
                site = fixed_site(owner, activation, names(m.kind), m.reason, place)
                (self.leaving if m.leaves else sites).append(site)
            if unread:
                self.unread[name] = "the source of a forward hook cannot be read"
                hook = unknown("hook")
                self.unknown.append(fixed_site(owner, Activation(hook.kind), hook.kind, hook.reason))
        return sites

    def _walk(self) -> Iterator[Site]:
        """Every place of a module that is an activation, without regard to calls."""
        enters = lambda m: self.activation(m) is None and not isinstance(m, ParametrizationList)  # noqa: E731
        for name, module in every_name(self.model, enters):
            parent, _, target = name.rpartition(".")
            activation = self.activation(module)
            if activation is not None:
                holder = self.model.get_submodule(parent) if name else module
                if not is_ours(holder):
                    yield Site(self._holder(parent, holder), activation, target, module)
            elif (kind := INSIDE.get(type(module))) is not None:
                kind = getattr(module, "nonlinearity", kind)
                what = f"torch's {type(module).__name__} applies it in its own code"
                holder = self.model.get_submodule(parent)
                yield Site(Traced(parent, holder, error=what), Activation(kind), target, module, fixed=what)

    def _holder(self, name: str, holder: nn.Module) -> Traced:
        """The owner of an activation that no graph shows a call of; its forward, where it is readable, has the call."""
        known = self.traced.get(id(holder))
        if known is not None and known.error:
            return known
        return Traced(name, holder, error=self._why_unseen(name))

    def _why_unseen(self, name: str) -> str:
        """Why no call was seen in the module of that name: a forward around it that could not be traced, or none."""
        while True:
            traced = self.traced.get(id(self.model.get_submodule(name)))
            if traced is not None and traced.error:
                return traced.error
            if not name:
                return UNCALLED
            name = name.rpartition(".")[0]

    def blind(self) -> list[Traced]:
        """The modules whose forward could not be traced."""
        return [traced for traced in self._forwards() if traced.error]

    def _in_order(self) -> Iterator[Node]:
        """The nodes of all forwards that run, in the order in which they run first."""
        seen: set[Traced] = set()
        for traced in self.live:
            yield from self._from(traced, seen)

    def _from(self, traced: Traced, seen: set[Traced]) -> Iterator[Node]:
        if traced in seen:
            return
        seen.add(traced)
        for _, node in traced.nodes():
            child = self.traced.get(id(self.resolve(traced, node))) if node.op == "call_module" else None
            if child is not None and not child.error:
                yield from self._from(child, seen)
            yield node

    def _own_sites(self, traced: Traced) -> list[Site]:
        """The activations in one graph: its calls, and what it computes step by step."""
        sites = self._calls(traced)
        return sites + self._formulas(traced, sites)

    def _calls(self, traced: Traced) -> list[Site]:
        """The calls in one graph; those in the range of an expression of several calls are that expression."""
        aligned, names = align(traced.graphs), _Names(traced.module)
        sites: dict[Node, Site] = {}
        whole = {node: e for e in traced.expressions for nodes in _members(traced, e).values() for node in nodes}
        written: dict[int, Site] = {}
        weights = {mode: _weights(graph) for mode, graph in traced.graphs.items()}
        for mode, node in traced.nodes():
            module = self.resolve(traced, node) if node.op == "call_module" else None
            activation = self.activation(module) if module is not None else _call_activation(node)
            if node in weights[mode]:
                continue
            expression = whole.get(node)
            if expression is not None and traced.keeps_code:
                if id(expression) not in written:
                    name = names(expression.kind)
                    site = written[id(expression)] = _expression_site(traced, expression, name)
                    _attach(site, traced)
                    sites[node] = site
                continue
            if activation is None:
                continue
            twin = aligned.get(node)
            if twin in sites:
                site = sites[twin]
                site.nodes[mode], site.starts[mode] = node, call_input(node)
                site.members.add(node)
                continue
            target = str(node.target) if module is not None else _free(node.name, traced.module)
            call = names.count(target) if module is not None else 1
            place = place_of(node)
            sites[node] = Site(
                traced,
                activation,
                target,
                module,
                call,
                {mode: node},
                {mode: call_input(node)},
                {node},
                expression if expression is not None and _members(traced, expression)[mode] == [node] else None,
                place,
            )
            given = call_input(node)
            if isinstance(given, Node) and isinstance(given.meta.get("value"), nn.Parameter):
                sites[node].fixed = OF_A_PARAMETER
        return list(sites.values())

    def _formulas(self, traced: Traced, sites: list[Site]) -> list[Site]:
        """The activations that a graph computes step by step; a part of one is not an activation for itself."""
        known = {node: site for site in sites for node in site.members}
        names = _Names(traced.module, {(id(traced.module), site.target) for site in sites})
        aligned, formulas = align(traced.graphs), dict[Any, Site]()
        for mode, graph in traced.graphs.items():
            steps = self._steps(traced, graph, known)
            for formula in reversed([*steps.formulas()]):
                nodes: list[Node] = [step.origin for step in formula.parts]
                within = known.get(nodes[0])
                if within is not None and within.expression is not None and within.members >= set(nodes):
                    continue  # the forward keeps its code, and an expression there is this formula
                place = place_of(nodes[0])
                key: Any = aligned.get(nodes[0], nodes[0])  # a loop runs one place of the source several times
                if traced.keeps_code and place is not None:
                    key = (formula.kind, place)
                if key not in formulas:
                    formulas[key] = self._formula_site(traced, formula, nodes, names, mode)
                site = formulas[key]
                site.nodes[mode], site.starts[mode] = nodes[0], formula.source.origin
                site.members |= set(nodes)
                for part in {known[node] for node in nodes if node in known}:
                    part.part_of = site
            self._note_operators(traced, steps.operations, {*known, *(n for s in formulas.values() for n in s.members)})
        return list(formulas.values())

    def _note_operators(self, traced: Traced, operations: list[Operation], known: set[Node]) -> None:
        """Keep the calls in a graph that are neither harmless nor a part of an activation."""
        for each in operations:
            node = each.origin[1]
            each.known = each.known or node in known or isinstance(node.target, type)  # a class of results holds values
        for each in unexplained(operations):
            place = place_of(each.origin[1])
            site = fixed_site(traced, Activation(each.name), each.name, not_linear(each.label, place), place)
            if not any(other.name == site.name and other.place == place for other in self.operators):
                self.operators.append(site)

    def _formula_site(self, traced: Traced, formula: Formula, nodes: list[Node], names: "_Names", mode: bool) -> Site:
        """The site of a formula; where an expression of the source is the same, it has the name and text of that."""
        same = (e for e in traced.expressions if set(_members(traced, e)[mode]) == set(nodes))
        written = next(same, None)
        kind = written.kind if written is not None and formula.kind == FORMULA else formula.kind
        place = place_of(nodes[0])
        site = fixed_site(traced, Activation(kind, default=formula.default), names(kind), "", place)
        in_place = [node for node in nodes if call_in_place(node)]
        last_alone = in_place == [nodes[0]] and call_input(nodes[0]) is formula.source.origin
        if formula.bare or traced.keeps_code or not formula.closed or (in_place and not last_alone):
            site.fixed = out_of_reach(formula.words(place or ""), kind)
        else:
            site.fixed, site.formula, site.expression = None, formula, written
        return site

    def _steps(self, traced: Traced, graph: Graph, known: dict[Node, Site]) -> Formulas:
        """What a graph computes, each value as a function of one other."""
        formulas, values, weights = Formulas(), dict[Node, Any](), _weights(graph)
        for node in graph.nodes:
            module = self.resolve(traced, node) if node.op == "call_module" else None
            activation = self.activation(module) if module is not None else _call_activation(node)
            if node in weights:
                activation = None
            layer = module is not None and activation is None
            name, pointwise = "module" if layer else plain_name(node.target), activation is not None
            function: Any = None if module is None or not pointwise else module_function(module)
            if node.op == "placeholder" and str(node.target) in traced.numbers:
                values[node] = traced.numbers[str(node.target)][0]
                continue
            if node.op == "get_attr":
                values[node] = node.meta.get("value")
                if isinstance(values[node], Tensor):
                    continue
            elif node.target is getattr and (given := setting(node.args[1])) is not None:
                values[node] = given
                continue
            elif _reads_shape(node):
                values[node] = Step(name, origin=node, operation=Operation(name, name, Data.WHOLE))
                continue
            elif node.op in ("call_function", "call_method"):
                function = filled(name) or as_function(node.target)
                pointwise = pointwise or is_pointwise(name) or node in weights
            arguments = map_arg((node.args, dict(node.kwargs)), values.__getitem__)
            pointwise = pointwise or is_of_stack(name, arguments[0])
            if filled(name) and isinstance(arguments[0][0], Step):
                arguments, pointwise = (arguments[0][:1], {}), True
            pointwise = pointwise and function is not None
            values[node] = step = formulas.made(
                name, function, *arguments, node, pointwise=pointwise, role=activation.role if activation else None
            )
            if node.op not in ("placeholder", "output"):
                origin = (traced.module, node)
                formulas.note(step, _noted(node, name), *arguments, origin, known=activation is not None)
            if isinstance(step, Step) and module is not None and activation is None:
                step.affine = is_affine(module) or self.is_norm(module)
            if call_in_place(node) and node.all_input_nodes and pointwise:
                values[node.all_input_nodes[0]] = step
        return formulas

    def clear(self, sites: list[Site], cleared: Collection[Site]) -> list[Site]:
        """The sites without suspected ones that are none: what they consisted of stands for itself."""
        for site in sites:
            site.part_of = None if site.part_of in cleared else site.part_of
        return [site for site in sites if site not in cleared]

    def is_read_again(self, site: Site) -> bool:
        """Whether an activation overwrites its input, and that may be read later by another name than the result's."""
        if not site.in_place:
            return False
        if site.owner.error or site.owner.keeps_code or not site.nodes:
            return True
        return any(self._is_read(site.owner, node, site.starts[mode], mode) for mode, node in site.nodes.items())

    def _is_read(self, owner: Traced, call: Node, value: Any, mode: bool) -> bool:
        """Whether what shares memory with `value` may be read after `call`: in this graph, or by who called it."""
        if owner.error or owner.keeps_code or not isinstance(value, Node):
            return True
        shared, nodes = {value}, [*call.graph.nodes]
        for node in reversed(nodes[: nodes.index(call)]):
            if node in shared:
                shared |= set(self._shares(owner, node, mode))
        for node in nodes:
            if node is not call and shared & set(self._shares(owner, node, mode)):
                shared.add(node)
        later = {node for node in nodes[nodes.index(call) + 1 :] if not _reads_shape(node)}
        if any(node.op == "get_attr" or later & set(node.users) for node in shared):
            return True
        given = [str(node.target) for node in shared if node.op == "placeholder"]
        callers = self.callers.get((id(owner.module), mode), [])
        if given and (not callers or id(owner.module) in self.open):
            return True
        told = [(caller, at, owner.arguments(at)) for caller, at in callers]
        if given and any(arguments is None for *_, arguments in told):
            return True
        passed = [(caller, at, arguments.get(name)) for caller, at, arguments in told if arguments for name in given]
        return any(isinstance(each, Node) and self._is_read(caller, at, each, mode) for caller, at, each in passed)

    def _shares(self, owner: Traced, node: Node, mode: bool) -> list[Node]:
        """The inputs of a call whose memory its result may share."""
        if node not in self._shared:
            self._shared[node] = self._asked_shares(owner, node, mode)
        return self._shared[node]

    def _asked_shares(self, owner: Traced, node: Node, mode: bool) -> list[Node]:
        if node.op == "call_module":
            module = self.resolve(owner, node)
            child = self.traced.get(id(module))
            if child is None:
                fresh = is_affine(module) or isinstance(module, (*NORMS, *MAKING_MODULES)) or is_ours(module)
                fresh = fresh or (self.activation(module) is not None and not getattr(module, "inplace", False))
                return [] if fresh else node.all_input_nodes
            result = None if child.error or child.keeps_code else output(child.graphs[mode])
            if result is None:
                return node.all_input_nodes
            shared = {result}
            for inner in reversed(result.graph.nodes):
                if inner in shared:
                    shared |= set(self._shares(child, inner, mode))
            passed = child.arguments(node)
            if passed is None:
                return node.all_input_nodes
            given = [passed.get(str(each.target)) for each in shared if each.op == "placeholder"]
            return [each for each in given if isinstance(each, Node)]
        if node.op not in ("call_function", "call_method") or _reads_shape(node):
            return []
        name = plain_name(node.target)
        if call_in_place(node):
            return node.all_input_nodes[:1]
        return [] if is_fresh(name) or name in MAKING else node.all_input_nodes

    def is_norm(self, module: nn.Module) -> bool:
        """Whether a module normalises and does nothing else."""
        if not isinstance(module, NORMS):
            return False
        traced = self.traced.get(id(module))
        if traced is None:
            return True
        calls = [node for _, node in traced.nodes() if node.op == "call_module"]
        return not traced.error and all(isinstance(self.resolve(traced, node), IDENTITIES) for node in calls)

    def feed(self, site: Site, mode: bool) -> Feed | str:
        """The affine layer that feeds `site` in this mode, or the reason why there is none."""
        start = site.starts.get(mode)
        if not isinstance(start, Node):
            return "its input is not one tensor, or its call runs several times: make it a module"
        ends: list[str] = []
        feeds = list(self._search(Value(site.owner, start), mode, (), None, 0, ends))
        if any(feed.additions for feed in feeds):
            feeds = [feed for feed in feeds if not feed.moves] or feeds
            feeds = [feed for feed in feeds if not feed.affine.above] or feeds
        if not feeds:
            return not_fed(ends[0] if ends else "a constant")
        if len(feeds) == 1:
            return feeds[0]
        main = [feed for feed in feeds if all(other is feed or self._after(feed, other) for other in feeds)]
        main = main or self._widest(feeds)
        names = ", ".join(str(feed.affine.node.target) for feed in feeds)
        return main[0] if len(main) == 1 else f"several affine layers feed it alike ({names})"

    def _search(
        self, value: Value, mode: bool, path: tuple[Value, ...], norm: Value | None, additions: int, ends: list[str]
    ) -> Iterator[Feed]:
        value, path = self._through(value, mode, path)
        node, path = value.node, (*path, value)
        module = self.resolve(value.owner, node) if node.op == "call_module" else None
        if self.is_feed(module):
            moves = [each for each in reversed(path) if self._moves(each)]
            if moves and norm is not None:
                moves = [each for each in reversed(path) if each == norm or self._moves(each)]
            yield Feed(value, norm, additions, path, any(self._is_dropout(each) for each in path), tuple(moves))
        elif self._moves(value) and isinstance(source := call_input(node), Node):
            yield from self._search(_at(value, source), mode, path, norm, additions, ends)
        elif norm is None and (
            (module is not None and self.is_norm(module))
            or (node.target in NORM_FUNCTIONS and isinstance(value.owner.module, NORMS))
        ):
            source = call_input(node)
            if isinstance(source, Node):
                yield from self._search(_at(value, source), mode, path, value, additions, ends)
        elif is_addition(node) and norm is None:
            inner: list[str] = []
            for operand in node.all_input_nodes:
                yield from self._search(_at(value, operand), mode, path, norm, additions + 1, inner)
            of_model = [end for end in inner if end == "the input of the model"]
            unknown_inputs = [end for end in inner if "the input of" in end and end not in of_model]
            ends += [self._describe(value, None)] if of_model and not unknown_inputs else inner
        else:
            before = "" if norm is None else "a normalisation of "
            ends.append(before + self._describe(value, module))

    def _describe(self, value: Value, module: nn.Module | None) -> str:
        node = value.node
        if module is not None:
            return f"{node.target} ({written_class(module)})"
        if node.op == "placeholder":
            return f"the input of {value.owner.name or 'the model'}"
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        return f"a sum ({name})" if is_addition(node) else name

    def _through(self, value: Value, mode: bool, path: tuple[Value, ...]) -> tuple[Value, tuple[Value, ...]]:
        """Go back through identities and module boundaries to a value that something computes."""
        while (before := self._before(value, mode)) is not None:
            path = (*path, value)
            value = before
        return value, path

    def _before(self, value: Value, mode: bool) -> Value | None:
        node = value.node
        if node.op == "placeholder":
            return self._caller_argument(value, mode)
        module = self.resolve(value.owner, node) if node.op == "call_module" else None
        passes = isinstance(module, IDENTITIES) or self._is_dropout(value)
        if passes and isinstance(source := call_input(node), Node):
            return _at(value, source)
        if module is None:
            return None
        child = self.traced.get(id(module))
        if child is None or child.error or is_affine(module) or self.is_norm(module) or self.activation(module):
            return None
        if child.arguments(node) is None:
            return None
        result = output(child.graphs[mode])
        return Value(child, result, (*value.trail, (value.owner, node)), value.above) if result is not None else None

    def is_feed(self, module: nn.Module | None) -> bool:
        """Whether a layer is affine in what it computes: a subclass of torch's layers may apply an activation too."""
        if module is None or not is_affine(module):
            return False
        if id(module) not in self._feeds:
            self._feeds[id(module)] = not (has_own_forward(module) and is_bent(module))
        return self._feeds[id(module)]

    def _moves(self, value: Value) -> bool:
        """Whether a call rearranges, selects or pools values, and computes nothing else."""
        node = value.node
        if node.op == "call_module":
            return isinstance(self.resolve(value.owner, node), MOVING_MODULES)
        return node.op in ("call_function", "call_method") and plain_name(node.target) in MOVING

    def _is_dropout(self, value: Value) -> bool:
        node = value.node
        if node.op == "call_module":
            return isinstance(self.resolve(value.owner, node), DROPOUTS)
        return node.op == "call_function" and plain_name(node.target) in DROPOUT_FUNCTIONS

    def _caller_argument(self, value: Value, mode: bool) -> Value | None:
        """The value that the caller passes for a placeholder: the caller on the trail, or the only one there is."""
        if value.trail:
            owner, call = value.trail[-1]
            trail, above = value.trail[:-1], value.above
        else:
            callers = self.callers.get((id(value.owner.module), mode), [])
            if len(callers) != 1 or id(value.owner.module) in self.open:
                return None
            (owner, call), trail, above = callers[0], (), True
        argument = (value.owner.arguments(call) or {}).get(str(value.node.target))
        return Value(owner, argument, trail, above) if isinstance(argument, Node) else None

    def _after(self, feed: Feed, other: Feed) -> bool:
        """Whether `feed`'s layer is further along: its input is computed from the other's, or by more layers."""
        inputs = [_at(each.affine, call_input(each.affine.node)) for each in (feed, other)]
        first, target = (self._source(value) for value in inputs)
        own, others = ({(value.owner, value.node) for value in self._before_it(value)} for value in (first, target))
        layers = [{(owner, node) for owner, node in each if self._holds_layer(owner, node)} for each in (own, others)]
        return ((target.owner, target.node) in own and target.node is not first.node) or layers[1] < layers[0]

    def _before_it(self, value: Value) -> list[Value]:
        """All values that a value is computed from, and itself."""
        done: dict[tuple[Traced, Node], Value] = {}
        waiting = [value]
        while waiting:
            value = self._source(waiting.pop())
            if (value.owner, value.node) not in done:
                done[value.owner, value.node] = value
                waiting.extend(_at(value, node) for node in value.node.all_input_nodes)
        return list(done.values())

    def _holds_layer(self, owner: Traced, node: Node) -> bool:
        return node.op == "call_module" and any(is_affine(part) for part in self.resolve(owner, node).modules())

    def _widest(self, feeds: list[Feed]) -> list[Feed]:
        """Of layers beside one another on the same input, the one with the most weights."""
        inputs = {self._source(_at(feed.affine, call_input(feed.affine.node))).node for feed in feeds}
        layers = [self.resolve(feed.affine.owner, feed.affine.node) for feed in feeds]
        sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
        return [feeds[sizes.index(max(sizes))]] if len(inputs) == 1 else []

    def _source(self, value: Value) -> Value:
        while value.node.op == "placeholder" and value.trail:
            argument = self._caller_argument(value, mode=True)
            if argument is None:
                break
            value = argument
        return value

    @staticmethod
    def used_once(site: Site, path: tuple[Value, ...]) -> bool:
        """Whether every value on `path` is used by the next alone, shape reads aside."""
        users = [{user for user in value.node.users if not _reads_shape(user)} for value in path]
        return all(len(each) == 1 or each <= site.members for each in users)

    def entered_by(self, feeds: Iterable[Feed]) -> list[nn.Module]:
        """The modules whose calls lead to the values on the way from the activation to its layer."""
        trails = [call for feed in feeds for value in feed.path for call in value.trail]
        return list(dict.fromkeys(self.resolve(owner, node) for owner, node in trails))

    @cached_property
    def holders(self) -> Counter[int]:
        """How many names each parameter and buffer has in the model, attributes and lists of such included."""
        held: Counter[int] = Counter()
        for module in self.model.modules():
            held.update(id(tensor) for tensor in (*module._parameters.values(), *module._buffers.values()))
            others = [value for name, value in vars(module).items() if name not in _TORCHS_OWN]
            held.update(id(each) for each in tree_leaves(others) if isinstance(each, Tensor))
        return held

    def modes(self, module: nn.Module) -> set[bool]:
        """The modes in which this module is called."""
        return {mode for mode in MODES if self.callers.get((id(module), mode))}

    def called_once(self, module: nn.Module) -> bool:
        """Whether one call, in either mode, is all that uses this module."""
        calls = {mode: self.callers.get((id(module), mode), []) for mode in MODES}
        alone = all(len(each) <= 1 for each in calls.values()) and any(calls.values())
        return alone and id(module) not in self.open and id(module) not in self.reads


@dataclass(frozen=True)
class Look:
    """Where the code of a forward looks at a module, and not at what it computes: at its class, or at an attribute.

    `path` is the module's name in the forward's own module, None where any module may be meant.
    """

    path: str | None
    words: str
    kinds: tuple[type, ...] = ()
    attribute: str = ""

    def meets(self, owner: nn.Module, module: Any) -> bool:
        """Whether it looks at this module."""
        if self.path is not None:
            with suppress(AttributeError):
                return owner.get_submodule(self.path) is module and (
                    isinstance(module, self.kinds) or (self.attribute != "" and hasattr(module, self.attribute))
                )
            return False
        return isinstance(module, self.kinds)


def _looks(method: Method) -> Iterator[Look]:
    """`isinstance(k, nn.ReLU)`, `type(k) is nn.ReLU` and `self.act.negative_slope` in a method."""
    called = {id(node.func) for node in ast.walk(method.tree) if isinstance(node, ast.Call)}
    for node in ast.walk(method.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and len(node.args) == 2:
            asked, wanted = node.args
        elif (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Call)
            and ast.unparse(node.left.func) == "type"
            and node.left.args
        ):
            asked, wanted = node.left.args[0], node.comparators[0]
        elif isinstance(node, ast.Attribute) and (path := _own_path(node.value, method.self)):
            if id(node) not in called and not hasattr(nn.Module, node.attr) and node.attr not in _TORCHS_OWN:
                yield Look(path, f"reads its {node.attr}", attribute=node.attr)
            continue
        else:
            continue
        if kinds := _module_classes(wanted, method):
            names = " or ".join(each.__name__ for each in kinds)
            yield Look(_own_path(asked, method.self) or None, f"asks whether it is a {names}", kinds)


def _own_path(node: ast.expr, own: str) -> str:
    """`block.act` for `self.block.act`; empty for anything else."""
    start, _, path = ast.unparse(node).partition(".") if isinstance(node, ast.Attribute) else ("", "", "")
    return path if start == own and path.replace(".", "_").isidentifier() else ""


def _module_classes(node: ast.expr, method: Method) -> tuple[type, ...]:
    """The classes of modules that an expression names; nn.Module itself says nothing."""
    nodes = [each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute))]
    free = zip(method.function.__code__.co_freevars, method.function.__closure__ or (), strict=True)
    nonlocals: dict[str, Any] = {}
    for name, cell in free:
        with suppress(ValueError):  # it is empty
            nonlocals[name] = cell.cell_contents
    kinds: dict[type, None] = {}
    for each in nodes:
        first, *names = ast.unparse(each).split(".")
        value = nonlocals.get(first, method.function.__globals__.get(first))
        for name in names:
            value = getattr(value, name, None)
        if isinstance(value, type) and issubclass(value, nn.Module) and value is not nn.Module:
            kinds[value] = None
    return tuple(kinds)


_TORCHS_OWN = frozenset(vars(nn.Module()))


def own_attributes(module: nn.Module) -> list[str]:
    """The attributes of a module that its class does not give it."""
    given: set[str] = set(_TORCHS_OWN)
    for kind in type(module).__mro__:
        given |= {*vars(kind).get("__constants__", ()), *vars(kind).get("__annotations__", ())}
        code = getattr(vars(kind).get("__init__"), "__code__", None)
        given |= {*code.co_names} if code is not None else set()
    return [name for name in vars(module) if name not in given]


def not_fed(end: str) -> str:
    """The sentence about an activation whose input comes from `end`."""
    end = end.strip("_")
    if end.removeprefix("a normalisation of ") in AFFINE_FUNCTIONS:
        return f"it is fed by a call of {end}() and not by an affine layer that is a module of its own"
    return f"it is fed by {end}, not by an affine layer"


def align(graphs: dict[bool, Graph]) -> dict[Node, Node]:
    """For the nodes of the second graph, the same call in the first, where there is one."""
    if len(graphs) < 2:
        return {}
    first, second = ([*graph.nodes] for graph in graphs.values())
    calls = [[(node.op, node.target) for node in nodes] for nodes in (first, second)]
    matcher = SequenceMatcher(None, calls[0], calls[1], autojunk=False)
    return {
        second[block.b + i]: first[block.a + i] for block in matcher.get_matching_blocks() for i in range(block.size)
    }


def _at(value: Value, node: Node) -> Value:
    return Value(value.owner, node, value.trail, value.above)


def output(graph: Graph) -> Node | None:
    """What a forward returns, where that is one value."""
    result = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    return result if isinstance(result, Node) else None


def _noted(node: Node, name: str) -> str:
    """The name of a call for the last look at it: of what topk, sort and max give, the second says where that was."""
    if node.target is getattr:
        return "argsort" if node.args[1] == "indices" else "getitem"
    second = name == "getitem" and node.args[1] == 1 and isinstance(node.args[0], Node)
    return "argsort" if second and plain_name(node.args[0].target) in _PAIRS else name  # type: ignore[union-attr]


_PAIRS = ("topk", "sort", "max", "min", "kthvalue", "median", "mode")


def _reads_shape(node: Node) -> bool:
    if node.target is getattr:
        return node.args[1] in SHAPE_READS
    return node.op == "call_method" and node.target in SHAPE_READS


def _free(name: str, module: nn.Module) -> str:
    """The name of a function's call, which a module that nothing calls may have too; so Surgery.add names it."""
    while hasattr(module, name):
        name += "_"
    return name


class _Names:
    """Names for calls of functions, as torch.fx counts them: relu, relu_1, ...; those of the module's own are taken."""

    def __init__(self, module: nn.Module, taken: Collection[tuple[int, str]] = ()) -> None:
        self._module, self._taken, self._counts = module, taken, dict[str, int]()

    def count(self, name: str) -> int:
        self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts[name]

    def __call__(self, name: str) -> str:
        while True:
            count = self.count(name)
            numbered = name if count == 1 else f"{name}_{count - 1}"
            if not hasattr(self._module, numbered) and (id(self._module), numbered) not in self._taken:
                return numbered


def _with(function: Callable[..., Any], further: Further) -> Callable[[Tensor], Any]:
    return lambda x: function(x, *further.args, **further.kwargs)


def _call_activation(node: Node) -> Activation | None:
    kind = call_kind(node)
    return None if kind is None else Activation(kind)


def _held_activation(module: HeldFunction) -> Activation:
    """What is known of a function that is kept as an attribute."""
    kind = FUNCTIONS.get(module.function)
    answer = elementwise(module.function)
    if kind is None and answer is not None:
        kind = answer.kind
    return Activation(kind or module.name, (module.name,), answer is not None and not (kind or answer.gate))


def _expression_site(traced: Traced, expression: Expression, target: str) -> Site:
    activation = Activation(expression.kind, default=expression.default)
    return Site(traced, activation, target, None, expression=expression, place=expression.place)


def _unwrapped(part: nn.Module) -> Iterator[nn.Module]:
    """A module, and what it wraps: its one child (torch's AveragedModel holds the average so)."""
    yield part
    inner = list(part.children())
    if len(inner) == 1 and not part._parameters:
        yield from _unwrapped(inner[0])


def _weights(graph: Graph) -> set[Node]:
    """The parameters that a graph reads, parts of such, and what it computes from them number by number."""
    weights = set[Node]()
    for node in graph.nodes:
        called = node.op in ("call_function", "call_method")
        maps = called and (is_pointwise(plain_name(node.target)) or plain_name(node.target) in MOVING)
        if node.op == "get_attr" or (maps and node.all_input_nodes and weights.issuperset(node.all_input_nodes)):
            weights.add(node)
    return weights


def _is_call(place: Place) -> bool:
    """Whether a place is in a `__call__` of the module's own, which no graph shows."""
    return place.method == "__call__"


def _members(traced: Traced, expression: Expression) -> dict[bool, list[Node]]:
    """The nodes that an expression makes in each graph, those of its input left out."""
    return {
        mode: [
            node
            for node in graph.nodes
            if node.op.startswith("call_")
            and expression.place.holds(place := place_of(node))
            and not expression.source.holds(place)
        ]
        for mode, graph in traced.graphs.items()
    }


def _attach(site: Site, traced: Traced) -> None:
    """The nodes of an expression's site, and its input; an expression that runs several times has no one input."""
    assert site.expression is not None
    for mode, members in _members(traced, site.expression).items():
        outside = {node for member in members for node in member.all_input_nodes if node not in members}
        outside = {node for node in outside if node.op != "get_attr"}
        if members:
            site.nodes[mode] = members[-1]
            site.starts[mode] = outside.pop() if len(outside) == 1 else None
            site.members |= set(members)


def fixed_site(traced: Traced, activation: Activation, target: str, reason: str, place: Place | None = None) -> Site:
    """A site for what cannot be replaced."""
    return Site(traced, activation, target, None, fixed=reason, place=place)
