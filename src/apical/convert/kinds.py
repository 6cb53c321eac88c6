"""The activations that conversion knows, as modules, functions and tensor methods, by one name each."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.fx.node import map_arg
from torch.nn import functional

from apical.errors import ConversionError
from apical.nn.layers import Neuron
from apical.nn.pyramidal import pyramidal_layer

_HIDDEN: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "rrelu": nn.RReLU,
    "elu": nn.ELU,
    "celu": nn.CELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "hardswish": nn.Hardswish,
}
_GATES_AND_OUTPUTS: dict[str, type[nn.Module]] = {
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "softshrink": nn.Softshrink,
    "hardshrink": nn.Hardshrink,
    "tanhshrink": nn.Tanhshrink,
    "threshold": nn.Threshold,
    "hardtanh": nn.Hardtanh,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "hardsigmoid": nn.Hardsigmoid,
    "logsigmoid": nn.LogSigmoid,
}
_MODULES = _HIDDEN | _GATES_AND_OUTPUTS

DEFAULT_KINDS = tuple(_HIDDEN)
"""What hidden layers use. Gates and outputs (sigmoid, tanh, softplus ...) are converted only when asked for."""

GATES = tuple(_GATES_AND_OUTPUTS)
ALL_KINDS = tuple(_MODULES)

INSIDE: dict[type[nn.Module], str] = {
    nn.GLU: "sigmoid",
    nn.LSTM: "tanh",
    nn.LSTMCell: "tanh",
    nn.GRU: "tanh",
    nn.GRUCell: "tanh",
    nn.RNN: "tanh",
    nn.RNNCell: "tanh",
}
"""Layers of torch whose own code applies an activation that nothing can take the place of."""

IDENTITIES = (nn.Identity,)
AFFINES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""What becomes one pyramidal layer with its activation."""

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.LocalResponseNorm,
    nn.RMSNorm,
)
NORM_FUNCTIONS = (
    functional.batch_norm,
    functional.layer_norm,
    functional.group_norm,
    functional.instance_norm,
    functional.rms_norm,
)


def iadd(x: Any, y: Any) -> Any:
    """`x += y`. torch.fx writes a call of the operator as a statement, which gives a number's name another value."""
    x += y
    return x


def isub(x: Any, y: Any) -> Any:
    """`x -= y`."""
    x -= y
    return x


def imul(x: Any, y: Any) -> Any:
    """`x *= y`."""
    x *= y
    return x


def itruediv(x: Any, y: Any) -> Any:
    """`x /= y`."""
    x /= y
    return x


def ipow(x: Any, y: Any) -> Any:
    """`x **= y`."""
    x **= y
    return x


_IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ipow", "setitem")
ADDITIONS: tuple[Any, ...] = (operator.add, operator.iadd, iadd, torch.add, "add", "add_")


def _functions() -> dict[Any, str]:
    """Every function, operator and tensor method that computes one of the kinds, in-place forms included."""
    known: dict[Any, str] = {torch.special.expit: "sigmoid", torch.ops.aten.log_sigmoid: "logsigmoid"}
    for kind in ALL_KINDS:
        for name in (kind, f"{kind}_"):
            for home in (functional, torch, torch.ops.aten):
                if callable(function := getattr(home, name, None)):
                    known[function] = kind
            if hasattr(Tensor, name):
                known[name] = known[getattr(Tensor, name)] = kind
    for packet in [each for each in known if hasattr(each, "overloads")]:
        known |= {getattr(packet, overload): known[packet] for overload in packet.overloads()}
    return known | {functional.swish: "silu"} if hasattr(functional, "swish") else known


FUNCTIONS = _functions()


def is_clamp(function: Any) -> bool:
    """Whether this function, or tensor's method of this name, cuts values off: below 0 alone, it is a ReLU."""
    name = function if isinstance(function, str) else getattr(function, "__name__", "")
    return name.rstrip("_") in ("clamp", "clamp_min", "clip")


