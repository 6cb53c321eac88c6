"""Changes to a model, one module at a time, each with its way back.

A rewritten module keeps its identity, attributes, methods and children: only its class changes, to a subclass of the
old one. Its `forward` is generated from the edited graphs, or it is the old one compiled again with other expressions
in some places (source.py). The source travels with pickles and copies.
"""

import inspect
import linecache
import re
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

from apical.convert.outside import globals_read, is_setting, plain_value
from apical.convert.probe import places_beside
from apical.convert.source import Edit, edited, rewritten_method
from apical.convert.trace import MODES, Traced
from apical.errors import ConversionError

_PRELUDE = "from math import inf, nan\nimport torch\nfrom torch import device\nNoneType = type(None)\n"
_IN_PRELUDE = ("inf", "nan", "torch", "device", "NoneType", "fx_pytree", "pytree")


HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_is_full_backward_hook", "_backward_pre_hooks",
)  # fmt: skip


class Surgery:
    """The changes made to one model, and their reversal."""

    def __init__(self, model: nn.Module) -> None:
        self.model = self.original = model
        self._undo: list[Callable[[], None]] = []
        self._slots: dict[int, list[tuple[nn.Module, str]]] = {}
        self._beside = places_beside(model)
        for parent in model.modules():
            for name, child in parent._modules.items():
                if child is not None:
                    self._slots.setdefault(id(child), []).append((parent, name))

    def replace(self, old: nn.Module, new: nn.Module, *, but: Collection[tuple[nn.Module, str]] = ()) -> None:
        """Put `new`, with the hooks of `old`, wherever the model has `old`, but for some places.

        Lists, tables and objects that hold it too get the new one, where it is new everywhere.
        """
        new.train(old.training)
        for hooks in HOOKS if any(getattr(old, name) for name in HOOKS) else ():
            setattr(new, hooks, getattr(old, hooks))  # the same dict: whoever holds a handle can still remove it
        if old is self.model:
            self.model = new
            return
        for parent, name in self._slots.get(id(old), []):
            if (parent, name) not in but:
                put(parent, name, new)
                self._undo.append(partial(put, parent, name, old))
        for place in self._beside.get(id(old), []) if not but else ():
            place(new)
            self._undo.append(partial(place, old))

    def now(self, old: nn.Module) -> nn.Module:
        """What is in the first place where the model had `old`."""
        (parent, name), *_ = self._slots[id(old)]
        module: nn.Module = getattr(parent, name)
        return module

    def add(self, parent: nn.Module, name: str, child: nn.Module) -> str:
        """A new child under `name`, or a name like it that is free and can be written; returns the name."""
        name = re.sub(r"\W", "", name)  # of "<lambda>", say
        while hasattr(parent, name) or iskeyword(name):
            name += "_"
        child.train(parent.training)
        parent.add_module(name, child)
        self._undo.append(partial(delattr, parent, name))
        return name

    def set(self, module: Any, name: str, value: Any) -> None:
        """Another value for an attribute."""
        if hasattr(module, name):
            self._undo.append(partial(setattr, module, name, getattr(module, name)))
        self._undo.append(partial(delattr, module, name))
        setattr(module, name, value)
        if isinstance(value, nn.Module):
            put(module, name, value)
            self._slots.setdefault(id(value), []).append((module, name))

    def buffer(self, module: nn.Module, name: str, value: Tensor, *, persistent: bool = True) -> None:
        """A new buffer."""
        module.register_buffer(name, value, persistent=persistent)
        self._undo.append(partial(delattr, module, name))

    def restore(self, module: nn.Module, name: str, value: Any) -> None:
        """An attribute as it was; undoing it again does no harm."""
        delattr(module, name)
        setattr(module, name, value)

    def rewrite(self, traced: Traced) -> None:
        """Give a module the forward of its edited graphs."""
        for _, node in traced.nodes():
            if node.op == "get_attr" and str(node.target).rpartition(".")[2].startswith("_tensor_constant"):
                self._keep_constant(traced.module, node)
        self._set_class(traced.module, _rewritten(_base(traced.module), (source(traced),)))

    def _keep_constant(self, module: nn.Module, node: Node) -> None:
        """A tensor that the forward made (`torch.tensor(0.0)`) and that the graph reads, as a buffer of its own."""
        path, _, name = str(node.target).rpartition(".")
        holder, value = module.get_submodule(path), node.meta["value"]
        while hasattr(holder, name) and getattr(holder, name) is not value:
            name += "_"
        if not hasattr(holder, name):
            self.buffer(holder, name, value, persistent=False)
        node.target = f"{path}.{name}".lstrip(".")

    def edit(self, module: nn.Module, edits: list[Edit]) -> None:
        """Give a module methods with other expressions in the places of `edits`."""
        before: Any = type(module)
        base, texts = (before._apical_base, before._apical_texts) if issubclass(before, Rewritten) else (before, ())
        self._set_class(module, _rewritten(base, (*texts, edited(before, edits))))

    def _set_class(self, module: nn.Module, kind: Any) -> None:
        self._undo.append(partial(setattr, module, "__class__", type(module)))
        module.__class__ = kind

    def tap(self, layer: nn.Module, tap: Any) -> None:
        """Let `tap` see what the layer is called with."""
        self._undo.append(layer.register_forward_pre_hook(tap, with_kwargs=True).remove)

    def undo(self) -> nn.Module:
        """Take everything back, last change first; returns the model as it was."""
        while self._undo:
            self._undo.pop()()
        return self.original


