"""Activations in the source of a forward, and a forward with other expressions in their places.

Some forwards cannot be a graph: they branch on values, or take arguments of which a graph would hold one case. Those
keep their code. Their methods are parsed; an expression of one input that maps elementwise (`F.relu(x)`, `x.relu_()`,
`swish(x)`, `nn.ReLU()(x)`, `x * torch.sigmoid(x)`) is an activation, known by calling it, as modules are; and a method
is compiled again with `self.name(input)` in the place of the expression. All else, arguments and control flow, is as it
was. What a method names without calling it in such a way (`for f in (F.relu, F.gelu)`), and what functions outside the
class apply, is a `Mention`: it is listed, and stays.
"""

import ast
import inspect
import linecache
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MappingProxyType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from apical.convert.formula import FORMULA, Role, Step
from apical.convert.kinds import (
    ALL_KINDS,
    FUNCTIONS,
    GATES,
    Further,
    class_kind,
    is_clamp,
    module_kind,
    written_as_module,
)
from apical.convert.operators import unexplained
from apical.convert.probe import called_alone, counts, elementwise, is_shifted, whole_activation
from apical.convert.statements import Statements, operation


@dataclass(frozen=True)
class Place:
    """Where an expression stands: a method, and the position in its file."""

    method: str
    line: int
    column: int
    end_line: int
    end_column: int
    helper: bool = field(default=False, compare=False)  # a function that is called there has it, and may do more

    def __str__(self) -> str:
        return f" (line {self.line} of {self.method})"

    def holds(self, other: "Place | None") -> bool:
        """Whether `other` lies within this place, or is it."""
        return (
            other is not None
            and self.method == other.method
            and (self.line, self.column) <= (other.line, other.column)
            and (self.end_line, self.end_column) >= (other.end_line, other.end_column)
        )


@dataclass(frozen=True)
class Expression:
    """An activation in a method: the place of the whole, the place of its input, and what it computes."""

    place: Place
    source: Place
    kind: str
    text: str
    function: Callable[[Tensor], Any]
    default: bool = False
    """Whether it is chosen without being asked for, whatever its kind."""
    formula: bool = False
    """Whether it is more than one call of torch."""
    learned: bool = False
    """Whether a parameter is a part of it."""
    varies: bool = False
    """Whether a number is a part of it that has another value in another call."""


@dataclass(frozen=True)
class Mention:
    """An activation that a forward can reach and that cannot be replaced there, and the reason."""

    kind: str
    reason: str
    default: bool = False
    formula: bool = False
    steps: bool = False
    """Whether it was found by following statements; a graph, where there is one, shows it as well."""
    place: Place | None = None
    parts: frozenset[Place] = frozenset()
    modules: frozenset[int] = frozenset()
    suspected: bool = False
    """The places of what it consists of, and the ids of modules among that; `suspected`: of what it may consist of."""
    leaves: bool = False
    """Whether it is no activation, but a value that leaves torch: Python may make anything of it."""
    unknown: bool = False
    """Whether it is no activation either, but a call of code that nothing tells."""
    operator: bool = False
    """Whether it is a call of torch that is neither linear nor a part of an activation."""
    dormant: bool = False
    """Whether it is an activation that does not run as long as the attributes of the module are what they are."""


