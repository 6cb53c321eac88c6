"""What a module or function computes, asked of the thing itself: it is called on points and its answers are compared.

An activation is what maps every number by itself and not along a straight line. `elementwise` finds that out without
reading a line of its code: the output has the shape of the input, a changed number changes its own output alone, and
the middle of two inputs does not always give the middle of their outputs. Dropout fails (its training mode is random),
norms fail (they look at other numbers), scales and biases fail (straight lines).
"""

import copy
import random
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isnan, nan, prod, sqrt
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from apical.convert.kinds import NORMS, is_affine, is_ours
from apical.nn.unit import Unit

POINTS = torch.linspace(-8.0, 8.0, 161, dtype=torch.float64)
FAR = torch.tensor([-60.0, -30.0, 30.0, 60.0], dtype=torch.float64)
LIMITS = torch.tensor([-1e6, -1e5, 1e5, 1e6], dtype=torch.float64)
SLOPES = torch.tensor([-120.0, -60.0, -30.0, 30.0, 60.0, 120.0], dtype=torch.float64)
COARSE, FINE = (torch.linspace(-8.0, 8.0, number, dtype=torch.float64) for number in (320, 640))
ZERO = torch.zeros(1, dtype=torch.float64)
GRIDS = (POINTS, FAR, LIMITS, SLOPES, ZERO, POINTS + 0.0123, POINTS + 0.0124, COARSE, FINE)
Function = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Elementwise:
    """An elementwise function: the kind that computes the same, if there is one, and whether it is a gate.

    A gate goes from one level to another, as the sigmoid does, or only jumps, as what rounds: an activation of hidden
    layers seldom. What jumps is not `continuous`: a rounding, a bucket, or a neuron that spikes. What `rectifies` is 0
    at 0 and has another slope far to the right than far to the left, as the ReLU and x * sigmoid(2x) have.
    """

    kind: str | None
    gate: bool
    continuous: bool = True
    rectifies: bool = False


def elementwise(function: Function, widths: tuple[int, ...] = (3,)) -> Elementwise | None:
    """What is known of `function` where it maps each number by itself and nonlinearly; else None.

    `widths` are the numbers of channels to try it with, in tensors of 2 to 4 dimensions.
    """
    answer = _asked(_ask, function, widths)
    return answer if isinstance(answer, Elementwise) else None


def _asked(question: Callable[[Function, tuple[int, ...]], Any], function: Function, widths: tuple[int, ...]) -> Any:
    """The answer for the first shape that the function takes; None where it takes none."""
    with _undisturbed(function):
        for width in widths:
            for shape in ((4, width), (2, width, 5), (2, 5, width), (2, width, 4, 4)):
                answer = question(function, shape)
                if answer is not None:
                    return answer
    return None


def is_shifted(function: Function, weights: Iterable[Tensor], widths: tuple[int, ...] = (3,)) -> bool:
    """Whether adding to one of these weights is adding to the input: a bias, which would be lost with the function."""
    return any(_asked(partial(_is_shift, weight.data), function, widths) is True for weight in weights)


def _is_shift(weight: Tensor, function: Function, shape: tuple[int, ...]) -> bool | None:
    """None too for a weight that cannot be changed: whole numbers, memory that several share, one of inference mode."""
    x = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before, further, kept = _values(function, x), _values(function, x + 0.5), weight.clone()
    try:
        weight.add_(0.5)
    except RuntimeError:
        return None
    try:
        moved = _values(function, x)
    finally:
        weight.copy_(kept)
    return None if before is None else _same(moved, further) and not _same(moved, before)


def changes_shape(module: nn.Module) -> bool:
    """Whether the output of a module has another shape than its input."""
    function = module_function(module)
    question = lambda f, shape: _values(f, torch.zeros(shape, dtype=torch.float64))  # noqa: E731
    return function is not None and _asked(question, function, (4,)) is False


def counts(function: Function) -> bool:
    """Whether a function makes whole numbers of whole numbers, as buckets and bounds do and activations seldom."""
    with _undisturbed(function):
        try:
            y = function(torch.arange(-8, 8).view(4, 4))
        except Exception:  # any code may be asked; many functions take no whole numbers
            return False
    return isinstance(y, Tensor) and not y.is_floating_point()


def maps_alone(function: Function) -> bool:
    """Whether each output depends on its own input alone, on a straight line or not."""
    return _asked(lambda f, shape: None if (pair := _pair(f, shape)) is None else bool(pair), function, (4,)) is True


