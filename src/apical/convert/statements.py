"""The statements of a method, followed one by one: what each name holds, as a function of one other value.

For forwards that no graph stands for. Names, calls, operators and assignments, those through a mask too
(`h[h < 0] = 0`), make the steps of formula.py; whatever else a method has makes a new value, and a name that a loop or
a branch sets is a new value after it.
"""

import ast
import operator
from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from apical.convert.formula import (
    MASKS,
    Formula,
    Formulas,
    Step,
    as_function,
    filled,
    is_of_stack,
    is_pointwise,
    plain_name,
    put,
    setting,
)
from apical.convert.kinds import NORMS, is_affine, is_clamp
from apical.convert.operators import Data, Operation, is_about_shape

if TYPE_CHECKING:
    from apical.convert.source import Place, Search

_OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.USub: operator.neg,
    ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_STORED = "stored"
_JOINING = ("cat", "concat", "concatenate", "hstack", "vstack", "stack")
_FILLING = ("append", "appendleft", "extend", "insert", "add", "update", "setdefault")


class Statements:
    """What one method computes; `search` knows its names. `inputs` are places whose values are given."""

    def __init__(self, search: "Search", inputs: "dict[Place, Step] | None" = None) -> None:
        self.search, self.steps, self.inputs = search, Formulas(), inputs or {}
        self.names: dict[str, Any] = {}
        self.repeated: list[list[Step]] = []
        """Activations in a loop of a value from outside of it and of what the loop counts: again parts, perhaps."""
        self.counted: set[str] = set()
        self.outside: set[str] = set()

    def formulas(self) -> Iterator[Formula]:
        """The activations of several steps in the method."""
        self._block(self.search.method.tree.body)
        return self.steps.formulas()

    def scattered(self) -> list[list[Step]]:
        """Activations of one value whose results go into lists, tables or attributes beside the value itself.

        What meets there is not followed: they may be the parts of one activation.
        """
        found: list[list[Step]] = []
        bases = {id(step.base): step.base for step in self.steps.steps if step.base is not None}
        for base in bases.values():
            own = [base, *(step for step in self.steps.steps if step.base is base)]
            stored = [step for step in own if _STORED in step.ends]
            met = [step for step in own if any(is_pointwise(name) for name in step.ends) and step not in stored]
            parts = [part for step in (*stored, *met) for part in step.between(base) if part.role]
            if any(part.role for step in stored for part in step.between(base)) and len(stored) + len(met) > 1:
                found.append(parts)
        return found

    def whole(self, node: ast.expr) -> Formula | None:
        """The formula that an expression of one input is."""
        (source,) = {id(step): step for step in self.inputs.values()}.values()
        return self.steps.whole(source, self._value(node))

    def _block(self, statements: list[ast.stmt]) -> bool:
        """Follow statements as far as they run; whether they end the method."""
        return any(self._statement(statement) for statement in statements)

    def _statement(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            value = self._value(node.value) if not isinstance(node.value, ast.Tuple) else self._values(node.value)
            for target in node.targets:
                self._assign(target, value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self._value(node.value))
        elif isinstance(node, ast.AugAssign):
            left = ast.copy_location(_loaded(node.target), node.target)
            self._assign(node.target, self._value(ast.copy_location(ast.BinOp(left, node.op, node.value), node)))
        elif isinstance(node, ast.If) and (live := self.search.decided(node.test)) is not None:
            return self._block(node.body if live else node.orelse)
        elif isinstance(node, ast.With):
            return self._block(node.body)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            self._end(node.value.elts)
        elif not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            self._end([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)])
            self._branches(node)
        return isinstance(node, (ast.Return, ast.Raise))

    def _branches(self, node: ast.stmt) -> None:
        """Blocks that may or may not run, or run several times: what they set is a new value before and after."""
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.ExceptHandler))]
        changed = {
            name.id
            for child in inner
            for name in ast.walk(child)
            if isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load)
        }
        before = dict(self.names)
        loops, around = isinstance(node, (ast.For, ast.While)), (self.counted, self.outside)
        if isinstance(node, ast.For):
            targets = {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
            self.counted = self.counted | targets
            self.outside = self.search.local - changed - targets - {self.search.method.self}
        for block in (getattr(node, field, []) for field in ("body", "orelse", "finalbody", "handlers")):
            self.names = {name: value for name, value in before.items() if not (loops and name in changed)}
            for statement in block:
                self._block(statement.body if isinstance(statement, ast.ExceptHandler) else [statement])
            self._read_later(changed)
        self.names = before
        self._read_later(changed)
        self.names = {name: value for name, value in before.items() if name not in changed}
        self.counted, self.outside = around

    def _read_later(self, names: set[str]) -> None:
        """What may be read behind a branch or loop under the names that it changes."""
        for value in (self.names.get(name) for name in names):
            if isinstance(value, Step):
                value.ends.add("a later statement")

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            holder, mask = self._value(target.value), self._value(target.slice)
            at = self.search.at(target)
            self.names[target.value.id] = self._made("index_put", put, (holder, mask, value), at, _is_mask(mask))
            if not _is_mask(mask):
                _store(value)
        elif isinstance(target, ast.Attribute):
            _store(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value if isinstance(value, list) and len(value) == len(target.elts) else None
            for number, each in enumerate(target.elts):
                self._assign(each, Step("a part") if parts is None else parts[number])

    def _end(self, nodes: list[ast.expr]) -> Step:
        """A new value made from these."""
        made, values = Step("call"), [self._value(node) for node in nodes]
        for value in values:
            if isinstance(value, Step):
                value.ends.add("call")
        self.steps.note(made, "cat", (values,), {}, (self.search.module, None), known=True)
        return made

    def _made(self, name: str, function: Any, args: tuple[Any, ...], at: Any, pointwise: bool, **more: Any) -> Any:
        kwargs, known = more.pop("kwargs", {}), more.pop("known", more.get("role") is not None)
        noted = more.pop("noted", name)
        made = self.steps.made(name, function, args, kwargs, at, pointwise=pointwise, **more)
        self.steps.note(made, noted, args, kwargs, (self.search.module, at), known=known)
        return made

    def _values(self, node: ast.Tuple) -> list[Any]:
        return [self._value(each) for each in node.elts]

    def _value(self, node: ast.expr) -> Any:
        """What an expression is: a step, or a constant."""
        at = self.search.at(node)
        if at in self.inputs:
            return self.inputs[at]
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        if (weight := self.search.weight(node)) is not None:
            return weight
        known, value = self.search.resolve(node)
        if known and (value is None or isinstance(value, (bool, int, float, str, torch.dtype, Tensor))):
            return value
        if isinstance(node, ast.Name):
            value = Operation("value", "value", Data.NUMBERS, layered=self.search.is_layered(node))
            self.names[node.id] = Step(node.id, operation=value)
            return self.names[node.id]
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute) and (given := setting(node.attr)) is not None:
            return given
        if isinstance(node, ast.Attribute) and is_about_shape(node.attr):
            return Step(node.attr, operation=Operation(node.attr, node.attr, Data.WHOLE))
        if isinstance(node, ast.NamedExpr):
            self._assign(node.target, self._value(node.value))
            return self._value(_loaded(node.target))
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            args = (self._value(node.value), self._value(node.slice))
            return self._made("index", operator.getitem, args, at, _is_mask(args[1]) or is_of_stack("index", args))
        if isinstance(node, (ast.List, ast.Tuple, ast.Dict, ast.Set)):
            parts = node.values if isinstance(node, ast.Dict) else node.elts
            made, values = Step("a list or table"), [self._value(part) for part in parts]
            _store(values)
            self.steps.note(made, "cat", (values,), {}, (self.search.module, at), known=True)
            return made
        function, parts = operation(node)
        if function is None:
            return self._end([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)])
        return self._made(plain_name(function), function, tuple(map(self._value, parts)), at, pointwise=True)

    def _call(self, node: ast.Call) -> Any:
        search, at = self.search, self.search.at(node)
        child = self._child(node.func)
        callee = search.callee(node) if child is None else child
        answer = search.activation(node, callee)
        if answer is not None:
            leaf, kind, role, computes = answer
            noted = "clamp" if is_clamp(callee) else kind
            made = self._made(kind, computes, (self._value(leaf),), at, pointwise=True, role=role, noted=noted)
            if isinstance(made, Step) and child is not None:
                made.seen = child
            read = {name.id for name in ast.walk(leaf) if isinstance(name, ast.Name)}
            called = any(isinstance(part, ast.Call) for part in ast.walk(leaf))
            if isinstance(made, Step) and not called and read & self.counted and read & self.outside:
                self.repeated.append([made])
            return made
        if isinstance(callee, nn.Module):
            made = self._end([*node.args, *(keyword.value for keyword in node.keywords)])
            self.steps.note(made, "module", (), {}, (search.module, at))
            made.affine = is_affine(callee) or isinstance(callee, NORMS)
            return made
        if callee in (torch.zeros, torch.empty, torch.ones):
            return torch.tensor(float(callee is torch.ones))
        if callee in (torch.tensor, torch.as_tensor) and search.resolve(node.args[0])[0]:
            return torch.tensor(search.resolve(node.args[0])[1], dtype=torch.float64)
        method = isinstance(callee, str)
        receiver = [node.func.value] if method and isinstance(node.func, ast.Attribute) else []
        given = node.args[0] if node.args and isinstance(node.args[0], (ast.List, ast.Tuple)) else None
        if given is not None and callee is not None and plain_name(callee) in _JOINING:
            values = ([self._value(each) for each in given.elts], *map(self._value, node.args[1:]))
        else:
            values = tuple(map(self._value, (*receiver, *node.args)))
        if isinstance(node.func, ast.Attribute) and node.func.attr in _FILLING:
            _store(list(values))
        kwargs = {str(keyword.arg): self._value(keyword.value) for keyword in node.keywords}
        name = plain_name(callee) if callee is not None else "call"
        function: Any = as_function(callee) if callee is not None else None
        own = isinstance(callee, FunctionType) and not (callee.__module__ or "").startswith("torch")
        pointwise = callee is not None and not own and (is_pointwise(name) or is_of_stack(name, values))
        if (constant := filled(name)) is not None and values and isinstance(values[0], Step):
            function, values, kwargs, pointwise = constant, values[:1], {}, True
        made = self._made(name, function, values, at, pointwise, kwargs=kwargs, known=not _is_of_torch(callee))
        if method and callee.endswith("_") and receiver and isinstance(receiver[0], ast.Name):
            self.names[receiver[0].id] = made
        return made

    def _child(self, function: ast.expr) -> nn.Module | None:
        """The registered module that `self.name` is."""
        own = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
        if own and function.value.id == self.search.method.self:  # type: ignore[attr-defined]
            return self.search.module._modules.get(function.attr)  # type: ignore[attr-defined]
        return None


