"""Activations that are computed step by step: `e = exp(-h)`, then `h = h / (1 + e)`; `m = h > 0`, then `h = h * m`.

The idea. Every value that a forward makes is followed as a function of one other value, its base: a call that maps each
number by itself, of values with the same base and of constants, makes one `Step` more, activations included; anything
else (a matrix product, a sum of two layers) makes a new base. Where a chain of steps ends, `Formulas` says what in it
is one activation; it is run again on points, and its answers tell, as they do for modules and expressions (probe.py).
The calls come from the graph of a forward (flow.py), from its statements (statements.py) or from the operators of one
that ran (observation.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from apical.convert.operators import COPIES, LINEAR, Data, Operation, operation, quotient
from apical.convert.probe import Elementwise, elementwise, is_shifted

FORMULA = "formula"
"""The kind of what computes no activation of torch."""

Role = Literal["whole", "gate"] | None
"""Of a call: an activation by itself, a gate that may be a part of one, or neither."""

LONGEST_CHAIN = 64
MOST_CONSTANTS = 4096

_POLYNOMIAL = {*LINEAR, "pow", "square", "addcmul", "abs"}
_FILLED = ("zeros_like", "ones_like", "empty_like", "new_zeros", "new_ones", "new_empty")
_MORE = {
    *LINEAR, "masked_fill", "hardswish", "prelu", "prelu_kernel", "logsigmoid", "softsign", "tanhshrink", "expit",
    "special_expit", "absolute", "greater", "less", "greater_equal", "less_equal", "not_equal", "negative", "and", "or",
    "invert", "bool", "zeros_like", "ones_like", "empty_like",
}  # fmt: skip
MASKS = ("gt", "ge", "lt", "le", "eq", "ne", "and", "or", "invert", "logical_not", "bool")
_BOUNDS = {"clamp", "clamp_min", "clamp_max", "clip", "max", "min", "maximum", "minimum"}
_REDUCTIONS = {
    "sum", "mean", "norm", "linalg_vector_norm", "var", "std", "var_mean", "std_mean", "amax", "amin", "max", "min",
    "prod", "logsumexp", "argmax", "cumsum", "native_layer_norm", "layer_norm", "vector_norm", "size", "getattr",
}  # fmt: skip
_OUTSIDE = torch.tensor([-1.0, 1e6], dtype=torch.float64)
_OPERATORS = {"truediv": "div", "imul": "mul", "iadd": "add", "isub": "sub", "itruediv": "div", "ipow": "pow"}


def plain_name(function: Any) -> str:
    """The name of a function, method or operator, without what marks it as in place or private."""
    name = function if isinstance(function, str) else str(getattr(function, "__name__", function))
    name = name.partition(".")[0].strip("_")
    return _OPERATORS.get(name, name)


def _pointwise_names() -> frozenset[str]:
    """What maps each number by itself, as torch's operators say of themselves."""
    names = set(_MORE)
    for name in dir(torch.ops.aten) + [each for each in dir(torch) if each[:1].islower()]:
        packet: Any = getattr(torch.ops.aten, name, None)
        overloads: list[str] = packet.overloads() if hasattr(packet, "overloads") else []
        if any(torch.Tag.pointwise in getattr(packet, each).tags for each in overloads):
            names.add(plain_name(name))
    names |= {f"special_{name}" for name in dir(torch.special) if not name.startswith(("_", "log", "softmax"))}
    return frozenset(names)


_POINTWISE: list[frozenset[str]] = []


def is_pointwise(name: str) -> bool:
    """Whether a call of this name may map each number by itself; running it again tells."""
    if not _POINTWISE:
        _POINTWISE.append(_pointwise_names())
    return name in _POINTWISE[0]


def is_fresh(name: str) -> bool:
    """Whether a call of this name, not in place, maps each number by itself into memory of its own."""
    return is_pointwise(name) and (name == "clone" or name not in (*COPIES, "positive", "real", "imag"))