def _ask(function: Function, shape: tuple[int, ...]) -> Elementwise | bool | None:
    """None where the function does not take this shape, False where it is no activation."""
    pair = _pair(function, shape)
    if not pair:
        return pair if pair is None else False
    x, other, y, z = pair
    if _same(_values(function, (x + other) / 2), (y + z) / 2):
        return False
    table, far, limits, slopes, at_zero, near, nearer, coarse, fine = _curves(function, shape)
    gate = _is_gate(far) or _is_gate(limits) or _is_piecewise_constant(near, nearer)
    rectifies = _is_rectified(slopes) and at_zero is not None and abs(at_zero.item()) < 1e-6
    return Elementwise(_known(table), gate, _is_continuous(coarse, fine), rectifies)


def _pair(function: Function, shape: tuple[int, ...]) -> tuple[Tensor, ...] | None:
    """Two inputs and their outputs; none where those depend on other numbers; None where it does not take the shape."""
    points = torch.Generator().manual_seed(0)
    x, other = (6 * torch.randn(shape, generator=points, dtype=torch.float64) for _ in range(2))
    y = _values(function, x)
    if y is None:
        return None
    changed = torch.rand(shape, generator=points) < 0.5
    mixed, again = _values(function, torch.where(changed, other, x)), _values(function, x)
    z = _values(function, other)
    if not all(isinstance(each, Tensor) for each in (y, z, mixed, again)):
        return ()
    alone = _same(again, y) and _same(mixed, torch.where(changed, z, y))
    return (x, other, y, z) if alone else ()


def _values(function: Function, x: Tensor) -> Any:
    """The outputs; None where the function fails, False where they are no numbers of the same shape."""
    try:
        y = function(x.clone())
    except Exception:  # any code may be asked; what it raises says that it does not take this
        return None
    good = isinstance(y, Tensor) and y.shape == x.shape and y.is_floating_point()
    return y.detach().double() if good else False


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, Tensor) and bool(torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True))


def overwrites(function: Function, widths: tuple[int, ...] = (3,)) -> bool:
    """Whether a function changes its input in place."""

    def question(function: Function, shape: tuple[int, ...]) -> bool | None:
        x = torch.linspace(-8.0, 8.0, prod(shape), dtype=torch.float64).view(shape)
        before = x.clone()
        try:
            function(x)
        except Exception:  # any code may be asked; what it raises says that it does not take this
            return None
        return not torch.equal(x, before)

    return _asked(question, function, widths) is True


def _curve(function: Function, shape: tuple[int, ...], points: Tensor) -> Tensor | None:
    """The values at `points`, where all channels have the same."""
    x = points.view(-1, *[1] * (len(shape) - 1)).expand(-1, *shape[1:])
    y = _values(function, x)
    if not isinstance(y, Tensor):
        return None
    first = y.flatten(1)[:, :1]
    return first[:, 0] if _same(y.flatten(1), first.expand(-1, y[0].numel())) else None


def _curves(function: Function, shape: tuple[int, ...]) -> list[Tensor | None]:
    """The values at each of GRIDS, asked at once; one by one where a function takes some of them alone."""
    whole = _curve(function, shape, torch.cat(GRIDS))
    if whole is None:
        return [_curve(function, shape, points) for points in GRIDS]
    return list(torch.split(whole, [len(points) for points in GRIDS]))


def _known(curve: Tensor | None) -> str | None:
    """The kind of torch with these values."""
    if curve is None:
        return None
    equal = torch.isclose(curve, _tables(), rtol=1e-4, atol=1e-5).all(1)
    if equal.any():
        return _FUNCTIONS[int(equal.int().argmax())][0]
    slope = float(curve[0] / POINTS[0])
    if 0 < abs(slope) < 1 and torch.allclose(curve, functional.leaky_relu(POINTS, slope), rtol=1e-4, atol=1e-5):
        return "leaky_relu"
    return None


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


_FUNCTIONS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("relu", functional.relu),
    ("gelu", functional.gelu),
    ("gelu", lambda x: functional.gelu(x, approximate="tanh")),
    ("gelu", _quick_gelu),
    *(
        (kind, getattr(functional, kind))
        for kind in (
            "silu", "mish", "relu6", "elu", "selu", "hardswish", "softplus", "softsign", "softshrink", "hardshrink",
            "tanhshrink", "hardtanh", "hardsigmoid", "logsigmoid",
        )
    ),
    ("tanh", torch.tanh),
    ("sigmoid", torch.sigmoid),
)  # fmt: skip


