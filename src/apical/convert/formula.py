"""Activations that are computed step by step: `e = exp(-h)`, then `h = h / (1 + e)`; `m = h > 0`, then `h = h * m`.

The idea. Every value that a forward makes is followed as a function of one other value, its base: a call that maps each
number by itself, of values with the same base and of constants, makes one `Step` more; anything else (a matrix product,
a sum of two layers) makes a new base. Where a chain of steps ends, it is run again on points, and its answers say
whether it is an activation, as they do for modules and expressions (probe.py). The calls come from the graph of a
forward (flow.py) or from the operators of one that ran (observation.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from apical.convert.kinds import ALL_KINDS, DEFAULT_KINDS
from apical.convert.probe import Elementwise, elementwise

FORMULA = "formula"
"""The kind of what computes no activation of torch."""

LONGEST_CHAIN = 64
MOST_CONSTANTS = 4096

_COPIES = (
    "clone", "to_copy", "detach", "alias", "contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16",
    "lift_fresh", "copy",
)  # fmt: skip
_LINEAR = {
    *_COPIES,
    "add",
    "sub",
    "rsub",
    "subtract",
    "neg",
    "mul",
    "multiply",
    "div",
    "divide",
    "positive",
    "true_divide",
}
_POLYNOMIAL = {*_LINEAR, "pow", "square", "addcmul", "abs"}
_FILLED = ("zeros_like", "ones_like", "empty_like", "new_zeros", "new_ones", "new_empty")
_MORE = {
    *_LINEAR, "masked_fill", "hardswish", "prelu", "prelu_kernel", "logsigmoid", "softsign", "tanhshrink", "expit",
    "special_expit", "absolute", "greater", "less", "greater_equal", "less_equal", "not_equal", "negative", "and", "or",
    "invert", "bool", "zeros_like", "ones_like", "empty_like",
}  # fmt: skip
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
    return frozenset(names)


_POINTWISE: list[frozenset[str]] = []


def is_pointwise(name: str) -> bool:
    """Whether a call of this name may map each number by itself; running it again tells."""
    if not _POINTWISE:
        _POINTWISE.append(_pointwise_names())
    return name in _POINTWISE[0]


@dataclass(eq=False)
class Step:
    """A value as a function of one other. A base has no `function`; `affine` says that a layer or its norm made it.

    `origin` is where the call stands. `listed` is a call that is an activation by itself, such as a sigmoid. `ends` are
    the calls that go on from here in another way.
    """

    name: str
    base: "Step | None" = None
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    origin: Any = None
    affine: bool = False
    listed: bool = False
    ends: set[str] = field(default_factory=set)
    used: bool = False
    size: int = 0

    @property
    def inputs(self) -> list["Step"]:
        return [each for each in tree_leaves((self.args, self.kwargs)) if isinstance(each, Step)]

    def chain(self) -> list["Step"]:
        """This step and all before it, the base left out, the last one first."""
        done: list[Step] = []
        waiting = [self]
        while waiting:
            step = waiting.pop(0)
            if step.base is not None and not any(step is other for other in done):
                done.append(step)
                waiting += step.inputs
        return done

    def __call__(self, x: Tensor) -> Any:
        """The value for another one of its base."""
        assert self.base is not None
        return self._run({id(self.base): x})

    def _run(self, values: dict[int, Any]) -> Any:
        if id(self) not in values:
            args, kwargs = tree_map_only(Step, lambda step: step._run(values), (self.args, self.kwargs))
            if args and isinstance(args[0], Tensor):
                args = (args[0].clone(), *args[1:])  # it may be overwritten
            assert self.function is not None
            values[id(self)] = self.function(*args, **kwargs)
        return values[id(self)]

    @property
    def key(self) -> Any:
        """What is equal for steps that compute the same."""
        numbers = {id(step): number for number, step in enumerate(self.chain())}

        def of(value: Any) -> Any:
            if isinstance(value, Step):
                return ("step", numbers.get(id(value), -1))
            return tuple(value.flatten().tolist()) if isinstance(value, Tensor) else repr(value)

        return tuple((s.name, *(of(each) for each in tree_leaves((s.args, s.kwargs)))) for s in self.chain())


@dataclass(frozen=True)
class Formula:
    """An activation of several steps: its kind, whether it is chosen without being asked, and the steps."""

    kind: str
    default: bool
    step: Step

    @property
    def parts(self) -> list[Step]:
        return self.step.chain()

    def words(self, where: Any) -> str:
        """What it is, and where."""
        single = self.kind not in (*ALL_KINDS, FORMULA)
        return f"a bare {self.kind} of what a layer computes{where}" if single else f"a formula of several steps{where}"

    @property
    def bounds(self) -> bool:
        """Whether it cuts values off and does nothing else."""
        return {part.name for part in self.parts} <= {*_LINEAR, *_FILLED, *_BOUNDS}


class Formulas:
    """The steps of one forward."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
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
        listed: bool = False,
    ) -> Any:
        """What a call makes of `args`: of steps one step more or a new base, of constants a constant."""
        inputs = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Step)]
        if not inputs and pointwise:
            value = _constant(function, args, kwargs)
            return Step(name, origin=origin) if value is None else value
        bases = {id(each.base or each) for each in inputs}
        size = 1 + sum(each.size for each in inputs)
        if pointwise and len(bases) == 1 and size <= LONGEST_CHAIN:
            constants = _constants((args, kwargs))
            if constants is not None:
                for each in inputs:
                    each.used = True
                step = Step(name, inputs[0].base or inputs[0], function, *constants, origin, listed=listed, size=size)
                self.steps.append(step)
                return step
        for each in inputs:
            each.ends.add(name)
        return Step(name, origin=origin)

    def formulas(self) -> Iterator[Formula]:
        """The activations among the chains."""
        told: set[int] = set()
        for step in reversed(self.steps):
            if id(step) not in told and (step.ends or not step.used):
                for formula in self._within(step):
                    if id(formula.step) not in told:
                        told |= {id(part) for part in formula.parts}
                        yield formula

    def _within(self, top: Step) -> Iterator[Formula]:
        """The whole chain if that is an activation, or else what is one in it."""
        chain = top.chain()
        if all(step.name in _LINEAR for step in chain) and _uses(chain, top.base) < 2:
            return
        kind = self._known(top)
        if kind is not None:
            yield Formula(kind, default=False, step=top)
            return
        inside: set[int] = set()
        for step in chain[1:]:
            if id(step) not in inside and (kind := self._known(step)) is not None:
                inside |= {id(each) for each in step.chain()}
                yield Formula(kind, default=False, step=step)
        if not inside and (kind := self._unknown(top, chain)) is not None:
            yield Formula(kind, default=False, step=top)

    def _answer(self, step: Step) -> Elementwise | None:
        key = step.key
        if key not in self._answers:
            sizes = [t.numel() for s in step.chain() for t in tree_leaves((s.args, s.kwargs)) if isinstance(t, Tensor)]
            self._answers[key] = elementwise(step, tuple(dict.fromkeys([*(n for n in sizes if n > 1), 3])))
        return self._answers[key]

    def _known(self, step: Step) -> str | None:
        """The kind of torch that a step computes; None where a listed call alone, or none, does."""
        chain = step.chain()
        bends = [each for each in chain if each.name not in _LINEAR]
        if not bends and _uses(chain, step.base) < 2:
            return None
        answer = self._answer(step)
        kind = None if answer is None else answer.kind
        if kind == "relu" and step(_OUTSIDE).tolist() != [0.0, 1e6]:
            return None  # a bound of boxes, or an epsilon
        alone = len(bends) == 1 and bends[0].listed and _uses(chain, step.base) < 2
        return None if kind is None or (alone and kind not in DEFAULT_KINDS) else kind

    def _unknown(self, step: Step, chain: list[Step]) -> str | None:
        """The name of a formula that computes no activation of torch; None where it is mere arithmetic."""
        assert step.base is not None
        answer = self._answer(step)
        if answer is None:
            return None
        several = _uses(chain, step.base) > 1 and any(each.name not in _POLYNOMIAL for each in chain)
        if several and answer.continuous:
            return FORMULA
        bends = {each.name for each in chain if each.name not in _LINEAR}
        counted = bool(step.ends) and step.ends <= _REDUCTIONS
        if step.base.affine and not counted and not any(each.listed for each in chain):
            return bends.pop() if len(bends) == 1 else FORMULA
        return None


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
    """The target of a node of a graph as a function."""
    return _method(target) if isinstance(target, str) else target


def _method(name: str) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)