@dataclass(eq=False)
class Step:
    """A value as a function of others with the same base. A base has no `function`; `affine`: a layer or norm made it.

    `origin` is where the call stands. `role` says of a call that it is an activation by itself ("whole"), or a gate
    such as a sigmoid. `ends` are the calls that go on from here in another way, `users` the steps that do so step by
    step. `learned` says that a parameter is among the arguments. `seen` is for who follows the forward,
    `operation` for the last look at the call (operators.py).
    """

    name: str
    base: "Step | None" = None
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    origin: Any = None
    affine: bool = False
    role: Role = None
    ends: set[str] = field(default_factory=set)
    users: list["Step"] = field(default_factory=list)
    learned: bool = False
    size: int = 0
    seen: Any = None
    operation: Operation | None = None

    @property
    def inputs(self) -> list["Step"]:
        return [each for each in tree_leaves((self.args, self.kwargs)) if isinstance(each, Step)]

    def between(self, source: "Step") -> list["Step"]:
        """This step and all that lie between it and `source`, this one first; `source` itself is left out."""
        done: list[Step] = []
        waiting = [self]
        while waiting:
            step = waiting.pop(0)
            if step is not source and step.base is not None and not any(step is other for other in done):
                done.append(step)
                waiting += step.inputs
        return done

    def run(self, values: dict[int, Any]) -> Any:
        """The value for other ones of the steps whose values are given, by id."""
        if id(self) not in values:
            args, kwargs = tree_map_only(Step, lambda step: step.run(values), (self.args, self.kwargs))
            if args and isinstance(args[0], Tensor):
                args = (args[0].clone(), *args[1:])  # it may be overwritten
            assert self.function is not None
            values[id(self)] = self.function(*args, **kwargs)
        return values[id(self)]


def is_of_stack(name: str, args: Any) -> bool:
    """Whether a call stacks values, or takes the largest, the sum, ... of such, or a part of what such a call gave."""
    if name == "stack" or not args or not isinstance(args[0], Step):
        return name == "stack"
    return (args[0].name == "stack" and name in _REDUCTIONS) or (
        name in ("getitem", "index", "getattr") and args[0].name in ("max", "min") and args[0].inputs[0].name == "stack"
    )


@dataclass(frozen=True)
class Formula:
    """An activation of several steps, from `source` to `top`: a function of one value, which is one activation.

    `default` says that it is chosen without being asked. What is `bare` is arithmetic, listed since a layer feeds it.
    """

    kind: str
    source: Step
    top: Step
    default: bool = False
    bare: bool = False

    @property
    def parts(self) -> list[Step]:
        return self.top.between(self.source)

    def __call__(self, x: Tensor) -> Any:
        return self.top.run({id(self.source): x})

    @property
    def learned(self) -> bool:
        return any(part.learned for part in self.parts)

    @property
    def closed(self) -> bool:
        """Whether nothing else reads what it computes on the way."""
        return _closed(self.parts)

    def words(self, where: Any) -> str:
        """What it is, and where."""
        if self.bare and self.kind != FORMULA:
            return f"a bare {self.kind} of what a layer computes{where}"
        return f"a formula of several steps{where}{'' if self.closed else ' whose parts are used elsewhere too'}"

    @property
    def bounds(self) -> bool:
        """Whether it cuts values off and does nothing else."""
        return {part.name for part in self.parts} <= {*LINEAR, *_FILLED, *_BOUNDS}