@lru_cache(maxsize=1)
def _tables() -> Tensor:
    """The values of _FUNCTIONS at POINTS, one row each."""
    return torch.stack([function(POINTS) for _, function in _FUNCTIONS])


def _is_continuous(coarse: Tensor | None, fine: Tensor | None) -> bool:
    """Whether the largest step between neighbours shrinks with the distance of the points."""
    if coarse is None or fine is None or not bool(coarse.isfinite().all() and fine.isfinite().all()):
        return True
    return bool(fine.diff().abs().max() <= 0.75 * coarse.diff().abs().max())


def _is_piecewise_constant(near: Tensor | None, nearer: Tensor | None) -> bool:
    """Whether values at points close to one another are equal, as those of what rounds are: a quantiser."""
    return near is not None and nearer is not None and torch.equal(near, nearer)


def _is_gate(far: Tensor | None) -> bool:
    if far is None or not bool(far.isfinite().all()):
        return False
    low, below, above, high = far.tolist()
    return bool(abs(low - below) < 1e-3 and abs(high - above) < 1e-3 and abs(high - low) > 1e-3)


def _is_rectified(curve: Tensor | None) -> bool:
    """Whether values at SLOPES lie on one straight line far to the left, and on another one far to the right."""
    if curve is None or not bool(curve.isfinite().all()):
        return False
    further_left, left, _, right, further_right = (curve.diff() / SLOPES.diff()).tolist()
    return bool(abs(further_left - left) < 1e-3 and abs(further_right - right) < 1e-3 and abs(right - left) > 1e-3)


def module_function(module: nn.Module, *, training: bool = False) -> Function | None:
    """A copy of `module` by itself, in float64, on the CPU, without hooks; None where there can be none."""
    try:
        own = copy.deepcopy(module).to(device="cpu", dtype=torch.float64).train(training)
    except Exception:  # whatever cannot be copied or moved cannot be asked
        return None
    for part in own.modules():
        for hooks in (part._forward_hooks, part._forward_pre_hooks):
            hooks.clear()
    return own


def is_bent(affine: nn.Module) -> bool:
    """Whether a layer that is a subclass of torch's own computes more than an affine map; False if it cannot be asked.

    An affine map of the middle of two inputs is the middle of its outputs.
    """
    function, given, shape = module_function(affine), torch.Generator().manual_seed(0), _input_shape(affine)
    if function is None or None in shape:
        return False
    x, y = (torch.randn(shape, generator=given, dtype=torch.float64) for _ in range(2))
    with _undisturbed(function):
        try:
            middle, ends = function((x + y) / 2), (function(x) + function(y)) / 2
        except Exception:  # a layer may want more than its input
            return False
    return isinstance(middle, Tensor) and not _same(middle, ends)


def _input_shape(affine: nn.Module) -> tuple[Any, ...]:
    """A shape that a layer takes; with None in it where its attributes do not tell."""
    channels, kernel = getattr(affine, "in_channels", None), getattr(affine, "kernel_size", ())
    if channels is None:
        return 4, getattr(affine, "in_features", getattr(affine, "nx", None))
    dilation = getattr(affine, "dilation", (1,) * len(kernel))
    return 4, channels, *(2 * k * d for k, d in zip(kernel, dilation, strict=True))


def vanishes(part: nn.Module, affine: nn.Module) -> bool:
    """Whether a layer, or the norm behind it, gives zeros with a weight and bias of 0, in both modes.

    torch's own do. Another class may add to its weight, or have parameters beside it, and is asked.
    """
    if type(part).__module__.startswith("torch.nn.") and type(part).forward.__module__.startswith("torch.nn."):
        return True
    shape = _input_shape(affine)
    layer = module_function(affine)
    if layer is None or None in shape:
        return False
    given = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=given, dtype=torch.float64)
    with _undisturbed(layer):
        try:
            return all(_gives_zeros(part, x if part is affine else layer(x), mode) for mode in (False, True))
        except Exception:  # a layer may want more than its input
            return False


