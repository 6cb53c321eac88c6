"""The activations that conversion knows, as modules, functions and tensor methods, by one name each."""

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.nn import functional

from apical.errors import ConversionError
from apical.nn.layers import Neuron

_MODULES: dict[str, type[nn.Module]] = {
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

DEFAULT_KINDS = tuple(list(_MODULES)[: list(_MODULES).index("softplus")])
"""What hidden layers use. Gates and outputs (sigmoid, tanh, softplus ...) are converted only when asked for."""

ALL_KINDS = tuple(_MODULES)

IDENTITIES = (nn.Identity,)
AFFINES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
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
ADDITIONS: tuple[Any, ...] = (operator.add, operator.iadd, torch.add, "add", "add_")


def _functions() -> dict[Any, str]:
    """Every function and tensor method that computes one of the kinds, in-place forms included."""
    known: dict[Any, str] = {}
    for kind in ALL_KINDS:
        for name in (kind, f"{kind}_"):
            for home in (functional, torch):
                if callable(function := getattr(home, name, None)):
                    known[function] = kind
            if hasattr(Tensor, name):
                known[name] = kind
    return known | {functional.swish: "silu"} if hasattr(functional, "swish") else known


FUNCTIONS = _functions()


def check_kinds(kinds: Iterable[str] | None) -> tuple[str, ...]:
    """`kinds` as a tuple of known names; None is the default set."""
    chosen = DEFAULT_KINDS if kinds is None else (kinds,) if isinstance(kinds, str) else tuple(kinds)
    if unknown := [kind for kind in chosen if kind not in ALL_KINDS]:
        raise ConversionError(
            f"kinds names {', '.join(map(repr, unknown))}, which conversion does not know: "
            f"choose from {', '.join(ALL_KINDS)}"
        )
    return chosen


def module_kind(module: nn.Module) -> str | None:
    """The kind of an activation module of torch, or None."""
    for kind, known in _MODULES.items():
        if type(module) is known:
            return kind
    return None


def is_ours(module: nn.Module) -> bool:
    """Whether this is one of apical's own activations or pyramidal layers, which conversion leaves as it is."""
    home = type(module).__module__
    return home.startswith("apical.convert.") or (home.startswith("apical.nn.") and type(module) is not Neuron)


def is_affine(module: nn.Module | None) -> bool:
    """Whether this is a linear layer or convolution, and not a pyramidal one."""
    return isinstance(module, AFFINES) and not is_ours(module)


def call_kind(node: Node) -> str | None:
    """The kind of activation that this call of a function or tensor method computes, or None."""
    if node.op not in ("call_function", "call_method") or not isinstance(call_input(node), Node):
        return None
    return FUNCTIONS.get(node.target)


def call_in_place(node: Node) -> bool:
    """Whether this functional activation overwrites its input."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.endswith("_") or bool(node.kwargs.get("inplace"))


def call_as_function(node: Node) -> Callable[[Tensor], Tensor] | None:
    """The function of one tensor that this call computes, or None where it has other tensors as arguments."""
    settings = {name: value for name, value in node.kwargs.items() if name not in ("input", "inplace")}
    if any(isinstance(value, Node) for value in (*node.args[1:], *settings.values())):
        return None
    target = node.target
    if isinstance(target, str):
        return lambda x: getattr(x.clone(), target)(*node.args[1:], **settings)
    return lambda x: target(x.clone(), *node.args[1:], **settings)


def call_input(node: Node) -> Any:
    """The value that a call of an activation, norm or affine layer works on."""
    return node.args[0] if node.args else node.kwargs.get("input", next(iter(node.kwargs.values()), None))


def is_addition(node: Node) -> bool:
    """Whether this node is a plain sum of two values."""
    return node.op in ("call_function", "call_method") and node.target in ADDITIONS and not node.kwargs
