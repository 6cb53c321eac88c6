"""Data flow through a model: where its activations are called, and what feeds them, across module boundaries."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from torch import nn
from torch.fx import Graph, Node

from apical.convert import transformer
from apical.convert.kinds import (
    IDENTITIES,
    NORM_FUNCTIONS,
    NORMS,
    call_in_place,
    call_input,
    call_kind,
    is_addition,
    is_affine,
    is_ours,
    module_kind,
)
from apical.convert.trace import MODES, Traced, trace

SHAPE_READS = ("ndim", "shape", "dtype", "device", "is_cuda", "size", "dim")


@dataclass(eq=False)
class Site:
    """One call of an activation: a module (`module`, under `target` in its owner) or a function (`module` is None).

    `nodes` holds the call in each mode of the owner's forward; a call of one mode alone has one entry.
    """

    owner: Traced
    kind: str
    target: str
    module: nn.Module | None
    call: int = 1
    nodes: dict[bool, Node] = field(default_factory=dict)

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
        if self.module is not None:
            return bool(getattr(self.module, "inplace", False))
        return any(call_in_place(node) for node in self.nodes.values())


@dataclass(frozen=True)
class Value:
    """A node of a module's graph, with the calls (`trail`) that lead there from the module where the walk began."""

    owner: Traced
    node: Node
    trail: tuple[tuple[Traced, Node], ...] = ()
    above: bool = False


@dataclass(frozen=True)
class Feed:
    """The affine layer that feeds an activation, the norm between them, and every value passed on the way back."""

    affine: Value
    norm: Value | None
    additions: int
    path: tuple[Value, ...]