class Formulas:
    """The steps of one forward, and which of them are one activation together.

    From a value back to its base there are values that every way passes: they cut the chain of steps into links, each a
    function of one value. A link is linear, an activation by itself, or a formula: bent arithmetic (`exp`), or several
    ways that meet again (`relu(h) - 0.1 * relu(-h)`). Links that compute an activation of torch together are one; of
    the others, several ways that meet again are one activation as a whole, whatever activations they consist of, and
    so is bent arithmetic behind one (`relu(h) ** 2`). The sum of a value and of an activation of it is not: a
    residual.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.operations: list[Operation] = []
        self._answers: dict[Any, Elementwise | None] = {}

    def made(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        origin: Any,
        *,
        pointwise: bool,
        role: Role = None,
    ) -> Any:
        """What a call makes of `args`: of steps one step more or a new base, of constants a constant."""
        inputs = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Step)]
        pointwise = pointwise and kwargs.get("out") is None
        if not inputs and pointwise:
            value = _constant(function, args, kwargs)
            return Step(name, origin=origin) if value is None else value
        bases = {id(each.base or each) for each in inputs}
        size = 1 + sum(each.size for each in inputs)
        if pointwise and len(bases) == 1 and size <= LONGEST_CHAIN:
            constants = _constants((args, kwargs))
            if constants is not None:
                step = Step(name, inputs[0].base or inputs[0], function, *constants, origin, role=role, size=size)
                step.learned = any(isinstance(each, nn.Parameter) for each in tree_leaves((args, kwargs)))
                for each in inputs:
                    each.users.append(step)
                self.steps.append(step)
                return step
        for each in inputs:
            each.ends.add(name)
        return Step(name, origin=origin)

    def note(
        self, step: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], origin: Any, *, known: bool = False
    ) -> None:
        """Keep a call that made `step` for the last look at what nothing explains; `known`: it is explained."""
        if isinstance(step, Step):
            given = tree_leaves((args, kwargs))
            inputs = [each for each in given if isinstance(each, Step)]
            weighted = any(isinstance(each, nn.Parameter) for each in given)
            floating = any(isinstance(each, torch.dtype) and each.is_floating_point for each in given) or None
            if name == "index" and not (isinstance(args[0], Step) and args[0].name in MASKS):
                floating = True
            of_data = [isinstance(each, Step) for each in args[:2]]
            for each in inputs:
                each.operation = each.operation or Operation("value", "value", Data.NUMBERS)
            operations = [each.operation for each in inputs if each.operation is not None]
            name = (
                "maximum" if name in ("max", "min") and all(of_data) and len(of_data) > 1 else quotient(name, of_data)
            )
            constants = not weighted and any(isinstance(each, Tensor) for each in given)
            step.operation = operation(
                name, name, operations, origin, floating=floating, weighted=weighted, constants=constants
            )
            step.operation.known, step.operation.step = known, step
            self.operations.append(step.operation)

    def formulas(self) -> Iterator[Formula]:
        """The activations of several steps."""
        told: set[int] = set()
        for step in reversed(self.steps):
            if step.ends or not step.users:
                assert step.base is not None
                for formula in self._along(step.base, step):
                    if id(formula.top) not in told:
                        told |= {id(part) for part in formula.parts}
                        yield formula

    def whole(self, source: Step, top: Any) -> Formula | None:
        """The formula that leads from `source` to `top`, if all between them is one."""
        if not isinstance(top, Step) or top.base is not source:
            return None
        formulas = (formula for formula in self._along(source, top) if not formula.bare)
        return next((each for each in formulas if each.top is top and each.source is source), None)

    def _along(self, source: Step, top: Step) -> Iterator[Formula]:
        """The formulas among the links between two values, the last one first."""
        path = _links(source, top)
        end = len(path) - 1
        while end > 0:
            formula = self._known(path, end) or self._unknown(path, end)
            if formula is not None:
                yield formula
                end = next(i for i, step in enumerate(path) if step is formula.source)
                continue
            if path[end - 1] not in path[end].inputs or len(path[end].inputs) > 1:
                for operand in path[end].inputs:
                    if operand is not path[end - 1] and operand.base is not None:
                        yield from self._along(path[end - 1], operand)
            end -= 1

    def _known(self, path: list[Step], end: int) -> Formula | None:
        """The shortest row of links that computes an activation of torch; one that is listed by itself is not meant."""
        if path[end].name in COPIES or (end == 1 and path[1].role is not None):
            return None
        for start in reversed(range(end)):
            if any(_is_bent(path[i], path[i + 1]) for i in range(start, end)):
                formula = Formula("", path[start], path[end])
                kind = self._kind(formula)
                if kind == "relu" and formula(_OUTSIDE).tolist() != [0.0, 1e6]:
                    continue  # a bound of boxes, or an epsilon
                if (
                    kind is not None
                    and not formula.closed
                    and kind == self._kind(Formula("", path[start], path[end - 1]))
                ):
                    return None  # the last link adds nothing (`relu(h).abs()`), and others read what is before it
                if kind is not None:
                    return Formula(kind, path[start], path[end])
        return None

    def _kind(self, formula: Formula) -> str | None:
        answer = self._answer(formula) if formula.top is not formula.source else None
        return None if answer is None else answer.kind

    def _unknown(self, path: list[Step], end: int) -> Formula | None:
        """A formula that computes no activation of torch; None where it is mere arithmetic."""
        top, before = path[end], path[end - 1]
        if not _is_bent(before, top) or (top.ends and top.ends <= _REDUCTIONS):
            return None
        steps = top.between(before)
        several = len(steps) > 1 or _uses(steps, before) > 1
        if several and not _is_residual(before, top):
            formula = Formula(FORMULA, before, top)
            if any(each.role or each.name not in _POLYNOMIAL for each in steps) and self._is_smooth(formula):
                return Formula(FORMULA, before, top, self._is_default(formula))
        start = next((i for i in reversed(range(end - 1)) if not _is_linear(path[i], path[i + 1])), None)
        if start is not None and path[start + 1].role is not None and not _is_residual(before, top):
            formula = Formula(FORMULA, path[start], top)
            if formula.closed and self._is_smooth(formula):
                return Formula(FORMULA, path[start], top, self._is_default(formula))
        base = path[0]
        chain = top.between(base)
        bends = {each.name for each in chain if each.name not in LINEAR}
        if not base.affine or any(each.role for each in chain):
            return None
        last = all(_is_linear(path[i], path[i + 1]) for i in range(end, len(path) - 1))
        if last and self._answer(Formula("", base, top)) is not None:
            return Formula(bends.pop() if len(bends) == 1 else FORMULA, base, top, bare=True)
        return None

    def _is_smooth(self, formula: Formula) -> bool:
        answer = self._answer(formula)
        return answer is not None and answer.continuous

    def _is_default(self, formula: Formula) -> bool:
        """Whether a formula is an activation of hidden layers, by what it computes or since it has one inside."""
        answer = self._answer(formula)
        if answer is None or answer.gate:
            return False
        smooth = answer.rectifies and not formula.bounds  # bounds are of positions and boxes as often
        return smooth or any(part.role == "whole" for part in formula.parts)

    def _answer(self, formula: Formula) -> Elementwise | None:
        parts = formula.parts
        key = _key(parts)
        if key not in self._answers:
            tensors = [(s, t) for s in parts for t in tree_leaves((s.args, s.kwargs)) if isinstance(t, Tensor)]
            widths = tuple(dict.fromkeys([*(t.numel() for _, t in tensors if t.numel() > 1), 3]))
            answer = elementwise(formula, widths)
            weights = [t for s, t in tensors if s.learned and t.is_floating_point()] if answer is not None else []
            self._answers[key] = None if is_shifted(formula, weights, widths) else answer
        return self._answers[key]


def _links(source: Step, top: Step) -> list[Step]:
    """The values that every way from `source` to `top` passes, both included, in order."""
    passed: dict[int, list[Step]] = {id(source): [source]}

    def through(step: Step) -> list[Step]:
        if id(step) not in passed:
            ways = [through(each) for each in step.inputs if each is source or each.base is not None]
            ways = ways if step.name not in _FILLED else [[source]]
            first, *others = ways
            passed[id(step)] = [each for each in first if all(any(each is o for o in way) for way in others)] + [step]
        return passed[id(step)]

    return through(top)


def _is_linear(source: Step, top: Step) -> bool:
    """Whether a link is a straight line by the names of its calls."""
    steps = top.between(source)
    return all(each.name in LINEAR for each in steps) and _uses(steps, source) < 2


def _is_bent(source: Step, top: Step) -> bool:
    """Whether a link is neither a straight line nor an activation by itself."""
    return not _is_linear(source, top) and not (top.role is not None and source in top.inputs)


def _is_residual(source: Step, top: Step) -> bool:
    """Whether `top` is the sum of a straight line through `source` and of something else."""
    if top.name not in ("add", "sub", "subtract", "rsub") or len(top.inputs) != 2:
        return False
    lines = [each is source or _is_linear(source, each) for each in top.inputs]
    other = [each for each, line in zip(top.inputs, lines, strict=True) if not line]
    return any(lines) and all(any(part.role for part in each.between(source)) for each in other)


def _closed(parts: list[Step]) -> bool:
    own = {id(part) for part in parts}
    overwritten = [part.ends <= {part.name} for part in parts[1:]]  # by itself, which is not another use
    return all(overwritten) and all(id(user) in own for part in parts[1:] for user in part.users)


def _key(parts: list[Step]) -> Any:
    """What is equal for steps that compute the same."""
    numbers = {id(step): number for number, step in enumerate(parts)}

    def of(value: Any) -> Any:
        if isinstance(value, Step):
            return ("step", numbers.get(id(value), -1))
        return tuple(value.flatten().tolist()) if isinstance(value, Tensor) else repr(value)

    return tuple((s.name, *(of(each) for each in tree_leaves((s.args, s.kwargs)))) for s in parts)


def _constant(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value of a call on constants; None where there is none."""
    args, kwargs = tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), (args, kwargs))
    try:
        with torch.no_grad():
            value = function(*args, **kwargs)
    except Exception:  # any call may be asked; one that fails makes a value that is not known
        return None
    return value if isinstance(value, (Tensor, bool, int, float)) else None