def put(parent: nn.Module, name: str, child: nn.Module) -> None:
    """Let `parent` have `child` under a name that it has already.

    A copy of a torch decoder layer looks for its activation among plain attributes, and runs ReLU if there is none.
    """
    parent._modules[name] = child
    if isinstance(parent, nn.TransformerDecoderLayer) and name == "activation":
        vars(parent)[name] = child


def why_not(traced: Traced) -> str | None:
    """The reason why this module's forward cannot be replaced, or None."""
    if "forward" in vars(traced.module):
        return "its forward is set on the instance"
    if isinstance(traced.module, GraphModule):
        return "it is a GraphModule, whose forward torch generates"
    if not traced.graphs:
        return traced.error or "no graph shows its forward"
    try:
        source(traced)
    except ConversionError as error:
        return str(error)
    return None


def source(traced: Traced) -> str:
    """The Python source of a module's forward, self-contained: imports, one function per mode, the signature."""
    bodies, imports = [], set[str]()
    for mode in MODES:
        code = traced.graphs[mode].python_code("self")
        imports |= {_import(name, value) for name, value in code.globals.items() if name not in _IN_PRELUDE}
        bodies.append(code.src.strip().partition("def forward")[2])
    names = ["_forward", "_forward"] if bodies[0] == bodies[1] else ["_in_training", "_in_evaluation"]
    functions = {name: f"def {name}{body}\n" for name, body in zip(names, bodies, strict=True)}
    imports |= {f"import {home} as {_alias(home)}" for home, _ in globals_read(_base(traced.module))}
    return "\n".join([_PRELUDE, *sorted(imports), *functions.values(), _outer(traced, names)])


def _base(module: nn.Module) -> Any:
    """The class of a module before any conversion."""
    kind: Any = type(module)
    return kind._apical_base if issubclass(kind, Rewritten) else kind


def _alias(home: str) -> str:
    return f"_home_{home.replace('.', '_')}"


def _settings(traced: Traced) -> Iterator[tuple[str, str, Any]]:
    """What the forward read besides its arguments: a name, the expression that reads it again, and the value."""
    for path in sorted(traced.settings):
        if is_setting(value := plain_value(traced.module, path)):
            yield path, f"self.{path}", value
    for (home, name), value in sorted(globals_read(_base(traced.module)).items(), key=lambda item: item[0]):
        yield name, f"{_alias(home)}.{name}", value