def _is_of_torch(callee: Any) -> bool:
    """Whether a call is of a function of torch, or of a tensor's method; others are looked at elsewhere."""
    if isinstance(callee, str):
        return not callee.startswith("__")
    other = callee is None or isinstance(callee, (type, torch.jit.ScriptFunction))
    other = other or isinstance(getattr(callee, "__self__", None), (list, dict, set, tuple, str))
    home = getattr(callee, "__module__", None) or "torch"
    return not other and home.startswith("torch") and not home.startswith("torch.utils")


def _store(value: Any) -> None:
    """Note that a value goes where it is not followed."""
    for step in value if isinstance(value, list) else [value]:
        if isinstance(step, Step):
            step.ends.add(_STORED)


def _is_mask(value: Any) -> bool:
    return isinstance(value, Step) and value.name in MASKS


def _loaded(node: ast.expr) -> ast.expr:
    """A target of an assignment as a value that is read."""
    if isinstance(node, ast.Name):
        return ast.copy_location(ast.Name(node.id, ast.Load()), node)
    if isinstance(node, ast.Subscript):
        return ast.copy_location(ast.Subscript(node.value, node.slice, ast.Load()), node)
    return node


def operation(node: ast.expr) -> tuple[Any, list[ast.expr]]:
    """The operator of an expression and what it works on; None for other operators."""
    if isinstance(node, ast.BinOp):
        return _OPERATORS.get(type(node.op)), [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS.get(type(node.op)), [node.operand]
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _OPERATORS.get(type(node.ops[0])), [node.left, node.comparators[0]]
    return None, []