def function_kind(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The kind of activation that a call of a function or of a tensor's method computes, or None.

    One that writes into `out` is none that another could stand for.
    """
    if kwargs.get("out") is not None:
        return None
    if is_clamp(function):
        low = args[1] if len(args) > 1 else kwargs.get("min")
        high = args[2] if len(args) > 2 else kwargs.get("max")
        return "relu" if isinstance(low, (int, float)) and low == 0 and high is None else None
    return FUNCTIONS.get(function)


@dataclass(frozen=True)
class Selection:
    """Which activations a conversion is about: kinds by name, and classes by name or as `also`; None is the default.

    By default those are the kinds of hidden layers, and whole modules and functions of your own that are no gates.
    """

    kinds: tuple[str, ...] | None = None
    also: tuple[type[nn.Module], ...] = ()

    @classmethod
    def of(cls, kinds: Iterable[str] | None, also: Iterable[type[nn.Module]] | None) -> "Selection":
        chosen = None if kinds is None else (kinds,) if isinstance(kinds, str) else tuple(kinds)
        if chosen == ():
            raise ConversionError(f"kinds is empty: name kinds to convert, of {', '.join(ALL_KINDS)}, or leave it out")
        given: Any = () if also is None else also
        classes = (given,) if isinstance(given, type) else tuple(given)
        for each in classes:
            if not (isinstance(each, type) and issubclass(each, nn.Module)):
                raise ConversionError(f"also names {each!r}, but takes classes of modules: e.g. also=[MyActivation]")
        return cls(chosen, classes)

    def accepts(self, kind: str, names: Iterable[str], *, own: bool, module: nn.Module | None) -> bool:
        """Whether an activation is chosen; `names` are those it goes by beside its kind, `own` that it is no gate."""
        if self.also and isinstance(module, self.also):
            return True
        if self.kinds is None:
            return kind in DEFAULT_KINDS or own
        return kind in self.kinds or any(name in self.kinds for name in names)

    def check(self, names: Iterable[str]) -> None:
        """Refuse kinds that are neither torch's nor among the `names` of the model's own activations."""
        own = [name for name in dict.fromkeys(names) if name not in ALL_KINDS]
        if unknown := [kind for kind in self.kinds or () if kind not in (*ALL_KINDS, *own)]:
            raise ConversionError(
                f"unknown kind {', '.join(map(repr, unknown))}; available: {', '.join((*ALL_KINDS, *own))}"
            )


def written_as_module(kind: str) -> str:
    """How a user makes a module of an activation of this kind."""
    return f"torch.nn.{_MODULES[kind].__name__}()" if kind in _MODULES else "YourActivation()"


def module_kind(module: nn.Module) -> str | None:
    """The kind of an activation module of torch, subclasses that leave its forward alone included; or None."""
    return None if "forward" in vars(module) else class_kind(type(module))


def class_kind(cls: type) -> str | None:
    """The kind of a class of such modules."""
    for kind, known in _MODULES.items():
        if issubclass(cls, known) and cls.forward is known.forward:
            return kind
    return None


class HeldFunction(nn.Module):
    """A function that a module keeps as an attribute (`self.act = F.gelu`), as a module while the network is read."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        inner = self.function.func if isinstance(self.function, partial) else self.function
        return str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")


def written_class(module: nn.Module) -> str:
    """How a network writes a module: by its class, or as the function that it stands for."""
    return f"{module.name}()" if isinstance(module, HeldFunction) else type(module).__name__


TRANSFORMER_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def is_ours(module: nn.Module) -> bool:
    """Whether this is one of apical's own activations or pyramidal layers, which conversion leaves as it is."""
    home = type(module).__module__
    if isinstance(module, HeldFunction):
        return False
    return home.startswith("apical.convert.") or (home.startswith("apical.nn.") and type(module) is not Neuron)


def is_affine(module: nn.Module | None) -> bool:
    """Whether this is a linear layer or convolution, transposed or Transformers' own included, and not pyramidal."""
    return (
        module is not None
        and not is_ours(module)
        and (isinstance(module, (*AFFINES, *_TRANSPOSED)) or _is_conv1d(module))
    )


def _is_conv1d(module: nn.Module) -> bool:
    """Whether this is Transformers' Conv1D: a linear layer whose weight is stored the other way round."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.") and hasattr(module, "nf")


def width(affine: Any) -> tuple[int, int]:
    """The number of channels behind an affine layer, and their dimension counted from the right."""
    if _is_conv1d(affine):
        return int(affine.nf), -1
    if isinstance(affine, _TRANSPOSED):
        return affine.out_channels, -1 - len(affine.kernel_size)
    return len(affine.weight), pyramidal_layer(affine).channel_dim


def call_kind(node: Node) -> str | None:
    """The kind of activation that this call of a function or tensor method computes, or None."""
    if node.op not in ("call_function", "call_method") or not isinstance(call_input(node), Node):
        return None
    return function_kind(node.target, node.args, node.kwargs)


def call_in_place(node: Node) -> bool:
    """Whether this call overwrites its input."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    overwrites = name in _IN_PLACE if node.op == "call_function" else name == "__setitem__"
    return overwrites or (name.endswith("_") and name[-2:] != "__") or bool(node.kwargs.get("inplace"))


def is_of_parameters(node: Node) -> bool:
    """Whether a call takes parameters beside its input, as `F.prelu(x, self.weight)` does."""
    return any(each is not call_input(node) for each in node.all_input_nodes)


class Further(NamedTuple):
    """What a call passes beside its input (`...`: a number that is not known before), and the name of the input."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed
    name: str = ""


def further(node: Node) -> Further | None:
    """What a call passes beside its input; None where other values than parameters and buffers are among it."""
    own = call_input(node)
    beside = tuple(node.args[1:]), {name: value for name, value in node.kwargs.items() if value is not own}
    inside: list[Node] = []
    map_arg(beside, inside.append)
    values = {each: each.meta.get("value") for each in inside}
    if own in inside or any(value is None for value in values.values()):
        return None
    args, kwargs = map_arg(beside, values.__getitem__)
    return Further(args, kwargs, "" if node.args else next(iter(node.kwargs), ""))


def call_as_function(node: Node) -> Callable[[Tensor], Any] | None:
    """The function of one tensor that this call computes, or None where it computes with others, parameters aside."""
    beside, target = further(node), node.target
    if beside is None:
        return None
    function: Any = (lambda x, *a, **k: getattr(x, target)(*a, **k)) if isinstance(target, str) else target
    return lambda x: function(x, *beside.args, **beside.kwargs)


def call_input(node: Node) -> Any:
    """The value that a call of an activation, norm or affine layer works on."""
    return node.args[0] if node.args else node.kwargs.get("input", next(iter(node.kwargs.values()), None))


def is_addition(node: Node) -> bool:
    """Whether this node is a plain sum of two values."""
    return node.op in ("call_function", "call_method") and node.target in ADDITIONS and not node.kwargs
