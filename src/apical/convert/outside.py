"""What a forward does and reads beside its tensors, of which its graph shows nothing or holds the present value.

A graph may stand for a forward only where it is the whole truth. The source tells: whether a forward leaves traces,
picks modules by a name, or turns to anything that is neither torch's nor a plain value (a clock, a callback, an object
of its own); and which plain values it reads, so that a graph can check them at each call.
"""

import ast
import builtins
import inspect
import sys
from collections import ChainMap, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from enum import Enum
from functools import cached_property, partial
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from apical.convert.source import Method, is_filled, is_own, methods, overridden, parsed

Lines = set[tuple[str, int]]
"""Files and lines."""


def leaves_traces(module: nn.Module) -> bool:
    """Whether a forward does what no graph shows: it sets attributes, fills lists and tables, or prints."""
    return any(_is_trace(node, each, module) for each in methods(type(module)).values() for node in ast.walk(each.tree))


def _is_trace(node: ast.AST, method: Method, module: nn.Module) -> bool:
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return True
    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        root = _root(node.value) if isinstance(node, ast.Subscript) else node
        return isinstance(root, ast.Attribute) or (isinstance(root, ast.Name) and _is_global(root.id, method))
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "print"
    holder = _root(node.func.value) if isinstance(node.func, ast.Attribute) else None
    if isinstance(holder, ast.Attribute) and is_own(holder, method.self):
        return node.func.attr in _FILLING and isinstance(getattr(module, holder.attr, None), _CONTAINERS)  # type: ignore[attr-defined]
    return isinstance(holder, ast.Name) and node.func.attr in _FILLING and _is_global(holder.id, method)  # type: ignore[attr-defined]


def picks_modules(module: nn.Module) -> bool:
    """Whether a forward picks modules by an attribute (`self.acts[self.name]`), which may be another one later."""
    return any(_is_pick(node, each, module) for each in methods(type(module)).values() for node in ast.walk(each.tree))


def _is_pick(node: ast.AST, method: Method, module: nn.Module) -> bool:
    if isinstance(node, ast.Subscript):
        holder, key = node.value, node.slice
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
        holder, key = node.args[0], node.args[1]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("get", "get_submodule") and node.args:
        holder, key = node.func.value, node.args[0]  # type: ignore[attr-defined]
    else:
        return False
    own, *path = ast.unparse(holder).removesuffix("._modules").split(".")
    value: Any = module if own == method.self else None
    for name in path:
        value = getattr(value, name, None)
    return isinstance(value, nn.Module) and any(_may_change(part, method, module) for part in ast.walk(key))


def _may_change(node: ast.AST, method: Method, module: nn.Module) -> bool:
    """Whether a part of a key is an attribute that decides, or a name for one; a graph knows `training`."""
    if isinstance(node, ast.Name):
        set_to = [each for each in ast.walk(method.tree) if isinstance(each, ast.Assign)]
        values = [each.value for each in set_to if ast.unparse(each.targets[0]) == node.id]
        return any(isinstance(each, ast.Attribute) and _may_change(each, method, module) for each in values)
    if not isinstance(node, ast.Attribute) or not is_own(node, method.self) or node.attr == "training":
        return False
    return not isinstance(getattr(module, node.attr, None), (nn.Module, Tensor))


@contextmanager
def lines_run() -> Iterator[Lines]:
    """The lines of code outside of torch that run meanwhile."""
    lines: Lines = set()

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return on_line

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: None if "/torch/" in frame.f_code.co_filename else on_line)
    try:
        yield lines
    finally:
        sys.settrace(before)


def acts_outside(module: nn.Module, lines: Lines) -> bool:
    """Whether a forward turns to anything that is neither torch's, a module, nor a plain value that a graph can check.

    That may be a method of an object (`self.schedule.get()`), a list of callbacks, a clock, an iterator, the
    environment, a class of its own, or a function of which the same is true. Only what ran, in `lines`, counts.
    """
    return _Search(module, lines).run()