class Network:
    """The traced modules of a model and the calls between them."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.traced = trace(model)
        self.callers: dict[tuple[int, bool], list[tuple[Traced, Node]]] = {}
        self.reads: set[int] = set()
        self.open: set[int] = set()
        self.live: list[Traced] = []
        self._visit(model, set())

    def _visit(self, module: nn.Module, seen: set[int]) -> None:
        """Follow the calls from `module` on; what code that could not be traced holds may be called by anyone."""
        if id(module) in seen or is_ours(module):
            return
        seen.add(id(module))
        traced = self.traced.get(id(module))
        if traced is None or traced.error is not None:
            self.open |= {id(child) for child in module.modules() if child is not module}
            for child in module.children():
                self._visit(child, seen)
            return
        self.live.append(traced)
        for mode, node in traced.nodes():
            if node.op == "call_module":
                child = self.resolve(traced, node)
                self.callers.setdefault((id(child), mode), []).append((traced, node))
                self._visit(child, seen)
            elif node.op == "get_attr":
                self.reads.add(id(module.get_submodule(str(node.target).rpartition(".")[0])))

    @staticmethod
    def resolve(owner: Traced, node: Node) -> nn.Module:
        """The module that this call_module node calls."""
        return owner.module.get_submodule(str(node.target))

    def kind(self, module: nn.Module) -> str | None:
        """The kind of activation that a module is: torch's own class, or a forward that is one such call."""
        if (kind := module_kind(module)) is not None:
            return kind
        traced = self.traced.get(id(module))
        if traced is None or traced.error or [*module.parameters(), *module.children()]:
            return None
        kinds = {_single_call(graph) for graph in traced.graphs.values()}
        return kinds.pop() if len(kinds) == 1 else None

    def sites(self, kinds: tuple[str, ...]) -> list[Site]:
        """Every call of an activation of `kinds` in the forwards that run, then modules that no call was seen of."""
        owners = [traced for traced in self.live if self.kind(traced.module) is None]
        by_node = {node: s for traced in owners for s in self._own_sites(traced, kinds) for node in s.nodes.values()}
        called = list(dict.fromkeys(by_node[node] for node in self._in_order() if node in by_node))
        slots = {site.slot for site in called}
        return called + [site for site in self._walk(kinds) if (site.owner.module, site.target) not in slots]

    def _walk(self, kinds: tuple[str, ...]) -> Iterator[Site]:
        """Every place of a module that is an activation, without regard to calls."""
        for name, module in self.model.named_modules(remove_duplicate=False):
            if (kind := self.kind(module)) in kinds and kind is not None:
                parent, _, target = name.rpartition(".")
                if not is_ours(holder := self.model.get_submodule(parent) if name else module):
                    yield Site(Traced(parent, holder, error=self._why_unseen(parent)), kind, target, module)
            elif (kind := transformer.activation_kind(module)) in kinds and kind is not None:
                yield Site(Traced(name, module, error="torch's own code calls it"), kind, "activation", None)

    def _why_unseen(self, name: str) -> str:
        """Why no call was seen in the module of that name: a forward around it that could not be traced, or none."""
        while True:
            traced = self.traced.get(id(self.model.get_submodule(name)))
            if traced is not None and traced.error:
                return f"the forward of {type(traced.module).__name__} could not be traced ({traced.error})"
            if not name:
                return "no forward that was traced calls it"
            name = name.rpartition(".")[0]

    def blind(self) -> list[Traced]:
        """The modules whose forward could not be traced."""
        return [traced for traced in self.traced.values() if traced.error]

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

    def _own_sites(self, traced: Traced, kinds: tuple[str, ...]) -> list[Site]:
        aligned = align(traced.graphs)
        found: dict[Node, Site] = {}
        counts: dict[str, int] = {}
        for mode, node in traced.nodes():
            module = self.resolve(traced, node) if node.op == "call_module" else None
            kind = self.kind(module) if module is not None else call_kind(node)
            if kind is None or kind not in kinds:
                continue
            twin = aligned.get(node)
            if twin in found:
                found[twin].nodes[mode] = node
                continue
            target = str(node.target) if module is not None else node.name
            counts[target] = counts.get(target, 0) + 1
            found[node] = Site(traced, kind, target, module, counts[target], {mode: node})
        return list(found.values())

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
        start = call_input(site.nodes[mode])
        if not isinstance(start, Node):
            return "its input is not one tensor"
        ends: list[str] = []
        feeds = list(self._search(Value(site.owner, start), mode, (), None, 0, ends))
        if any(feed.additions for feed in feeds):
            feeds = [feed for feed in feeds if not feed.affine.above] or feeds
        if not feeds:
            return f"it is fed by {ends[0] if ends else 'a constant'}, not by an affine layer"
        if len(feeds) == 1:
            return feeds[0]
        main = [feed for feed in feeds if all(other is feed or self._after(feed, other) for other in feeds)]
        names = ", ".join(str(feed.affine.node.target) for feed in feeds)
        return main[0] if len(main) == 1 else f"several affine layers feed it alike ({names})"

    def _search(
        self, value: Value, mode: bool, path: tuple[Value, ...], norm: Value | None, additions: int, ends: list[str]
    ) -> Iterator[Feed]:
        value, path = self._through(value, mode, path)
        node, path = value.node, (*path, value)
        module = self.resolve(value.owner, node) if node.op == "call_module" else None
        if is_affine(module):
            yield Feed(value, norm, additions, path)
        elif norm is None and (
            (module is not None and self.is_norm(module))
            or (node.target in NORM_FUNCTIONS and isinstance(value.owner.module, NORMS))
        ):
            source = call_input(node)
            if isinstance(source, Node):
                yield from self._search(_at(value, source), mode, path, value, additions, ends)
        elif is_addition(node) and norm is None:
            for operand in node.all_input_nodes:
                yield from self._search(_at(value, operand), mode, path, norm, additions + 1, ends)
        else:
            before = "" if norm is None else "a normalisation of "
            ends.append(before + self._describe(value, module))

    def _describe(self, value: Value, module: nn.Module | None) -> str:
        node = value.node
        if module is not None:
            return f"{node.target} ({type(module).__name__})"
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
        if node.op != "call_module":
            return None
        module = self.resolve(value.owner, node)
        if isinstance(module, IDENTITIES) and isinstance(source := call_input(node), Node):
            return _at(value, source)
        child = self.traced.get(id(module))
        if child is None or child.error or is_affine(module) or self.is_norm(module) or self.kind(module):
            return None
        result = output(child.graphs[mode])
        return Value(child, result, (*value.trail, (value.owner, node)), value.above) if result is not None else None

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
        argument = value.owner.arguments(call).get(str(value.node.target))
        return Value(owner, argument, trail, above) if isinstance(argument, Node) else None

    def _after(self, feed: Feed, other: Feed) -> bool:
        """Whether the input of `feed`'s layer is computed from the input of `other`'s: it is further along."""
        target = self._source(_at(other.affine, call_input(other.affine.node)))
        waiting, seen = [_at(feed.affine, call_input(feed.affine.node))], set()
        first = self._source(waiting[0])
        while waiting:
            value = self._source(waiting.pop())
            if (value.owner, value.node) in seen:
                continue
            seen.add((value.owner, value.node))
            if value.node is target.node and value.node is not first.node:
                return True
            waiting.extend(_at(value, node) for node in value.node.all_input_nodes)
        return False

    def _source(self, value: Value) -> Value:
        while value.node.op == "placeholder" and value.trail:
            argument = self._caller_argument(value, mode=True)
            if argument is None:
                break
            value = argument
        return value

    def used_once(self, path: tuple[Value, ...]) -> bool:
        """Whether every value on `path` is used by the next alone, shape reads aside."""
        return all(len([user for user in value.node.users if not _reads_shape(user)]) == 1 for value in path)

    def modes(self, module: nn.Module) -> set[bool]:
        """The modes in which this module is called."""
        return {mode for mode in MODES if self.callers.get((id(module), mode))}

    def called_once(self, module: nn.Module) -> bool:
        """Whether one call, in either mode, is all that uses this module."""
        calls = {mode: self.callers.get((id(module), mode), []) for mode in MODES}
        alone = all(len(found) <= 1 for found in calls.values()) and any(calls.values())
        return alone and id(module) not in self.open and id(module) not in self.reads


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


def _single_call(graph: Graph) -> str | None:
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    return call_kind(calls[0]) if len(calls) == 1 else None


def _reads_shape(node: Node) -> bool:
    if node.target is getattr:
        return node.args[1] in SHAPE_READS
    return node.op == "call_method" and node.target in SHAPE_READS