@dataclass(frozen=True)
class Edit:
    """`self.name(input)` for the expression at `place`.

    `settings` are attributes that pick what is called there, and their values: for others, the expression stays.
    """

    place: Place
    source: Place
    name: str
    settings: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Method:
    """A method of a class and its parsed source."""

    name: str
    function: FunctionType
    tree: ast.FunctionDef
    self: str

    def place(self, node: ast.expr) -> Place:
        return Place(self.name, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def entries(kind: type[nn.Module]) -> list[str]:
    """The methods in which code begins that is not torch's own.

    `forward`, a `__call__`, and what a forward of torch's calls that the class has anew, as `_ff_block` of a
    transformer layer.
    """
    return [name for name in _names_run(kind) if _is_own_method(_definer(kind, name))]


def has_source(kind: type[nn.Module]) -> bool:
    """Whether there is code that is not torch's own, and its source can be read."""
    begins = entries(kind)
    return bool(begins) and methods(kind).keys() >= {*begins}


def _names_run(kind: type[nn.Module]) -> dict[str, None]:
    """`forward`, `__call__`, and all names in torch's own code of them and of the methods that this calls."""
    if kind in _NAMES_RUN:
        return _NAMES_RUN[kind]
    names = _NAMES_RUN[kind] = {}
    waiting = ["forward", "__call__"]
    while waiting:
        name = waiting.pop(0)
        definer = _definer(kind, name) if name not in names else None
        names[name] = None
        if definer is not None and not _is_own_method(definer):
            waiting += getattr(getattr(definer.__dict__[name], "__code__", None), "co_names", ())
    return names


_NAMES_RUN: dict[type[nn.Module], dict[str, None]] = {}


def _is_own_method(definer: type | None) -> bool:
    return definer is not None and not definer.__module__.startswith("torch.nn.modules.")


def methods(kind: type[nn.Module]) -> dict[str, Method]:
    """The `entries` of a class, and the methods and properties they use, as far as source can be read."""
    if kind not in _METHODS:
        _METHODS[kind] = _read_methods(kind)
    return _METHODS[kind]


_METHODS: dict[type[nn.Module], dict[str, Method]] = {}


def _read_methods(kind: type[nn.Module]) -> dict[str, Method]:
    known: dict[str, Method] = {}
    waiting = entries(kind)
    while waiting:
        name = waiting.pop()
        method = _method(kind, name) if name not in known else None
        if method is None:
            continue
        known[name] = method
        for each in (method, *overridden(kind, method)):
            nodes = [node for node in ast.walk(each.tree) if isinstance(node, ast.Attribute)]
            waiting += [node.attr for node in nodes if is_own(node, each.self)]
    return known


def overridden(kind: type[nn.Module], method: Method) -> list[Method]:
    """The methods of the same name that this one may call over `super()`."""
    bases = kind.__mro__ if "super" in method.function.__code__.co_names else ()
    return [own for base in bases if (own := _method(base, method.name)) is not None]


def called_names(kind: type[nn.Module]) -> dict[Place, str]:
    """The names of what methods call on self (`act`, `block.act`), by the places of the calls."""
    if kind in _CALLED:
        return _CALLED[kind]
    written = _CALLED[kind] = {}
    for method in methods(kind).values():
        for node in ast.walk(method.tree):
            own, _, name = ast.unparse(node.func).partition(".") if isinstance(node, ast.Call) else ("", "", "")
            if name and own == method.self:
                written[method.place(node)] = name  # type: ignore[arg-type]
    return written


_CALLED: dict[type[nn.Module], dict[Place, str]] = {}


Calls = list[tuple[nn.Module, "Place", Further | None]]
"""Of each call of a module: the module, the place, and what is passed beside the input; None where that may be data."""


def read_names(kind: type[nn.Module]) -> set[str] | None:
    """The attributes that the methods of a class read; None where their source does not tell, or names are made."""
    names = names_in(kind) if has_source(kind) else set()
    return None if not names or names & _LISTING else names | {*_names_run(kind)}


def names_in(kind: type[nn.Module]) -> set[str]:
    """All names in the methods of a class, as far as source can be read."""
    nodes = [node for method in methods(kind).values() for node in ast.walk(method.tree)]
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return names | {node.id for node in nodes if isinstance(node, ast.Name)}


_LISTING = {
    "children", "named_children", "modules", "named_modules", "_modules", "get_submodule", "getattr", "vars",
    "__getattr__", "__dict__", "super",
}  # fmt: skip


def first_parameter(function: Any) -> str:
    """The name of the argument that is the input; torch's own functions without a signature call it so."""
    try:
        return next(iter(inspect.signature(function).parameters), "input")
    except ValueError:
        return "input"


def is_own(node: ast.AST, own: str) -> bool:
    """Whether this is an attribute of self."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own


@lru_cache(maxsize=512)
def _changed_attributes(kind: type[nn.Module]) -> set[str]:
    """The attributes of self that methods set."""
    return {
        node.attr
        for method in methods(kind).values()
        for node in ast.walk(method.tree)
        if isinstance(node, ast.Attribute) and is_own(node, method.self) and not isinstance(node.ctx, ast.Load)
    }


def _method(kind: type[nn.Module], name: str) -> Method | None:
    definer = _definer(kind, name)
    if definer is None or not _is_own_method(definer):
        return None
    if isinstance(definer.__dict__[name], (staticmethod, classmethod)):
        return None  # a function without self: its calls are expressions
    function = inspect.unwrap(_getter(definer.__dict__[name]))
    method = parsed(name, function) if isinstance(function, FunctionType) else None
    if method is None or not method.tree.args.args:
        return method
    return replace(method, self=method.tree.args.args[0].arg)


def _getter(member: Any) -> Any:
    """The function that reads a property; of anything else, the thing itself."""
    if isinstance(member, cached_property):
        return member.func
    return member.fget if isinstance(member, property) else member


def parsed(name: str, function: FunctionType) -> Method | None:
    """A function with its source, where that can be read."""
    if function.__name__ == "<lambda>":
        return _parsed_lambda(name, function)
    try:
        lines, start = inspect.getsourcelines(function)
        indented = lines[0][:1].isspace()
        tree = ast.parse("if True:\n" * indented + "".join(lines))
    except (OSError, TypeError, SyntaxError):
        return None
    ast.increment_lineno(tree, start - 1 - indented)
    first = tree.body[0].body[0] if isinstance(tree.body[0], ast.If) else tree.body[0]
    if not isinstance(first, ast.FunctionDef):
        return None
    if start != function.__code__.co_firstlineno or first.name != function.__code__.co_name:
        return None  # the file was edited after it was imported
    _name_privates(first, function)
    return Method(name, function, first, "")


def _name_privates(tree: ast.FunctionDef, function: FunctionType) -> None:
    """Spell `self.__name` as the class does, which Python does where it compiles the body of one."""
    (owner,) = function.__qualname__.split(".")[-2:-1] or [""]
    for node in ast.walk(tree) if owner.isidentifier() else ():
        if isinstance(node, ast.Attribute) and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{owner.lstrip('_')}{node.attr}"


def _parsed_lambda(name: str, function: FunctionType) -> Method | None:
    """A lambda as a function that returns its value: of those on its line, the one in the same columns."""
    own = function.__code__
    for node in ast.walk(_file(own.co_filename)):
        if not isinstance(node, ast.Lambda) or node.lineno != own.co_firstlineno:
            continue
        constants = compile(ast.Expression(node), own.co_filename, "eval").co_consts  # its defaults are among them
        places = [set(code.co_positions()) for code in constants if isinstance(code, CodeType)]
        if set(own.co_positions()) in places:
            body = ast.copy_location(ast.Return(node.body), node.body)
            tree = ast.copy_location(ast.FunctionDef("lambda_", node.args, [body], []), node)
            return Method(name, function, tree, "")
    return None


@cache
def _file(name: str) -> ast.Module:
    """The parsed source of a file; an empty one where there is none."""
    try:
        return ast.parse("".join(linecache.getlines(name)))
    except SyntaxError:
        return ast.Module([], [])


def _definer(kind: type[nn.Module], name: str) -> type | None:
    """The class that defines this method."""
    return next((base for base in kind.__mro__ if name in vars(base) and base not in (nn.Module, object)), None)


def codes(kind: type[nn.Module]) -> dict[CodeType, str]:
    """The compiled code of the methods, with that of the functions and comprehensions inside them."""
    known: dict[CodeType, str] = {}
    waiting = [(method.function.__code__, name) for name, method in methods(kind).items()]
    while waiting:
        code, name = waiting.pop()
        known[code] = name
        waiting += [(part, name) for part in code.co_consts if isinstance(part, CodeType)]
    return known


LEAVING = ("item", "tolist", "numpy", "__float__", "__array__", "__bool__")
"""Methods of a tensor that give its numbers to Python; the last where `max` and `min` ask which is larger."""

LEAVES = "a value leaves torch"


def leaves_by(name: str, place: Place) -> str:
    """The reason that a report gives for a value that leaves torch."""
    return f"{LEAVES} by {name}(){place}, and what Python makes of it is not seen: compute it with torch"


def taking_place(known: dict[CodeType, str], frame: FrameType | None, name: str) -> tuple[Place, str]:
    """The expression that takes a value from torch, and by what; empty where Python computes nothing from it."""
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(("torch.", "apical.")):
        frame = frame.f_back
    assert frame is not None  # somebody's code called the model
    code = frame.f_code
    line, end_line, column, end_column = list(code.co_positions())[frame.f_lasti // 2]
    place = Place(known.get(code, code.co_name), line or 0, column or 0, end_line or 0, end_column or 0)
    deciding, picking = _deciding(code.co_filename)
    if name == "bool":
        name = picking.get((line, column, end_line, end_column), "")
    return place, name if (line, column, end_line, end_column) not in deciding else ""


Positions = dict[tuple[int | None, ...], str]


@cache
def _deciding(file: str) -> tuple[Positions, Positions]:
    """The positions in a file of expressions that decide, count, select or are shown, and of those that pick.

    No forward computes with the former. The latter are Python's `max` and `min`: a ReLU, perhaps.
    """
    parts: list[ast.AST] = []
    picking: list[ast.AST] = []
    for node in ast.walk(_file(file)):
        if isinstance(node, (ast.Compare, ast.Assert, ast.Raise, ast.JoinedStr)):
            parts.append(node)
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
            parts.append(node.test)
        elif isinstance(node, ast.Subscript):
            parts.append(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in (*_SHOWING, *_PICKING):
            (parts if node.func.id in _SHOWING else picking).append(node)
    inner = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.expr)]
    return {_position(node): "" for node in inner}, {_position(node): node.func.id for node in picking}  # type: ignore[attr-defined]


def _position(node: Any) -> tuple[int | None, ...]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


_SHOWING = ("bool", "int", "print", "range")
_PICKING = {"max": max, "min": min}


def running_place(known: dict[CodeType, str], frame: FrameType | None) -> Place | None:
    """The expression that runs in the innermost of the `known` methods, seen from `frame`."""
    helper = False
    while frame is not None:
        name = known.get(frame.f_code)
        if name is not None:
            line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
            return Place(name, line or 0, column or 0, end_line or 0, end_column or 0, helper)
        helper = helper or not str(frame.f_globals.get("__name__")).startswith(("torch.", "apical."))
        frame = frame.f_back
    return None


def read(
    module: nn.Module, registered: set[int], numbers: Mapping[str, list[float]], *, follow: bool
) -> tuple[list[Expression], list[Mention], Calls, list[Mention]]:
    """Every activation that the methods of `module` write out, in the order of the source, and those they mention.

    `registered` are the ids of the model's modules, which are known otherwise, `numbers` are those among the arguments
    of `forward`; `follow` asks for what statements compute step by step. The third are the calls of registered modules,
    the fourth what other calls may run that nothing lists.
    """
    if "forward" in vars(module):
        mentions = list(_hidden(module.forward, registered, "a forward that is set on the instance", set()))
        return [], mentions, [], [unknown("forward")]
    known = methods(type(module))
    parts: list[Expression | Mention] = []
    begins = entries(type(module))
    doubts = [unknown(name) for name in begins if name not in known]
    for name in begins if doubts else ():
        names = getattr(getattr(getattr(type(module), name), "__code__", None), "co_names", ())
        kinds = dict.fromkeys(name.rstrip("_") for name in names if name.rstrip("_") in ALL_KINDS)
        parts += [_mention(kind, "called in a forward whose source cannot be read") for kind in kinds]
    searches = [Search(module, method, registered) for method in known.values()]
    for i, (name, method) in enumerate(known.items()):
        given = numbers if name == "forward" else _passed_numbers(method, _calls_of(name, searches))
        searches[i] = Search(module, method, registered, numbers=given)
        searches[i].callers = partial(_calls_of, name, searches)
    waiting = [search for search in searches if search.method.name in begins]
    for search in waiting:  # which grows by the methods that those call where they can run
        own = list(search.run())
        parts += own
        if follow or search.method.name == "__call__":
            parts += _formulas(search, [part for part in own if isinstance(part, Expression)])
        doubts += search.doubts() if follow else []
        waiting += [each for each in searches if each.method.name in search.reads and each not in waiting]
    written = [part for part in parts if isinstance(part, Expression)]
    written.sort(key=lambda each: (each.place.method != "forward", each.place.line, each.place.column))
    mentions = list(dict.fromkeys(part for part in parts if isinstance(part, Mention)))
    calls = [call for search in waiting for call in search.calls()]
    return written, mentions, calls, list(dict.fromkeys(doubts))


UNKNOWN = "what it calls is not known"


def unknown(name: str, place: Place | None = None) -> Mention:
    """A call of code that may apply anything."""
    reason = f"{UNKNOWN} before it runs{place or ''}: example_inputs show what it applies"
    return Mention(_short(name), reason, place=place, unknown=True)


NOT_LINEAR = "operator "


def dormant(expression: Expression) -> Mention:
    """An activation that does not run as the model is."""
    why = f"it does not run as the model is set{expression.place}: set the model as it will be used, then convert it"
    return Mention(expression.kind, why, default=expression.default, place=expression.place, dormant=True)


def not_linear(label: str, place: Place | None) -> str:
    """The reason that a report gives for an operator that nothing explains."""
    where = place or " outside its class"
    return f"{NOT_LINEAR}{label} is not linear{where}, and is no part of an activation that is known"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def out_of_reach(what: str, kind: str) -> str:
    """The reason why an activation of a kind that is `what` stays, and what to do."""
    return f"it is {what}: {make_a_module(kind)}"


PICKED, OF_TABLE = "picked at run time", "one of "


def make_a_module(kind: str) -> str:
    """What to do with an activation that is written in a way that conversion cannot reach."""
    return f"make it a module (self.act = {written_as_module(kind)} in __init__, self.act(x) in forward)"


def _mention(kind: str, what: str, *, default: bool = False) -> Mention:
    return Mention(kind, out_of_reach(what, kind), default)


def hooks(module: nn.Module, registered: set[int]) -> tuple[list[Mention], bool]:
    """What the forward hooks of a module apply, and whether the source of one of them cannot be read."""
    mentions: list[Mention] = []
    unread = False
    for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
        function = _plain(hook)
        mentions += _hidden(function, registered, "a forward hook", set())
        unread = unread or (_is_foreign(function) and _source(function) is None)
    return list(dict.fromkeys(mentions)), unread


def _plain(function: Any) -> Any:
    """The function behind a method, a partial function, a wrapper or an object that can be called."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(getattr(function, "__func__", function))
    return function if isinstance(function, FunctionType) else vars(type(function)).get("__call__", function)


def _holds_object(value: Any) -> bool:
    """Whether this is an object of somebody's class that can be called, or a list or table of such."""
    if isinstance(value, (dict, list, tuple, set)):
        return any(map(_holds_object, value.values() if isinstance(value, dict) else value))
    call = inspect.getattr_static(type(value), "__call__", None)
    return isinstance(call, FunctionType) and _is_foreign(call) and not isinstance(value, (nn.Module, type))


def _is_foreign(function: Any) -> bool:
    """Whether this is neither torch's code nor ours, nor numpy's."""
    home = (getattr(function, "__module__", None) or "").partition(".")[0]
    return home not in ("torch", "apical") and not _is_outside(function)


def _is_unread(function: Any) -> bool:
    """Whether a function is known, and not what it does: TorchScript, an object, or code without source."""
    plain = _plain(function)
    unread = isinstance(plain, (FunctionType, BuiltinFunctionType)) and _is_foreign(plain) and _source(plain) is None
    hidden = isinstance(function, torch.jit.ScriptFunction) or _holds_object(function) or _is_method(function)
    return hidden or (unread and plain.__module__ != "builtins")


def _is_method(function: Any) -> bool:
    """Whether this is a method of somebody's object or class, neither a module's nor one of Python's own classes."""
    if not isinstance(function, MethodType) or not _is_foreign(function):
        return False
    holder = function.__self__ if isinstance(function.__self__, type) else type(function.__self__)
    return holder.__module__.partition(".")[0] not in sys.stdlib_module_names and (
        holder is function.__self__ or not issubclass(holder, nn.Module)
    )


def _source(function: Any) -> Method | None:
    return parsed(function.__name__, function) if isinstance(function, FunctionType) else None


def _hidden(
    function: Any,
    registered: set[int],
    where: str,
    seen: set[Any],
    caller: "Search | None" = None,
    child: "Search | None" = None,
) -> Iterator[Mention]:
    """What a function outside the methods applies, and those that it calls; `child` calls it as a parent's method."""
    callers = partial(_calls_of, function, [caller] if caller is not None else [])
    function = _plain(function)
    if function in seen or not _is_foreign(function) or (method := _source(function)) is None:
        return
    seen.add(function)
    if child is not None and method.tree.args.args:
        search = Search(child.module, replace(method, self=method.tree.args.args[0].arg), registered, seen)
        child.parents.append(search)
    else:
        search = Search(nn.Module(), method, registered, seen)
    search.callers = callers
    written: list[Expression] = []
    for part in search.run():
        if isinstance(part, Expression):
            written.append(part)
            reason = out_of_reach(f"called in {where}", part.kind)
            yield Mention(part.kind, reason, part.default, part.formula)
        else:
            yield part
    yield from _formulas(search, written, f" in {where}")
    if child is not None:
        child.reads |= search.reads


def _formulas(search: "Search", written: list[Expression], where: str = "") -> Iterator[Mention]:
    """What the statements of a method compute step by step, beyond a single expression, or may compute."""
    statements, explained = Statements(search), set[int]()
    for formula in statements.formulas():
        explained |= {id(part) for part in formula.parts}
        if search.outside and formula.bounds:
            continue  # of boxes and counts as often as of hidden layers
        if any(all(e.place.holds(part.origin) for part in formula.parts) for e in written):
            continue
        place: Place = formula.top.origin
        parts = frozenset(step.origin for step in formula.parts)
        reason = out_of_reach(formula.words(where or place), formula.kind)
        at, modules = None if where else place, frozenset(id(step.seen) for step in formula.parts if step.seen)
        yield Mention(formula.kind, reason, formula.default, steps=True, place=at, parts=parts, modules=modules)
    for each in statements.steps.operations:
        inside = any(e.place.holds(each.origin[1]) and not e.source.holds(each.origin[1]) for e in written)
        each.known = each.known or inside or id(each.step) in explained
    for each in unexplained(statements.steps.operations):
        place = each.origin[1]
        reason = not_linear(each.label, None if where else place)
        yield Mention(each.name, reason, place=None if where else place, operator=True)
    for steps in (*statements.scattered(), *statements.repeated):
        reason = out_of_reach(
            f"one of several functions of one value that may be one{where or steps[0].origin}", FORMULA
        )
        parts, modules = frozenset(s.origin for s in steps), frozenset(id(s.seen) for s in steps if s.seen)
        yield Mention(FORMULA, reason, default=True, steps=True, parts=parts, modules=modules, suspected=True)


class Search:
    """The activations in one method of one module."""

    def __init__(
        self,
        module: nn.Module,
        method: Method,
        registered: set[int],
        seen: set[Any] | None = None,
        numbers: Mapping[str, list[float]] = MappingProxyType({}),
    ) -> None:
        self.module, self.method, self.registered = module, method, registered
        self.callers: Callable[[], list[tuple[Search, ast.Call]]] = list
        self.visited: list[ast.Call] = []
        self.parents: list[Search] = []
        self.reads: set[str] = set()
        self.outside, self.seen = seen is not None, seen if seen is not None else set[Any]()
        code, nodes = method.function.__code__, list(ast.walk(method.tree))
        self.all_calls = [node for node in nodes if isinstance(node, ast.Call)]
        stored = Counter(n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
        stored.update(n.name for n in nodes[1:] if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)))
        self.inner = {n.name for n in nodes[1:] if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        self.parameters = {n.arg for n in ast.walk(method.tree.args) if isinstance(n, ast.arg)}
        self.numbers = _numbers(method.tree.args)
        self.arguments = arguments = {n.arg for n in nodes if isinstance(n, ast.arg)}
        self.local = {*code.co_varnames, *code.co_cellvars, *stored, *arguments}
        self.changing = _changed_attributes(type(module))  # type: ignore[arg-type]  # a class is hashable
        names, cells = code.co_freevars, method.function.__closure__ or ()
        self.scope = {n: c.cell_contents for n, c in zip(names, cells, strict=True) if is_filled(c)}
        self.scope |= {name: values[0] for name, values in numbers.items() if not stored[name]}
        self.varying = {name for name, values in numbers.items() if len(values) > 1}
        for node in nodes:  # a name that is set once has that value wherever it has one
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and len(node.targets) == 1:
                known, value = self.resolve(node.value)
                if known and stored[target.id] == 1 and target.id not in (*arguments, *numbers):
                    self.scope[target.id] = value
        self.given: dict[str, list[ast.expr]] = {}
        for node in nodes:
            for target, value in _assigned(node):
                for part in ast.walk(target):
                    if isinstance(part, ast.Name) or is_own(part, method.self):
                        self.given.setdefault(ast.unparse(part), []).append(value)

    def run(self) -> Iterator[Expression | Mention]:
        for default in (*self.method.tree.args.defaults, *self.method.tree.args.kw_defaults):
            if default is not None:
                yield from self._visit(default)
        yield from self._block(self.method.tree.body)

    def _block(self, statements: list[ast.stmt]) -> Iterator[Expression | Mention]:
        """The activations in statements that can run, as far as attributes of the module decide."""
        for number, statement in enumerate(statements, start=1):
            live = self.decided(statement.test) if isinstance(statement, ast.If) else None
            if isinstance(statement, ast.If) and live is not None:
                body, other = (statement.body, statement.orelse)[:: 1 if live else -1]
                yield from self._dormant(other)
                yield from self._block(body)
                if body and isinstance(body[-1], (ast.Return, ast.Raise)):
                    yield from self._dormant(statements[number:])
                    return
            else:
                yield from self._visit(statement)

    def decided(self, test: ast.expr) -> bool | None:
        """The value of a condition on attributes of self alone (`self.norm is not None`); None for all others."""
        for node in ast.walk(test):
            if isinstance(node, ast.Attribute) and is_own(node, self.method.self):
                value = getattr(self.module, node.attr, self)
                plain = value is None or isinstance(value, (bool, int, float, str, nn.Module))
                if node.attr == "training" or node.attr in self.changing or not plain:
                    return None
            elif not isinstance(node, (*_DECIDING, ast.Name)) or (
                isinstance(node, ast.Name) and node.id != self.method.self
            ):
                return None
        code = compile(ast.fix_missing_locations(ast.Expression(_clone(test))), "<condition>", "eval")
        return bool(eval(code, {}, {self.method.self: self.module}))

    def _dormant(self, nodes: Iterable[ast.AST]) -> Iterator[Mention]:
        """The activations in what an attribute of the module keeps from running."""
        for node in nodes:
            expression = self._expression(node) if isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp)) else None
            if expression is not None:
                yield dormant(expression)
            yield from self._dormant([self._input_of(expression, node)] if expression else ast.iter_child_nodes(node))

    def _input_of(self, expression: Expression, node: ast.AST) -> ast.AST:
        """The part of `node` that the activation which it is takes as its input."""
        return next(n for n in ast.walk(node) if isinstance(n, ast.expr) and self.at(n) == expression.source)

    def _visit(self, node: ast.AST) -> Iterator[Expression | Mention]:
        if isinstance(node, ast.If):
            yield from self._visit(node.test)
            yield from self._block(node.body)
            yield from self._block(node.orelse)
            return
        if isinstance(node, ast.IfExp) and (live := self.decided(node.test)) is not None:
            body, other = (node.body, node.orelse)[:: 1 if live else -1]
            yield from self._dormant([other])
            yield from self._visit(body)
            return
        if isinstance(node, ast.Call) and self._is_of_weights(node):
            self._note(node)
            return
        expression = self._expression(node) if isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp)) else None
        if expression is not None:
            yield expression
            yield from self._visit(self._input_of(expression, node))
            return
        self._note(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            return
        if isinstance(node, ast.Call) and self._leaves_torch(node):
            name = node.func.attr if _is_leaving(node) else ast.unparse(node.func)  # type: ignore[attr-defined]
            yield Mention(name, leaves_by(name, self.at(node)), place=self.at(node), leaves=True)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in self.scope:
            return  # its value is known where the name is read
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load):
            known, value = self.resolve(node)
            if known:
                yield from self._mentions(value, ast.unparse(node))
                return
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "super()":
            yield from _hidden(self._inherited(node.attr), self.registered, "a parent's method", self.seen, child=self)
        for child in ast.iter_child_nodes(node):
            yield from self._visit(child)

    def _note(self, node: ast.AST) -> None:
        """Keep what can run: the attributes of self that are read, and the calls."""
        if isinstance(node, ast.Attribute) and is_own(node, self.method.self) and not self.resolve(node)[0]:
            self.reads.add(node.attr)
        elif isinstance(node, ast.Call):
            self.visited.append(node)

    def _leaves_torch(self, node: ast.Call) -> bool:
        """Whether a call takes numbers out of torch that may come from the inputs, for Python to compute with."""
        if _position(node) in _deciding(self.method.function.__code__.co_filename)[0]:
            return False
        return any(self._data(value) >= MASK for value in self._taken(node))

    def _taken(self, node: ast.AST) -> list[ast.expr]:
        """What a call takes out of torch: by a tensor's method, `float`, `max`, or a function of math or numpy."""
        if not isinstance(node, ast.Call):
            return []
        if _is_leaving(node):
            return [node.func.value]  # type: ignore[attr-defined]
        known, function = self.resolve(node.func)
        if not known and isinstance(node.func, ast.Name) and node.func.id not in self.local:
            function = _TAKING.get(node.func.id)
        return [*node.args, *(keyword.value for keyword in node.keywords)] if _is_outside(function) else []

    def _data(self, node: ast.AST, above: frozenset[Any] = frozenset()) -> int:
        """What of the inputs a value may be, or hold, in torch: NOTHING, a COUNT, a MASK, or floating-point NUMBERS."""
        if isinstance(node, ast.Name) or is_own(node, self.method.self):
            name = ast.unparse(node)
            key, values = (self.method.function, name), self.given.get(name, [])
            if key in above or name == self.method.self or (name not in self.local and not values):
                return NOTHING
            if name in self.parameters:
                return NOTHING if name in self.numbers else self._passed(name, above | {key})
            return _most(self._data(value, above | {key}) for value in values) if values else NUMBERS
        if isinstance(node, ast.Lambda) or (isinstance(node, ast.Attribute) and node.attr in _ABOUT):
            return NOTHING
        if isinstance(node, ast.Call) and is_own(node.func, self.method.self):
            return NOTHING if self._taken(node) else NUMBERS
        held = _most(self._data(each, above) for each in _holding(node)) if not self._taken(node) else NOTHING
        if isinstance(node, ast.Compare):
            return min(held, MASK) if not isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)) else NOTHING
        if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
            return NUMBERS if held else NOTHING
        return _of_call(node, held) if isinstance(node, ast.Call) else held

    def _passed(self, name: str, above: frozenset[Any]) -> int:
        """What an argument may be of the inputs, as far as the calls tell that are known."""
        passed = [(search, _argument(call, self.method, name)) for search, call in self.callers()]
        values = (NUMBERS if value is None else search._data(value, above) for search, value in passed)
        return _most(values) if passed else NUMBERS

    def is_layered(self, node: ast.AST, seen: set[Any] | None = None) -> bool:
        """Whether a layer computes a value, or what it is computed from: an argument of a forward may be token ids."""
        seen = set() if seen is None else seen
        if isinstance(node, ast.Name):
            key = (self.method.function, node.id)
            if key in seen or node.id == self.method.self:
                return False
            seen.add(key)
            calls = self.callers() if node.id in self.parameters else []
            passed = [(search, _argument(call, self.method, node.id)) for search, call in calls]
            passed += [(self, value) for value in self.given.get(node.id, [])]
            return any(value is not None and search.is_layered(value, seen) for search, value in passed)
        if isinstance(node, ast.Call) and self.called(node.func):
            return True
        return any(self.is_layered(child, seen) for child in ast.iter_child_nodes(node))

    def _has_left(self, node: ast.AST, above: frozenset[str] = frozenset()) -> bool:
        """Whether a value is a number of Python or an array of numpy that was a tensor."""
        if isinstance(node, ast.Name):
            values = self.given.get(node.id, []) if node.id not in self.arguments | above else []
            return bool(values) and all(self._has_left(value, above | {node.id}) for value in values)
        inner = getattr(node, "func", None) or getattr(node, "value", None)  # of a call, an item or an attribute
        return bool(self._taken(node)) or (inner is not None and self._has_left(inner, above))

    def calls(self) -> "Calls":
        """The calls of registered modules that can run."""
        return [
            (each, self.at(call), self.further(call, each)) for call in self.visited for each in self.called(call.func)
        ]

    def called(self, function: ast.AST, above: frozenset[str] = frozenset()) -> list[nn.Module]:
        """The registered modules that a call of this may call: `self.act`, one of `self.acts`, what a name holds."""
        if isinstance(function, ast.Name):
            values = self.given.get(function.id, []) if function.id not in above else []
            return [module for value in values for module in self.called(value, above | {function.id})]
        own, *path = ast.unparse(function).split(".")
        given = self._given_by(path[0]) if own == self.method.self and len(path) == 1 and path[0] not in above else None
        if given is not None:
            return [module for value in given[1] for module in given[0].called(value, above | {path[0]})]
        value: Any = self.module if own == self.method.self and path else None
        for name in path:
            value = getattr(value, name, None)
        if isinstance(value, nn.Module):
            parts = [*value.children()] if isinstance(value, (nn.Sequential, nn.ModuleList, nn.ModuleDict)) else []
            return [value, *parts]
        inner: list[ast.AST] = []
        if isinstance(function, ast.Call) and isinstance(function.func, ast.Name) and function.func.id in _ITERATING:
            inner = [*function.args]
        elif isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute):
            inner = [function.func.value] if function.func.attr in ("values", "items", "get") else []
        elif isinstance(function, (ast.Subscript, ast.IfExp, ast.List, ast.Tuple)):
            inner = _holding(function)
        return [module for part in inner for module in self.called(part, above)]

    def further(self, call: ast.Call, called: nn.Module) -> Further | None:
        """What a call of a module passes beside its input; None where data may be among it."""
        names = [str(each.arg) for each in call.keywords]
        first = first_parameter(getattr(called, "function", called.forward))
        first = "" if call.args else first if first in names else "".join(names[:1])
        by_name = {str(each.arg): each.value for each in call.keywords if each.arg != first}
        values: list[Any] = []
        for part in (*call.args[1:], *by_name.values()):
            known, value = self._constant(part)
            if not known and not self._is_number(part):
                return None
            values.append(value if known else ...)
        number = len(values) - len(by_name)
        further = dict(zip(by_name, values[number:], strict=True))
        return Further(tuple(values[:number]), further, first)

    def _is_number(self, node: ast.AST, above: frozenset[str] = frozenset()) -> bool:
        """Whether a value is a number of Python's, known or not: a setting that changes, a count."""
        if isinstance(node, ast.Name):
            values = self.given.get(node.id, []) if node.id not in self.parameters | above else []
            counted = bool(values) and all(self._is_number(value, above | {node.id}) for value in values)
            return counted or node.id in self.numbers or self._is_constant(node)
        if is_own(node, self.method.self):
            return isinstance(getattr(self.module, node.attr, None), (bool, int, float, str))  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in ("len", "int", "float", "range")
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)):
            parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
            return all(self._is_number(part, above) for part in parts)
        return isinstance(node, ast.Constant)

    def _constant(self, node: ast.expr) -> tuple[bool, Any]:
        weight = self.weight(node)
        return self.resolve(node) if weight is None else (True, weight)

    def weight(self, node: ast.expr) -> Tensor | None:
        """The parameter or buffer that `self.name` is, unless a method sets it."""
        if not is_own(node, self.method.self) or node.attr in self.changing:  # type: ignore[attr-defined]
            return None
        return {**self.module._parameters, **self.module._buffers}.get(node.attr)  # type: ignore[attr-defined]

    def _is_of_weights(self, node: ast.Call) -> bool:
        """Whether a call works on parameters and constants alone, as `F.relu(self.scale)` does."""
        method = isinstance(node.func, ast.Attribute) and self.weight(_whole(node.func.value)) is not None
        parts = [*([node.func.value] if method else []), *node.args]  # type: ignore[attr-defined]
        weights = [part for part in parts if self.weight(_whole(part)) is not None]
        return bool(weights) and all(part in weights or self._is_constant(part) for part in parts)

    def _inherited(self, name: str) -> Any:
        """What `super().name` is."""
        own = self.scope.get("__class__")
        if not isinstance(own, type):
            return None
        order = type(self.module).__mro__ if isinstance(self.module, own) else own.__mro__
        above = order[order.index(own) + 1 :]
        return next((vars(base)[name] for base in above if name in vars(base)), None)

    def doubts(self) -> list[Mention]:
        """What the calls that can run may run that nothing lists, those in a parent's method too."""
        own = [doubt or self._unknown(call.func, call) for call in self.visited for doubt in self._doubts(call.func)]
        passed = [part for call in self.visited for part in (*call.args, *(each.value for each in call.keywords))]
        own += [replace(self._unknown(part, part), place=None) for part in passed if self._is_object(part)]
        return own + [doubt for parent in self.parents for doubt in parent.doubts()]

    def _is_object(self, node: ast.expr) -> bool:
        """Whether an expression is an object that can be called, or holds such."""
        if is_own(node, self.method.self):
            return _holds_object(inspect.getattr_static(self.module, node.attr, None))  # type: ignore[attr-defined]
        return isinstance(node, ast.Name) and _holds_object(self.resolve(node)[1])

    def _unknown(self, function: ast.expr, node: ast.expr) -> Mention:
        return unknown(ast.unparse(function).removeprefix(f"{self.method.self}."), self.at(node))

    def _doubts(self, function: ast.expr, above: frozenset[str] = frozenset()) -> list[Mention | None]:
        """The same for a call of one function: None stands for one that is passed, made or looked up."""
        known, value = self.resolve(function)
        if known:
            return [None] if _is_unread(value) else []
        if isinstance(function, ast.Name):
            values = self.given.get(function.id, []) if function.id not in self.arguments | above else []
            if function.id not in self.local or function.id in self.inner or function.id == self.method.self:
                return []  # the parts of a row of modules are registered
            found = [doubt for each in values for doubt in self._doubts_of(each, above | {function.id})]
            return found if values else [None]
        if isinstance(function, ast.IfExp):
            return [*self._doubts_of(function.body, above), *self._doubts_of(function.orelse, above)]
        if isinstance(function, (ast.Tuple, ast.List)):
            return [doubt for each in function.elts for doubt in self._doubts_of(each, above)]
        if isinstance(function, ast.Subscript):
            return self._doubts(function.value, above)
        if not isinstance(function, ast.Attribute):
            return [] if isinstance(function, ast.Lambda) else [None]
        return self._doubts_of_attribute(function, above)

    def _doubts_of_attribute(self, function: ast.Attribute, above: frozenset[str]) -> list[Mention | None]:
        path = ast.unparse(function).split(".")
        if path[0] != self.method.self or not all(part.isidentifier() for part in path):
            return [None] if self._is_made(function.value, above) else []  # else of a tensor, or of an argument
        given = self._given_by(path[1]) if len(path) == 2 and path[1] not in above else None
        if given is not None:
            return [doubt for value in given[1] for doubt in given[0]._doubts_of(value, above | {path[1]})]
        holder: Any = self.module
        for name in path[1:-1]:
            holder = getattr(holder, name, None)
        if getattr(holder, path[-1], None) is None and not self.changing & {*path}:
            return []  # no call of it can run
        if isinstance(holder, nn.Module):
            own = holder is self.module and path[-1] in methods(type(holder))
            return [] if own or path[-1] in holder._modules or hasattr(nn.Module, path[-1]) else [None]
        if holder is None and hasattr(Tensor, path[-1]):
            return []  # of a tensor that forward sets
        return [] if isinstance(holder, (Tensor, str, list, tuple, dict, set)) else [None]

    def _is_made(self, node: ast.AST, above: frozenset[str]) -> bool:
        """Whether a method makes this object, of a class that is neither a module's nor one of Python's own."""
        if isinstance(node, ast.Name) and node.id in self.given and node.id not in above:
            return any(self._is_made(value, above | {node.id}) for value in self.given[node.id])
        made = self.resolve(node.func)[1] if isinstance(node, ast.Call) else None
        own = isinstance(made, type) and made.__module__ not in ("builtins", "collections")
        return own and not issubclass(made, (nn.Module, Tensor))  # type: ignore[arg-type]

    def _given_by(self, name: str) -> tuple["Search", list[ast.expr]] | None:
        """For a property of self, its code and what it may return; None for all else, or without source."""
        member, known = inspect.getattr_static(type(self.module), name, None), methods(type(self.module))
        if name not in known or not isinstance(member, (property, cached_property)):
            return None
        search = Search(self.module, known[name], self.registered)
        returns = [node for node in ast.walk(search.method.tree) if isinstance(node, ast.Return)]
        return search, [node.value for node in returns if node.value is not None]

    def _doubts_of(self, value: ast.expr, above: frozenset[str]) -> list[Mention | None]:
        """The same for a function that a name holds: one of a table, one of several modules, or another name's."""
        holder = value.func if isinstance(value, ast.Call) else value
        known, table = (
            self.resolve(holder.value) if isinstance(holder, (ast.Attribute, ast.Subscript)) else (False, None)
        )
        if known and isinstance(table, Mapping):
            if id(table) not in _TABLES:
                mentions = [mention for each in table.values() for mention in self._mentions(each, "a table")]
                _TABLES[id(table)] = (table, mentions)
            return [*_TABLES[id(table)][1]]
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _ITERATING:
            parts = [self._doubts(each, above) for each in value.args]
            return min(parts, key=len, default=[None])
        return self._doubts(value, above)

    def _mentions(self, value: Any, text: str, depth: int = 2) -> Iterator[Mention]:
        """The activations that a value is, holds or applies."""
        picked = f"{PICKED} ({text})"
        if isinstance(value, (dict, list, tuple, set)):
            for each in (value.values() if isinstance(value, dict) else value) if depth else ():
                yield from self._mentions(each, f"{OF_TABLE}{text.removeprefix(OF_TABLE)}", depth - 1)
        elif isinstance(value, nn.Module):
            loose = [part for part in value.modules() if id(part) not in self.registered]
            known = [activation for part in loose if (activation := _module_activation(part)) is not None]
            yield from (_mention(kind, picked, default=default) for kind, default in known)
        elif isinstance(value, type) or (callable(value) and isinstance(value, Hashable) and value in FUNCTIONS):
            kind = class_kind(value) if isinstance(value, type) else FUNCTIONS[value]
            yield from [] if kind is None else [_mention(kind, picked)]
        elif isinstance(value, (FunctionType, partial)) and value not in self.seen:
            answer = elementwise(value) if _is_foreign(_plain(value)) else None
            if answer is not None and answer.continuous and (answer.kind or not counts(value)):
                self.seen.add(value)
                kind, name = answer.kind, getattr(value, "__name__", FORMULA).strip("<>")
                default = not (kind or answer.gate)
                yield _mention(kind or (name if name != "lambda" else FORMULA), picked, default=default)
            else:
                name = getattr(value, "__name__", "a function")
                yield from _hidden(value, self.registered, f"{name}, outside its class", self.seen, self)

    def at(self, node: ast.expr) -> Place:
        return self.method.place(node)

    def _expression(self, node: ast.Call | ast.BinOp | ast.UnaryOp) -> Expression | None:
        """The activation that an expression is: a formula as a whole, or else one call."""
        called = self.callee(node) if isinstance(node, ast.Call) else None
        if self.outside and is_clamp(called):
            return None  # of boxes and counts as often as of hidden layers
        if any(isinstance(part, ast.keyword) and part.arg == "out" for part in ast.walk(node)):
            return None  # it writes into another tensor
        leaves = self._leaves(node) or []
        if len({ast.dump(leaf) for leaf in leaves}) == 1 and leaves[0] is not node:
            calls = self._calls(node, {self.at(leaf) for leaf in leaves})
            if len(leaves) > 1 or sum(map(_may_bend, calls)) > (called in FUNCTIONS):
                function, source = self._function(node, leaves), Step("an input")
                formula = Statements(self, {self.at(leaf): source for leaf in leaves}).whole(node)
                if formula is not None and (formula.kind in ALL_KINDS or formula.default or not counts(function)):
                    return self._written(node, leaves, formula.kind, function, default=formula.default, formula=True)
        answer = self.activation(node, called) if isinstance(node, ast.Call) and called is not None else None
        if answer is None:
            return None
        leaf, kind, role, function = answer
        default = kind not in ALL_KINDS and role == "whole"
        if default and not isinstance(called, nn.Module):  # as what a graph computes step by step
            asked = elementwise(function)
            default = asked is not None and asked.rectifies
        return self._written(node, [leaf], kind, function, default=default, formula=called not in FUNCTIONS)

    def activation(self, node: ast.Call, callee: Any) -> tuple[ast.expr, str, Role, Callable[[Tensor], Any]] | None:
        """Of a call that is an activation by itself: its input, its kind, whether it is a gate, and the function."""
        if isinstance(callee, nn.Module):
            known = _module_activation(callee)
            leaf = node.args[0] if node.args else None
            if known is None or leaf is None:
                return None
            role: Role = "gate" if known[0] in GATES or not (known[1] or known[0] in ALL_KINDS) else "whole"
            return leaf, known[0], role, partial(called_alone, callee)
        leaf = self._input(node) if self._may_be_pointwise(callee) else None
        own = isinstance(callee, (FunctionType, torch.jit.ScriptFunction, partial)) or _is_apply(callee)
        if leaf is None or not (own or callee in FUNCTIONS or is_clamp(callee)):
            return None
        if not own and not _may_bend(callee):
            return None
        function = self._function(node, [leaf])
        weights = [weight for part in ast.walk(node) if (weight := self.weight(part)) is not None]  # type: ignore[arg-type]
        widths = tuple(dict.fromkeys([*(weight.numel() for weight in weights), 3]))
        answer = elementwise(function, widths)
        if answer is None or is_shifted(function, weights, widths):
            return None
        kind = FUNCTIONS.get(callee) if isinstance(callee, Hashable) else None
        kind = kind or answer.kind
        bounds = [each for each in (*node.args, *(k.value for k in node.keywords)) if each is not leaf]
        if kind == "relu" and is_clamp(callee) and len(bounds) > 1:
            return None  # an upper bound beyond the numbers that it was asked for
        if kind is None:
            foreign = isinstance(callee, FunctionType) and not callee.__module__.startswith("torch.")
            if not foreign or not answer.continuous or counts(function):
                return None
            kind = callee.__name__
        return leaf, kind, "gate" if kind in GATES or answer.gate else "whole", function

    def _written(
        self,
        node: ast.expr,
        leaves: list[ast.expr],
        kind: str,
        function: Callable[[Tensor], Any],
        *,
        default: bool,
        formula: bool,
    ) -> Expression:
        text = ast.unparse(node)
        return Expression(
            place=self.at(node),
            source=self.at(leaves[0]),
            kind=kind,
            text=_short(text),
            function=function,
            default=default,
            formula=formula,
            varies=any(isinstance(part, ast.Name) and part.id in self.varying for part in ast.walk(node)),
            learned=any(isinstance(self.weight(part), nn.Parameter) for part in ast.walk(node)),  # type: ignore[arg-type]
        )

    def _calls(self, node: ast.AST, leaves: set[Place]) -> list[Any]:
        """What an expression calls, its inputs left out."""
        if isinstance(node, ast.expr) and self.at(node) in leaves:
            return []
        own = [self.callee(node)] if isinstance(node, ast.Call) else []
        return own + [call for child in ast.iter_child_nodes(node) for call in self._calls(child, leaves)]

    def _input(self, node: ast.Call) -> ast.expr | None:
        """The one argument of a call, or the tensor whose method it is; None where there are several that vary."""
        receiver = [] if self.resolve(node.func)[0] else [node.func.value]  # type: ignore[attr-defined]
        parts = [*receiver, *node.args, *(keyword.value for keyword in node.keywords)]
        varying = [part for part in parts if not self._is_constant(part)]
        return varying[0] if len(varying) == 1 and not isinstance(varying[0], ast.Starred) else None

    def _leaves(self, node: ast.expr) -> list[ast.expr] | None:
        """The inputs of an expression: what is neither a constant nor a function of other inputs."""
        if self._is_constant(node):
            return []
        parts: list[ast.expr]
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.UnaryOp):
            parts = [node.operand]
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and self._may_be_pointwise(self.callee(node)):
            receiver = [] if self.resolve(node.func)[0] else [node.func.value]  # type: ignore[attr-defined]
            parts = [*receiver, *node.args, *(keyword.value for keyword in node.keywords)]
        else:
            return [node]
        nested = [self._leaves(part) for part in parts]
        return None if None in nested else [leaf for leaves in nested for leaf in leaves or []]

    def _is_constant(self, node: ast.expr) -> bool:
        known, value = self._constant(node)
        return known and (value is None or isinstance(value, (bool, int, float, str, torch.dtype, Tensor)))

    def callee(self, node: ast.Call) -> Any:
        """The function that a call calls, a tensor's method by its name; None where that is not known."""
        known, value = self.resolve(node.func)
        if known:
            return None if _is_outside(value) else value
        if isinstance(node.func, ast.Attribute) and not is_own(node.func, self.method.self):
            if self._has_left(node):
                return None
            return node.func.attr if callable(getattr(Tensor, node.func.attr, None)) else None
        return None

    def resolve(self, node: ast.expr) -> tuple[bool, Any]:
        """Whether the value of an expression is known before the method runs, and the value."""
        try:
            return True, self._value(node)
        except Exception:  # names, attributes and items that are not there yet, and whatever a constructor raises
            return False, None

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and (node.id in self.scope or node.id not in self.local):
            return self.scope[node.id] if node.id in self.scope else self.method.function.__globals__[node.id]
        if isinstance(node, ast.Attribute):
            own = is_own(node, self.method.self)
            return self._attribute(node.attr) if own else getattr(self._value(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return self._value(node.value)[self._value(node.slice)]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(each) for each in node.elts]
        if isinstance(node, ast.Dict) and None not in node.keys:
            return {self._value(key): self._value(v) for key, v in zip(node.keys, node.values, strict=True) if key}
        if isinstance(node, ast.IfExp) and (decided := self.decided(node.test)) is not None:
            return self._value(node.body if decided else node.orelse)
        if isinstance(node, ast.Call):
            return self._made(node)
        function, parts = operation(node)
        values = [self._value(part) for part in parts]
        if function is None or not all(isinstance(value, (int, float)) for value in values):
            raise LookupError
        return function(*values)

    def _attribute(self, name: str) -> Any:
        """The value of `self.name`, unless it is a registered module or a method changes it."""
        if name == "__class__":
            return type(self.module)
        value = inspect.getattr_static(self.module, name)
        if isinstance(value, property):
            return self._returned(name, value)
        value = value.__func__ if isinstance(value, staticmethod) else value
        constant = isinstance(value, (bool, int, float, str, BuiltinFunctionType, list, tuple, dict, nn.Module, type))
        if name in self.changing or not (constant or _is_function(value, self.module, name)):
            raise LookupError(name)
        return value

    def _returned(self, name: str, member: property) -> Any:
        """The function that a property gives as attributes are now, unless the mode or what methods set decides."""
        read = {
            node.attr for node in ast.walk(methods(type(self.module))[name].tree) if isinstance(node, ast.Attribute)
        }
        value = _getter(member)(self.module) if not read & {"training", *self.changing} else None
        known = isinstance(value, (FunctionType, BuiltinFunctionType, partial))
        if not known or getattr(value, "__code__", None) in codes(type(self.module)):  # whose own code is read
            raise LookupError(name)
        return value

    def _made(self, node: ast.Call) -> Any:
        """What a call gives that looks a function up, or makes a module or a partial function."""
        if ast.unparse(node) == f"type({self.method.self})":
            return type(self.module)
        looks_up = isinstance(node.func, ast.Name) and node.func.id == "getattr" and "getattr" not in self.local
        function = getattr if looks_up else self._value(node.func)
        makes = isinstance(function, type) and issubclass(function, (nn.Module, partial))
        counts_out = getattr(function, "__module__", None) == "math"
        if not (looks_up or makes or counts_out or isinstance(getattr(function, "__self__", None), dict)):
            raise LookupError
        with torch.random.fork_rng(devices=[]):
            return function(*map(self._value, node.args), **{str(k.arg): self._value(k.value) for k in node.keywords})

    def _function(self, node: ast.expr, leaves: list[ast.expr]) -> Callable[[Tensor], Any]:
        """The expression as a function of its input."""
        places = {self.at(leaf) for leaf in leaves}
        weights: dict[str, Tensor] = {}

        class Holes(ast.NodeTransformer):
            def visit(hole, inner: ast.AST) -> Any:  # noqa: N805 - self is the search
                if isinstance(inner, ast.expr) and self.at(inner) in places:
                    return ast.copy_location(ast.Name("_x", ast.Load()), inner)
                if isinstance(inner, ast.expr) and (weight := self.weight(inner)) is not None:
                    weights[name := f"_x{len(weights)}"] = weight
                    return ast.copy_location(ast.Name(name, ast.Load()), inner)
                return hole.generic_visit(inner)

        body = Holes().visit(_clone(node))
        code = compile(ast.fix_missing_locations(ast.Expression(body)), "<expression>", "eval")
        local = {**self.scope, self.method.self: self.module}
        return partial(_evaluated, code, self.method.function.__globals__, local, weights)

    def _may_be_pointwise(self, callee: Any) -> bool:
        """Whether a call may be part of an elementwise expression: of a function, or a module nobody registered."""
        if isinstance(callee, nn.Module):
            return id(callee) not in self.registered
        return _may_be_pointwise(callee)


_DECIDING = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Compare, ast.Constant, ast.Attribute, ast.Load,
    ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
"""What a condition may consist of that is decided before the method runs."""

LONGEST = 48
"""Characters of an expression that a report shows."""


NOTHING, COUNT, MASK, NUMBERS = range(4)
"""What a value may be of the inputs. A mask is a step of each number; a count is an integer that Python may have."""

_SIZES = ("size", "dim", "numel", "nelement", "ndimension", "stride")
_COUNTING = ("long", "int", "bool", "any", "all", "argmax", "argmin", "argsort", "nonzero", "count_nonzero")
_KEEPING = ("max", "min", "detach", "cpu", "clone", "view", "reshape", "flatten", "squeeze", "unsqueeze")
"""Methods and functions that give sizes, that count, and that leave counts and masks what they are."""


def _most(parts: Iterable[int]) -> int:
    """The largest of them; NUMBERS ends the search."""
    most = NOTHING
    for part in parts:
        most = max(most, part)
        if most == NUMBERS:
            break
    return most


def _of_call(node: ast.Call, held: int) -> int:
    """What a call makes of inputs: most functions make numbers of masks and counts too."""
    name = getattr(node.func, "attr", "")
    if not held or name in _SIZES or getattr(node.func, "id", "") in ("len", "range", "int", "bool"):
        return NOTHING
    if name in _COUNTING or (name == "sum" and held == MASK):
        return COUNT
    return held if name in (*_KEEPING, "sum") else NUMBERS


_ABOUT = ("shape", "ndim", "dtype", "device", "is_cuda", "requires_grad", "training")
"""Attributes of a tensor that say nothing of its numbers."""

_ITERATING = ("enumerate", "zip", "reversed", "iter", "list", "tuple")

_TABLES: dict[int, tuple[Any, list[Mention]]] = {}
"""What the functions in a table apply, by the id of the table, which is kept."""

_TAKING: dict[str, Any] = {"float": float, "complex": complex, **_PICKING}


def _is_outside(function: Any) -> bool:
    """Whether a function computes outside of torch: Python's numbers, math, or numpy and what is built on it."""
    home = getattr(function, "__module__", None) or type(function).__module__
    taking = any(function is each for each in _TAKING.values())
    return taking or home.partition(".")[0] in ("math", "cmath", "numpy", "scipy")


def _numbers(arguments: ast.arguments) -> set[str]:
    """The arguments that are no tensors, by their annotation or default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[Any] = [*zip(reversed(positional), reversed(arguments.defaults), strict=False)]
    defaults += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    plain = {each.arg for each, value in defaults if isinstance(value, ast.Constant) and value.value is not None}
    annotated = [each for each in (*positional, *arguments.kwonlyargs) if each.annotation is not None]
    return plain | {each.arg for each in annotated if not _may_be_tensor(ast.unparse(each.annotation))}  # type: ignore[arg-type]


def _may_be_tensor(annotation: str) -> bool:
    return not set(re.findall(r"\w+", annotation)) <= _PLAIN


_PLAIN = {"int", "float", "bool", "str", "None", "Optional", "Union", "tuple", "list", "Tuple", "List", "typing"}


def _calls_of(function: Any, searches: list[Search]) -> list[tuple[Search, ast.Call]]:
    """The calls of a function, or of a method of self by its name."""
    found: list[tuple[Search, ast.Call]] = []
    for search in searches:
        for call in search.all_calls:
            if isinstance(function, str):
                same = is_own(call.func, search.method.self) and call.func.attr == function  # type: ignore[attr-defined]
            else:
                same = search.resolve(call.func)[1] is function
            found += [(search, call)] if same else []
    return found


def _passed_numbers(method: Method, calls: list[tuple[Search, ast.Call]]) -> dict[str, list[float]]:
    """The values of arguments of a method that are numbers, by its calls or by their defaults."""
    numbers: dict[str, list[float]] = {}
    for name, parameter in inspect.signature(method.function).parameters.items():
        passed = [(search, _argument(call, method, name)) for search, call in calls]
        values = [parameter.default if node is None else search.resolve(node)[1] for search, node in passed]
        if values and all(type(value) in (int, float) for value in values):
            numbers[name] = list(dict.fromkeys(values))
    return numbers


def _holding(node: ast.AST) -> list[ast.AST]:
    """The parts of an expression whose values it holds; others count, choose or select."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        return [node.elt]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Call):
        holder = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*holder, *node.args, *(keyword.value for keyword in node.keywords)]
    return [node.value] if isinstance(node, ast.Subscript) else list(ast.iter_child_nodes(node))