def _gives_zeros(part: nn.Module, x: Tensor, training: bool) -> bool:
    own = module_function(part, training=training)
    assert own is not None
    for name in ("weight", "bias"):
        if isinstance(value := getattr(own, name, None), Tensor):
            value.detach().zero_()
    for given in (x, x.movedim(1, -1)):  # a norm of the last dimension, behind a convolution
        with suppress(RuntimeError, ValueError):
            y = own(given)
            return isinstance(y, Tensor) and not y.any()
    return False


def called_alone(module: nn.Module, x: Tensor) -> Any:
    """What a module makes of other numbers."""
    alone = module_function(module)
    return None if alone is None else alone(x)


def may_be_activation(module: nn.Module) -> bool:
    """Whether its parameters could be an activation's: none, or one value for each channel, and no layers inside."""
    parts = list(module.modules())
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)) or len(parts) > MAX_PARTS:
        return False
    if any(isinstance(part, NORMS) or is_affine(part) or is_ours(part) for part in parts):
        return False
    parameters, buffers = list(module.parameters()), list(module.buffers())
    return all(p.numel() == max(p.shape, default=1) for p in parameters) and all(b.numel() <= 1 for b in buffers)


MAX_PARTS = 12
"""An activation is written in a few modules at most."""


def whole_activation(module: nn.Module) -> Elementwise | None:
    """What is known of `module` if all of it is one activation, in both modes; else None."""
    if not may_be_activation(module):
        return None
    widths = tuple(dict.fromkeys([*(p.numel() for p in module.parameters() if p.numel() > 1), 3]))
    in_evaluation, in_training = module_function(module), module_function(module, training=True)
    if in_evaluation is None or in_training is None:
        return None
    answer = elementwise(in_evaluation, widths)
    if answer is None or answer != elementwise(in_training, widths):
        return None
    if is_shifted(in_evaluation, in_evaluation.parameters(), widths):  # type: ignore[attr-defined]
        return None
    return None if _has_effects(in_evaluation, widths) or _has_effects(in_training, widths) else answer