class _Search:
    """Looks for what is outside in the methods of one module and in the functions that they call."""

    def __init__(self, module: nn.Module, lines: Lines) -> None:
        self.module, self.lines = module, lines
        filled = (path for path in settings_read(module) if plain_value(module, path) not in ([], {}))
        self.checked = {f"self.{path}" for path in filled}  # who keeps an empty list will fill it
        self.checked |= {path for _, path in globals_read(type(module))}
        self.functions: set[FunctionType] = set()

    def run(self) -> bool:
        kind = type(self.module)
        known = methods(kind) if not hasattr(kind, "_apical_graph") else {}  # a graph checks what it reads
        return any(self._acts(each, True) for own in known.values() for each in (own, *overridden(kind, own)))

    def _acts(self, method: Method, of_module: bool) -> bool:
        nodes, function = [*ast.walk(method.tree)], method.function
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        enclosed = {name: cell.cell_contents for name, cell in cells if is_filled(cell)}
        outside = ChainMap(enclosed, function.__globals__, vars(builtins))
        local = {*function.__code__.co_varnames} | {node.arg for node in nodes if isinstance(node, ast.arg)}
        local |= {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
        ours = _is_of(function, ("apical",))  # what stands for a function while it is traced
        if not ours and any(_asks_what_it_is(n, local - {method.self}) and self._has_run(method, n) for n in nodes):
            return True
        for node, name, path in _names_read(method.tree):
            if not self._has_run(method, node):
                continue
            own = of_module and name == method.self
            if of_module and ".".join(("self" if own else name, *path)) in self.checked:
                continue
            if own and not self._is_seen_of_self(path):
                return True
            if not own and name not in local and name in outside:
                value = _at(outside[name], path)
                constant = path and is_setting(value) and _is_of(outside[name], _PURE)  # math.pi
                if not (constant or self._is_seen(value)):
                    return True
        return False

    def _has_run(self, method: Method, node: ast.AST) -> bool:
        return (method.function.__code__.co_filename, getattr(node, "lineno", 0)) in self.lines

    def _is_seen_of_self(self, path: list[str]) -> bool:
        """Whether a graph shows what is done with an attribute of self; its methods are looked at for themselves."""
        if path[-1:] == ["training"]:
            return not path[1:]  # the mode of another module may be another
        if path and path[0] in methods(type(self.module)):
            return True
        return self._is_seen(_at(self.module, path))

    def _is_seen(self, value: Any) -> bool:
        """Whether a graph shows what is done with a value."""
        if value is None or isinstance(value, (nn.Module, Tensor, ModuleType, Enum)):
            return True
        if isinstance(value, type):
            plain = issubclass(value, (Exception, tuple, dict, nn.Module)) or is_dataclass(value)
            return plain or _is_of(value, _PURE_TYPES)
        if isinstance(value, partial):
            return all(map(self._is_seen, (value.func, *value.args, *value.keywords.values())))
        if isinstance(value, (dict, tuple)):  # tables of functions: what a key picks is a plain value too
            return all(map(self._is_seen, value.values() if isinstance(value, dict) else value))
        if isinstance(value, list):  # one that is empty, or has functions of others, may be a list of callbacks
            return bool(value) and all(isinstance(each, nn.Module) or _is_of(each, ("torch",)) for each in value)
        holder = getattr(value, "__self__", None)
        if isinstance(value, BuiltinFunctionType):
            held = holder is None or isinstance(holder, (ModuleType, Tensor, type, str)) or self._is_seen(holder)
            return held and value.__name__ not in _IMPURE and _is_of(value, _PURE)
        if isinstance(holder, nn.Module):  # other methods change it, or give values that a trace takes as they are
            return value.__name__ in _SEEN_OF_MODULES
        if _is_of(value, ("torch",)):
            return not isinstance(value, torch.Generator)
        function = inspect.unwrap(value) if callable(value) else None
        if not isinstance(function, FunctionType) or not (holder is None or isinstance(holder, type)):
            return False
        return _is_of(function, _PURE) or function in self.functions or not self._function_acts(function)

    def _function_acts(self, function: FunctionType) -> bool:
        self.functions.add(function)
        written = parsed(function.__name__, function)
        return written is None or self._acts(written, False)


def _asks_what_it_is(node: ast.AST, names: set[str]) -> bool:
    """Whether it is asked what a value of the forward is (`isinstance(x, Tensor)`): in a trace it is neither."""
    if isinstance(node, ast.Compare):
        none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
        asks = none and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        return asks and isinstance(node.left, ast.Name) and node.left.id in names
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name)):
        return False
    return node.args[0].id in names and ast.unparse(node.func).rpartition(".")[2] in _ABOUT_KINDS


_ABOUT_KINDS = ("isinstance", "type", "callable", "hasattr", "is_tensor")


def _names_read(tree: ast.FunctionDef) -> Iterator[tuple[ast.expr, str, list[str]]]:
    """The names that a body reads, each with the attributes that follow it; not those of annotations and defaults."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        path, inner = list[str](), node
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            inner, key, *_ = node.args
            waiting += node.args[1:]
            path = [str(key.value)] if isinstance(key, ast.Constant) else path
        while isinstance(inner, ast.Attribute):
            path.insert(0, inner.attr)
            inner = inner.value
        if path and isinstance(inner, ast.Call) and ast.unparse(inner.func) == "type":
            inner, path = inner.args[0], ["__class__", *path]
        if isinstance(inner, ast.Name):
            yield inner, inner.id, path
        elif isinstance(node, ast.FunctionDef):
            waiting += node.body
        elif isinstance(node, ast.AnnAssign):
            waiting += [node.target, *([node.value] if node.value else [])]
        else:
            waiting += [inner] if path else list(ast.iter_child_nodes(node))


def _at(value: Any, path: list[str]) -> Any:
    """The value behind attributes, as far as it is stored: nothing tells what code gives."""
    for name in path:
        if isinstance(value, Tensor):
            return None  # a part of one, which a graph shows
        computed = isinstance(getattr(type(value), name, None), (property, cached_property))
        value = _NO_VALUE if computed else getattr(value, name, _NO_VALUE)
    return value


def _is_of(value: Any, libraries: tuple[str, ...]) -> bool:
    """Whether a module, a type, a function or an object comes from one of these libraries."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    home = home or getattr(type(getattr(value, "__self__", value)), "__module__", "")
    return str(home).partition(".")[0] in libraries