def _outer(traced: Traced, names: list[str]) -> str:
    """`forward` with the signature of the original; arguments that the graph holds as constants take no other value."""
    parameters = [p.replace(annotation=p.empty) for p in traced.signature.parameters.values()]
    signature = str(inspect.Signature(parameters)).replace("(", "(self, ", 1)
    passed = ", ".join(["self", *(p.name for p in parameters if p.name not in traced.fixed)])
    what = type(traced.module).__name__
    checks = [_check(what, name, name, value) for name, value in traced.fixed.items()]
    advice = ": call report.undo(), set it, and convert again"
    checks += [_check(what, name, now, value, advice) for name, now, value in _settings(traced)]
    call = f"({names[0]} if self.training else {names[1]})" if names[0] != names[1] else names[0]
    return "\n".join([f"def forward{signature}:", *checks, f"    return {call}({passed})", ""])


def _check(what: str, name: str, now: str, value: Any, advice: str = "") -> str:
    """The statement that raises if what `now` reads is no longer the value that the graph holds."""
    differs = "is not" if value is None or isinstance(value, bool) else "!="
    text = f"{what} was converted for {name}={value!r} and cannot take {name}="
    return f"    if {now} {differs} {value!r}:\n        raise ValueError({text!r} + repr({now}) + {advice!r})"


def _import(name: str, value: Any) -> str:
    """The import that brings `value` under `name`."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    home, path = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not home or "." in path or getattr(import_module(home), path, None) is not value:
        raise ConversionError(f"its forward uses {value!r}, which cannot be imported by name")
    return f"from {home} import {path} as {name}"


Text = str | tuple[tuple[str, str], ...]
"""The source of a whole forward, or of methods by name."""


class Rewritten:
    """What a rewritten class adds to its base: pickling and copying by base and source."""

    _apical_base: ClassVar[type[nn.Module]]
    _apical_texts: ClassVar[tuple[Text, ...]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced = super().__reduce_ex__(2)
        return (_blank, (self._apical_base, self._apical_texts), *reduced[2:])


def _blank(base: Any, texts: tuple[Text, ...]) -> nn.Module:
    """An instance without state, for pickle and copy to fill."""
    made: Any = _rewritten(base, texts)
    return made.__new__(made)  # type: ignore[no-any-return]


@cache
def _rewritten(base: Any, texts: tuple[Text, ...]) -> Any:
    """The subclass of `base` with these sources, one over the other; the same for the same, so that copies share it."""
    below = _rewritten(base, texts[:-1]) if len(texts) > 1 else base
    text = texts[-1]
    members = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "_apical_base": base,
        "_apical_texts": texts,
    }
    if isinstance(text, str):
        members |= {"forward": _forward(base, text), "_apical_graph": True}
    else:
        members |= {name: rewritten_method(below, name, method) for name, method in text}
    bases = (below,) if len(texts) > 1 else (Rewritten, base)
    return type(base)(base.__name__, bases, members)


def _forward(base: Any, text: str) -> Any:
    file = f"<apical conversion of {base.__qualname__} {abs(hash(text)):x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {}  # without __name__: the compiler would look the globals up in the module of that name
    exec(compile(text, file, "exec"), scope)
    scope["forward"].__module__ = base.__module__
    return scope["forward"]


def inline(graph: Graph, call: Node, child: Traced, mode: bool) -> dict[Node, Any]:
    """Put the child's own nodes where `graph` calls it; returns what became of each of them."""
    passed, became = child.arguments(call) or {}, dict[Node, Any]()
    with graph.inserting_before(call):
        for node in child.graphs[mode].nodes:
            if node.op == "placeholder":
                became[node] = passed.get(str(node.target), node.args[0] if node.args else None)
            elif node.op == "output":
                call.replace_all_uses_with(became[node.args[0]])
            else:
                became[node] = copy = graph.node_copy(node, became.__getitem__)
                if node.op in ("call_module", "get_attr"):
                    copy.target = f"{call.target}.{node.target}"
    graph.erase_node(call)
    return became