def _has_effects(own: Any, widths: tuple[int, ...]) -> bool:
    """Whether a call stores something in a module, which would go with it: a counter, a penalty for the loss."""

    def state() -> list[Any]:
        values = [value for part in own.modules() for value in vars(part).values()]
        return [*values, *own.buffers()]

    before = [(value, _count(value)) for value in state()]
    with _undisturbed(own):
        for width in widths:
            _values(own, POINTS[: len(POINTS) // width * width].view(-1, width))
        after = state()
        return len(after) != len(before) or any(
            value is not now or count != _count(now) for (value, count), now in zip(before, after, strict=True)
        )


def _count(value: Any) -> int:
    """What changes where something is put into a value."""
    return value._version if isinstance(value, Tensor) else len(value) if type(value) in _CONTAINERS else 0


@contextmanager
def _undisturbed(function: Function) -> Iterator[None]:
    """No gradients, no warnings; random numbers and what the function fills as they were."""
    elsewhere = torch.get_default_device().type != "cpu"
    device = torch.device("cpu") if elsewhere else nullcontext()  # a device as a context costs every call
    with device, torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contents_kept(containers_read(function)):
            yield


_CONTAINERS = (dict, list, set, OrderedDict, deque)


@contextmanager
def contents_kept(values: Iterable[Any]) -> Iterator[None]:
    """Put back what lists, tables and objects among `values` hold, and where sources of random numbers stand."""
    values = list(values)
    before = [(value, copy.copy(value)) for value in values if type(value) in _CONTAINERS]
    objects = [(vars(value), dict(vars(value))) for value in values if _is_object(value)]
    drawn = [(value, state) for value in values if (state := _random_state(value)) is not None]
    try:
        yield
    finally:
        for value, contents in before:
            value.clear()
            value.extend(contents) if isinstance(value, (list, deque)) else value.update(contents)
        for own, was in objects:
            if own.keys() != was.keys() or any(own[name] is not value for name, value in was.items()):
                own.clear()
                own.update(was)
        for value, state in drawn:
            if hasattr(value, "bit_generator"):
                value.bit_generator.state = state
            else:
                getattr(value, "setstate" if isinstance(value, random.Random) else "set_state")(state)


def held(values: Iterable[Any]) -> list[Any]:
    """These values, and what lists, tables and objects among them hold."""
    waiting, reached = deque(values), dict[int, Any]()
    while waiting and len(reached) < MANY_HELD:
        value = waiting.popleft()
        if id(value) not in reached:
            reached[id(value)] = value
            inner = vars(value) if _is_object(value) else value if type(value) in _CONTAINERS else ()
            if len(inner) < MANY_HELD:
                waiting += inner.values() if isinstance(inner, dict) else inner
    return list(reached.values())


Place = Callable[[Any], None]


def places_beside(model: nn.Module) -> dict[int, list[Place]]:
    """Where a model holds its modules beside registering them: plain attributes, lists, tables, tuples and objects.

    By the id of a module; each place puts another value where that module is.
    """
    registered, reached = {id(module) for module in model.modules()}, set[int]()
    places: dict[int, list[Place]] = {}

    def look(value: Any, put: Place, again: Callable[[], Any]) -> None:
        """`again` reads the value anew: of a tuple, each change makes another one."""
        if id(value) in registered:
            places.setdefault(id(value), []).append(put)
            return
        tuple_ = isinstance(value, tuple)
        inner: Any = vars(value) if _is_object(value) else value if type(value) in (list, dict) or tuple_ else ()
        if len(inner) >= MANY_HELD or len(reached) >= MANY_HELD or (id(value) in reached and not tuple_):
            return
        reached.add(id(value))
        for key, part in list(inner.items() if isinstance(inner, dict) else enumerate(inner)):
            place = partial(_put_in_tuple, again, put, key) if tuple_ else partial(inner.__setitem__, key)
            look(part, place, lambda key=key: again()[key] if tuple_ else inner[key])  # type: ignore[misc]

    for module in model.modules():
        own = vars(module)
        for name, value in list(own.items()):
            if name not in OF_TORCH:
                look(value, partial(own.__setitem__, name), partial(own.__getitem__, name))
    return places


def _put_in_tuple(again: Callable[[], Any], put: Place, position: int, value: Any) -> None:
    before = again()
    parts = [*before[:position], value, *before[position + 1 :]]
    put(before._make(parts) if hasattr(before, "_make") else type(before)(parts))


OF_TORCH = frozenset(vars(nn.Module()))
"""Where a module keeps its parts and hooks."""

MANY_HELD = 2000
"""Values: what a network keeps for itself is fewer, what it keeps of a data set may be more."""


def _is_object(value: Any) -> bool:
    """Whether a value is an object of a class of its own: a counter, a schedule, a list of callbacks."""
    own = isinstance(getattr(value, "__dict__", None), dict)
    return own and not (isinstance(value, (nn.Module, Tensor, ModuleType)) or callable(getattr(value, "__get__", None)))


def _random_state(value: Any) -> Any:
    if isinstance(value, random.Random):
        return value.getstate()
    if hasattr(value, "bit_generator"):  # of numpy
        return copy.deepcopy(value.bit_generator.state)
    known = isinstance(value, torch.Generator) or type(value).__name__ == "RandomState"
    return value.get_state() if known else None


def containers_read(function: Any) -> list[Any]:
    """The lists and tables outside of a function or module that its code names, or that functions it calls do."""
    parts = [function.func, *function.args] if isinstance(function, partial) else [function]
    codes = [part for part in parts if isinstance(part, CodeType)]  # of an expression, with its globals
    names = [part for part in parts if isinstance(part, dict)]
    named = [own.get(name) for code in codes for own in names for name in code.co_names]
    kinds = [kind for part in parts if isinstance(part, nn.Module) for kind in type(part).__mro__]
    members = [each for kind in kinds if not kind.__module__.startswith("torch.") for each in vars(kind).values()]
    values = [value for each in (*parts, *named, *members) for value in (each, *_read_by(each))]
    globals_ = {id(each) for each in names}
    kept = {id(value): value for value in values if type(value) in _CONTAINERS and id(value) not in globals_}
    return list(kept.values())


@lru_cache(maxsize=4096)
def _reads(function: FunctionType, depth: int = 2) -> tuple[Any, ...]:
    """The lists and tables that a function names outside of itself, or functions of the same library that it names."""
    codes = [function.__code__, *(part for part in function.__code__.co_consts if isinstance(part, CodeType))]
    named = [function.__globals__.get(name) for code in codes for name in code.co_names]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it is empty
            named.append(cell.cell_contents)
    helpers = [each for each in named if isinstance(each, FunctionType) and _library(each) == _library(function)]
    inner = [value for each in helpers if depth and _library(each) != "torch" for value in _reads(each, depth - 1)]
    return (*(value for value in named if type(value) in _CONTAINERS), *inner)


def _library(function: FunctionType) -> str:
    return (function.__module__ or "").partition(".")[0]


def _read_by(value: Any) -> tuple[Any, ...]:
    function = getattr(value, "__func__", getattr(value, "fget", value))  # of a method or a property
    return _reads(function) if isinstance(function, FunctionType) else ()


def probe(unit: Unit) -> nn.Module:
    """The activation of a standard unit by itself, in float64, to ask it what it computes."""
    return unit.with_(scope="network").layers().activation().double()


WIDE = torch.cat([POINTS, *(sign * torch.logspace(0.95, 6, 40, dtype=torch.float64) for sign in (-1, 1))])
"""Far out too: a ReLU that is cut off at 20 or at 10,000 is a ReLU until there."""


def same_function(function: Function | None, activation: nn.Module) -> bool:
    """Whether an activation and the probe of a unit agree, to 1e-6, on a grid of points."""
    return function is not None and not _differing(function, activation)


def values_at(function: Function, points: tuple[float, ...]) -> list[float]:
    """The values at some points; none where the function does not take them."""
    with _undisturbed(function):
        y = _values(function, torch.tensor(points, dtype=torch.float64))
    return y.tolist() if isinstance(y, Tensor) else []


def where_different(function: Function | None, activation: nn.Module) -> str:
    """The first point where they differ, in words; "" where there is none, or nothing can be asked."""
    for x, theirs, ours in _differing(function, activation)[:1] if function is not None else ():
        return "" if isnan(x) else f"{theirs:.4g} at {x:.4g}, where the unit's is {ours:.4g}"
    return ""


def _differing(function: Function, activation: nn.Module) -> list[tuple[float, float, float]]:
    """The points where they differ, those near 0 first, with both values; NaN where the function takes no points.

    Where a function overflows far out, it is not asked.
    """
    with _undisturbed(function):
        y = _values(function, WIDE)
        if not isinstance(y, Tensor):
            return [(nan, nan, nan)]
        ours = activation(WIDE)
        same = torch.isclose(y, ours, rtol=1e-6, atol=1e-9) | (~y.isfinite() & (WIDE.abs() > POINTS.max()))
    points = zip(*(each[~same].tolist() for each in (WIDE, y, ours)), strict=True)
    return sorted(points, key=lambda point: abs(point[0]))


def starts_at_zero(unit: Unit) -> bool:
    """Whether an activation is 0 at 0 and has a derivative there, so that a branch that starts at 0 can learn."""
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        y = probe(unit)(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return y.item() == 0.0 and slope.item() != 0.0


MANY = 20
"""Batches: nobody shows a network so many without training it."""


def looks_trained(model: nn.Module) -> bool:
    """Whether norms have moved from where they start, or weights are no longer independent draws."""
    if any(parameter.is_meta for parameter in model.parameters()):
        return False
    norms = [module for module in model.modules() if isinstance(module, NORMS)]
    weights = [module.weight for module in model.modules() if is_affine(module)]
    large = [weight for weight in weights if isinstance(weight, Tensor) and weight.numel() >= 512]
    return any(_has_moved(norm) for norm in norms) or any(_rows_differ(weight) for weight in large)


def _has_moved(norm: nn.Module) -> bool:
    """Whether scale or shift differ between channels; a norm that has neither tells by the batches it has seen.

    Batches alone tell nothing where there is a scale: a look at the shapes counts as one.
    """
    own = [value for name in ("weight", "bias") if isinstance(value := getattr(norm, name, None), Tensor)]
    seen = getattr(norm, "num_batches_tracked", None)
    if not own:
        return isinstance(seen, Tensor) and seen.item() >= MANY
    return any(bool((value != value.flatten()[0]).any()) for value in own)


def _rows_differ(weight: Tensor) -> bool:
    """Whether the mean squares of rows or of columns differ more than those of independent draws would.

    For n draws a mean square has the variance of one square over n. The ratio of what is seen to that is near 1 at
    the start, whatever the distribution; 10 of its standard deviations above 1 are taken for training.
    """
    squares = weight.detach().double().flatten(1).square()
    variance = squares.var()
    if min(squares.shape) < 2 or variance == 0:
        return False
    for dim in (0, 1):
        means = squares.mean(dim)
        ratio = means.var() / (variance / squares.size(dim))
        if ratio - 1 > 10 * sqrt((2 + 8 / squares.size(dim)) / (means.numel() - 1)):
            return True
    return False