_SEEN_OF_MODULES = (
    "forward", "items", "keys", "values", "children", "named_children", "modules", "named_modules", "get_submodule",
)  # fmt: skip
_PURE = (
    "builtins", "torch", "math", "cmath", "operator", "_operator", "itertools", "functools", "_functools", "typing",
)  # fmt: skip
_PURE_TYPES = (*_PURE, "collections", "types")
_IMPURE = (
    "next", "print", "input", "open", "exec", "eval", "setattr", "delattr", "id", "globals",
    "vars", "locals", "dir", "iter", "__import__", "append", "appendleft", "extend", "insert", "add", "update",
    "setdefault", "pop", "popleft", "popitem", "clear", "remove", "sort", "reverse",
)  # fmt: skip
"""Functions of Python that have effects, or whose answers nothing checks later."""


def named_elsewhere(kind: type[nn.Module]) -> frozenset[str]:
    """The attributes that a class names where a graph of its forward does not show them as its own parts.

    Those are the names in methods that its forward does not call (`train`, which may freeze `self.bn`), and the
    attributes of anything but self in those that it calls (`block.bn.eval()`).
    """
    known = methods(kind)
    members = [
        member for base in kind.__mro__ if not base.__module__.startswith("torch.") for member in vars(base).items()
    ]
    names: set[str] = set()
    for name, member in members:
        function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
        if isinstance(function, FunctionType) and name not in known and name != "__init__":
            names |= _names_of(function.__code__)
    for method in known.values():
        for node in ast.walk(method.tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) != method.self:
                names.add(node.attr)
    return frozenset(names)


def _names_of(code: CodeType) -> set[str]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names}.union(*map(_names_of, inner))


def settings_read(module: nn.Module) -> set[str]:
    """The plain attributes that a forward reads (`scale`, `config.scale`), of which a graph holds the values."""
    paths: set[str] = set()
    for method in methods(type(module)).values():
        for node in ast.walk(method.tree):
            own, _, path = ast.unparse(node).partition(".") if isinstance(node, ast.Attribute) else ("", "", "")
            plain = own == method.self and path.replace(".", "").isidentifier() and "__" not in path
            if plain and is_setting(plain_value(module, path)):
                paths.add(path)
    return paths


def plain_value(module: nn.Module, path: str) -> Any:
    """The value of an attribute, or of an attribute of one; none where code or a layer of torch gives it."""
    value: Any = module
    for name in path.split("."):
        layer = isinstance(value, nn.Module) and type(value).__module__.startswith("torch.nn.")
        layer = layer and not type(value).__name__.endswith("Dropout")  # the others may become neurons
        computed = isinstance(getattr(type(value), name, None), (property, cached_property))
        if layer or computed or name == "training":
            return _NO_VALUE
        value = getattr(value, name, _NO_VALUE)
    return value


_NO_VALUE = object()


def is_setting(value: Any) -> bool:
    """Whether a value is a number, a text or a short collection of them: its `repr` is its source."""
    if type(value) in (tuple, list):
        return len(value) <= 64 and all(map(is_setting, value))
    if type(value) is dict:
        return len(value) <= 64 and all(map(is_setting, (*value, *value.values())))
    return value is None or (type(value) in (bool, int, float, str) and repr(value) != "nan")


def globals_read(kind: type[nn.Module]) -> dict[tuple[str, str], Any]:
    """The plain values outside of the class that a forward reads (`SCALE`, `CONFIG.scale`), by module and name."""
    read: dict[tuple[str, str], Any] = {}
    for method in methods(kind).values():
        home, names = method.function.__module__, method.function.__globals__
        for path in {
            ast.unparse(node) for node in ast.walk(method.tree) if isinstance(node, (ast.Name, ast.Attribute))
        }:
            name, *attributes = path.split(".")
            value = names.get(name, _NO_VALUE)
            outside = name in names and name not in method.function.__code__.co_varnames and "__" not in path
            importable = getattr(sys.modules.get(home), name, _NO_VALUE) is value
            if not (outside and importable) or isinstance(value, ModuleType):
                continue
            for attribute in attributes:
                computed = isinstance(getattr(type(value), attribute, None), (property, cached_property))
                value = _NO_VALUE if computed else getattr(value, attribute, _NO_VALUE)
            if is_setting(value) and value is not None:
                read[home, path] = value
    return read


_CONTAINERS = (list, dict, set, deque)
_FILLING = ("append", "appendleft", "extend", "insert", "add", "update", "setdefault", "pop", "popleft", "clear")


def _root(node: ast.expr) -> ast.expr:
    """The name or attribute that items are taken of."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _is_global(name: str, method: Method) -> bool:
    """Whether a name is a list or table outside of the method."""
    return name not in method.function.__code__.co_varnames and isinstance(
        method.function.__globals__.get(name), _CONTAINERS
    )