def _argument(call: ast.Call, method: Method, name: str) -> ast.expr | None:
    """What a call passes for an argument; None where that is not to be seen."""
    names = [each.arg for each in (*method.tree.args.posonlyargs, *method.tree.args.args)]
    names = names[1:] if method.self else names
    by_name = {keyword.arg: keyword.value for keyword in call.keywords}
    given = dict(zip(names, call.args, strict=False)) if not any(isinstance(a, ast.Starred) for a in call.args) else {}
    return by_name.get(name) or given.get(name)


def _is_leaving(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEAVING


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """What a statement or expression assigns, with the value, or what it is taken from."""
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
        return [(node.target, node.value)]
    return [(node.target, node.iter)] if isinstance(node, (ast.For, ast.comprehension)) else []


def _evaluated(
    code: CodeType, names: dict[str, Any], local: dict[str, Any], weights: dict[str, Tensor], x: Tensor
) -> Any:
    """The value of an expression, with weights in the precision of the input."""
    held = {n: w.detach().to(x) if w.is_floating_point() else w.to(x.device) for n, w in weights.items()}
    return eval(code, names, {**local, **held, "_x": x})


def _clone(node: Any) -> Any:
    if isinstance(node, list):
        return [_clone(part) for part in node]
    if not isinstance(node, ast.AST):
        return node
    return ast.copy_location(type(node)(**{name: _clone(value) for name, value in ast.iter_fields(node)}), node)


def is_filled(cell: CellType) -> bool:
    """Whether a cell of a closure has a value yet."""
    try:
        cell.cell_contents  # noqa: B018 - a cell without contents raises
    except ValueError:
        return False
    return True


def _is_function(value: Any, module: nn.Module, name: str) -> bool:
    """Whether `self.name` is a plain function, kept on the instance or as a static method, and not a method."""
    return isinstance(value, FunctionType) and (name in vars(module) or not hasattr(getattr(module, name), "__self__"))


def _may_be_pointwise(callee: Any) -> bool:
    """Whether a call may be part of an elementwise expression: a function of torch, a tensor's method, or yours."""
    if callee is None or isinstance(callee, type):
        return False
    if isinstance(callee, str):
        return not callee.startswith("__")
    home = getattr(callee, "__module__", None) or ""
    if home in ("builtins", "math") or home.startswith("torch.utils"):
        return False
    return (
        isinstance(callee, (FunctionType, torch.jit.ScriptFunction, partial))
        or callee in FUNCTIONS
        or (
            isinstance(callee, BuiltinFunctionType)
            or type(callee).__name__ in ("builtin_function_or_method", "function")
        )
        or _is_apply(callee)
    )


def _module_activation(module: nn.Module) -> tuple[str, bool] | None:
    """The kind of a module that is one activation, and whether it is chosen without being asked for."""
    if (kind := module_kind(module)) is not None:
        return kind, False
    answer = whole_activation(module)
    return None if answer is None else (answer.kind or type(module).__name__, not (answer.kind or answer.gate))


def _whole(node: ast.expr) -> ast.expr:
    """What an expression takes an item of: `self.w` of `self.w[0]`."""
    return _whole(node.value) if isinstance(node, ast.Subscript) else node


def _is_apply(callee: Any) -> bool:
    """Whether this is `apply` of an autograd function."""
    owner = getattr(callee, "__self__", None)
    return isinstance(owner, type) and issubclass(owner, torch.autograd.Function)


_STRAIGHT = {
    "view", "reshape", "flatten", "permute", "transpose", "contiguous", "unsqueeze", "squeeze", "expand", "size", "dim",
    "to", "type", "float", "half", "detach", "clone", "mean", "sum", "t", "chunk", "split", "type_as", "cpu",
}  # fmt: skip


def _may_bend(callee: Any) -> bool:
    """Whether a call may make a line crooked: methods that only move numbers are not worth a question."""
    return callee is not None and not (isinstance(callee, str) and callee in _STRAIGHT)


def rewritten_method(base: type[nn.Module], name: str, text: str) -> FunctionType | property:
    """The method `name` of `base` with the source `text`: its globals, closure, defaults and decorators stay."""
    definer = _definer(base, name)
    assert definer is not None
    member = definer.__dict__[name]
    whole = _getter(member)
    function: FunctionType = inspect.unwrap(whole)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    factory = f"def _make({', '.join(cells)}):\n{textwrap.indent(text, '    ')}\n    return {name}\n"
    file = f"<apical conversion of {base.__qualname__}.{name} {abs(hash(text)):x}>"
    linecache.cache[file] = (len(factory), None, factory.splitlines(keepends=True), file)
    scope: dict[str, Any] = {}
    exec(compile(factory, file, "exec", dont_inherit=True), function.__globals__, scope)
    made: FunctionType = scope["_make"](**{n: c.cell_contents if is_filled(c) else None for n, c in cells.items()})
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    made.__qualname__, made.__module__, made.__doc__ = function.__qualname__, function.__module__, function.__doc__
    made = _decorated(whole, made)
    return member.getter(made) if isinstance(member, property) else made


def _decorated(outer: Any, made: FunctionType) -> FunctionType:
    """`made` inside the same wrappers as the function that `outer` wraps."""
    inner = getattr(outer, "__wrapped__", None)
    if inner is None:
        return made
    new = _decorated(inner, made)
    cells = tuple(CellType(new) if _holds(cell, inner) else cell for cell in outer.__closure__ or ())
    wrapper = FunctionType(outer.__code__, outer.__globals__, outer.__name__, outer.__defaults__, cells)
    wrapper.__kwdefaults__ = outer.__kwdefaults__
    wrapper.__dict__.update(outer.__dict__, __wrapped__=new)
    wrapper.__qualname__, wrapper.__module__, wrapper.__doc__ = outer.__qualname__, outer.__module__, outer.__doc__
    return wrapper


def _holds(cell: CellType, inner: Any) -> bool:
    return is_filled(cell) and cell.cell_contents is inner


def why_no_source(module: nn.Module, name: str) -> str | None:
    """Why a method of `module` cannot be compiled again with another expression; None where it can."""
    if name in vars(module):
        return f"its {name} is set on the instance"
    if name not in methods(type(module)):
        return f"the source of its {name} cannot be read"
    outer = _definer(type(module), name).__dict__[name]
    if isinstance(outer, cached_property):
        return f"its {name} is a cached property"
    outer = _getter(outer)
    while (inner := getattr(outer, "__wrapped__", None)) is not None:
        if not isinstance(outer, FunctionType) or not any(_holds(cell, inner) for cell in outer.__closure__ or ()):
            return f"a decorator of its {name} hides the function"
        outer = inner
    return None


def call_input_place(kind: type[nn.Module], place: Place) -> Place | None:
    """The place of the input of the call at `place`; None where no call of one input stands there."""
    method = methods(kind).get(place.method)
    for node in ast.walk(method.tree) if method is not None else ():
        if isinstance(node, ast.Call) and method is not None and method.place(node) == place:
            if isinstance(node.func, ast.Subscript) or ast.unparse(node.func) in _loop_names(method):
                return None  # it calls other modules too
            inputs = [*node.args, *(keyword.value for keyword in node.keywords)]
            if not inputs or isinstance(inputs[0], ast.Starred) or _names_function(inputs[0], method):
                return None
            return method.place(inputs[0])
    return None


def _names_function(node: ast.expr, method: Method) -> bool:
    """Whether an argument is a function, as in `checkpoint(F.relu, h)`, and the call another one's."""
    name, *path = ast.unparse(node).split(".") if isinstance(node, (ast.Name, ast.Attribute)) else [""]
    value = method.function.__globals__.get(name)
    for attribute in path:
        value = getattr(value, attribute, None)
    return isinstance(node, ast.Lambda) or callable(value)


def is_picked(kind: type[nn.Module], place: Place) -> bool:
    """Whether a value decides which function the call at `place` calls: `ACTS[self.name](x)`, `getattr(F, name)(x)`."""
    method = methods(kind)[place.method]
    calls = [node for node in ast.walk(method.tree) if isinstance(node, ast.Call) and method.place(node) == place]
    local = method.function.__code__.co_varnames
    return any(
        isinstance(call.func, (ast.Subscript, ast.Call, ast.IfExp)) or getattr(call.func, "id", None) in local
        for call in calls
    )


def picking_settings(module: nn.Module, place: Place) -> tuple[tuple[str, Any], ...]:
    """The plain attributes that decide which function the call at `place` calls (`ACTS[self.name](x)`), and values."""
    method = methods(type(module))[place.method]
    calls = [node for node in ast.walk(method.tree) if isinstance(node, ast.Call) and method.place(node) == place]
    given = [pair for node in ast.walk(method.tree) for pair in _assigned(node)]
    waiting = [call.func for call in calls if not isinstance(call.func, ast.Attribute)]
    waiting += [value for each in waiting for name, value in given if ast.unparse(name) == ast.unparse(each)]
    parts = [part for each in waiting for part in ast.walk(each) if is_own(part, method.self)]
    settings = {str(part.attr): getattr(module, part.attr, None) for part in parts}  # type: ignore[attr-defined]
    return tuple((name, value) for name, value in settings.items() if isinstance(value, (bool, int, str)))


def _loop_names(method: Method) -> set[str]:
    """The names that loops give one value after another."""
    loops = [node.target for node in ast.walk(method.tree) if isinstance(node, (ast.For, ast.comprehension))]
    return {name.id for target in loops for name in ast.walk(target) if isinstance(name, ast.Name)}


def edited(kind: type[nn.Module], edits: list[Edit]) -> tuple[tuple[str, str], ...]:
    """The new source of each method that `edits` change."""
    names = sorted({edit.place.method for edit in edits})
    return tuple((name, _text(methods(kind)[name], [e for e in edits if e.place.method == name])) for name in names)


def _text(method: Method, edits: list[Edit]) -> str:
    tree = _Replace(method, edits).visit(_clone(method.tree))
    tree.name, tree.decorator_list, tree.returns = method.name, [], None
    arguments = tree.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [None if value is None else ast.Constant(None) for value in arguments.kw_defaults]
    return ast.unparse(ast.fix_missing_locations(tree))


class _Replace(ast.NodeTransformer):
    """Puts `self.name(input)` in the places of the edits."""

    def __init__(self, method: Method, edits: list[Edit]) -> None:
        self.method = method
        self.edits = {edit.place: edit for edit in edits}

    def visit(self, node: ast.AST) -> Any:
        edit = self.edits.get(self.method.place(node)) if isinstance(node, ast.expr) else None
        if edit is None:
            return self.generic_visit(node)
        source = next(n for n in ast.walk(node) if isinstance(n, ast.expr) and self.method.place(n) == edit.source)
        self.edits.pop(edit.place)
        stays = _Replace(self.method, [*self.edits.values()]).visit(_clone(node)) if edit.settings else None
        inner = self.visit(source)
        called = ast.Call(self._own(edit.name), [inner], [])
        if stays is None:
            return called
        tests: list[ast.expr] = [
            ast.Compare(self._own(name), [ast.Eq()], [ast.Constant(value)]) for name, value in edit.settings
        ]
        return ast.IfExp(ast.BoolOp(ast.And(), tests) if len(tests) > 1 else tests[0], called, stays)

    def _own(self, name: str) -> ast.Attribute:
        return ast.Attribute(ast.Name(self.method.self, ast.Load()), name, ast.Load())