def _uses(chain: list[Step], base: Step | None) -> int:
    """How often the base is read; a constant of its shape does not count."""
    return sum(each is base for step in chain if step.name not in _FILLED for each in step.inputs)


def _constants(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments with each constant tensor small, on the CPU, in float64; None where one varies too much."""
    usable = True

    def small(tensor: Tensor) -> Tensor:
        nonlocal usable
        tensor = tensor.detach()
        first = tensor.flatten()[:1]
        if tensor.numel() and bool((tensor == first).all()):
            tensor = first[0]
        usable = usable and tensor.numel() == max(tensor.shape, default=1) <= MOST_CONSTANTS
        return tensor.cpu().double() if tensor.is_floating_point() else tensor.cpu()

    with torch.no_grad():
        arguments = tree_map_only(Tensor, small, arguments)
    arguments = tree_map_only(torch.dtype, lambda d: torch.float64 if d.is_floating_point else d, arguments)
    arguments = tree_map_only(torch.device, lambda d: torch.device("cpu"), arguments)
    return arguments if usable else None


def filled(name: str) -> Callable[[Tensor], Tensor] | None:
    """What a call that makes a constant of the shape of its input does; None for all others."""
    plain = name.removesuffix("_like").removeprefix("new_") if name in _FILLED else ""
    return {"zeros": torch.zeros_like, "empty": torch.zeros_like, "ones": torch.ones_like}.get(plain)


def put(x: Tensor, mask: Any, value: Any, accumulate: bool = False) -> Tensor:
    """`x[mask] = value`, as a function; `x` may be one number for all."""
    mask = mask[0] if isinstance(mask, (list, tuple)) else mask
    x = x.expand(mask.shape).clone()
    x[mask] = value
    return x


def setting(name: str) -> Any:
    """What `x.dtype` and `x.device` are where a formula runs again; None for all other attributes."""
    return {"dtype": torch.float64, "device": torch.device("cpu")}.get(name)


def as_function(target: Any) -> Callable[..., Any]:
    """The target of a node of a graph as a function; a formula runs again in float64."""
    target = "double" if target in ("float", "half", "bfloat16") else target
    return _method(target) if isinstance(target, str) else target


def _method(name: str) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)
