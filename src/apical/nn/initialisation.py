"""Seeded initial weights: each parameter from its own generator, keyed by (seed, logical name).

A parameter's logical name is its name in the model, with two exceptions. The basal branch of a pyramidal layer `x`
has the standard layer's name `x.weight`, the apical branch is `x.apical_weight`. And a module may rename its children
and parameters by an attribute `logical_names`, a dictionary from names to logical names ("" leaves a level out).
So networks that differ in their neurons alone start from the same weights wherever those have the same shape.

`weights` says how wide they are drawn. "xavier" looks at the fans alone. "he" keeps the variance in front of each
activation at 1, if inputs have the second moment 1: a layer has the gain of the activation that stands before it in the
network (`calculate_gain`), the first one none. "siren" is the rule of networks of sines (Sitzmann et al.,
2020). "data" draws as Xavier, and `scale_to_data_` then gives what stands in front of each activation the variance 1.
"""

import hashlib
from collections.abc import Iterator
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from apical.errors import InvalidArgumentError
from apical.nn.activations import Activation, Shared
from apical.nn.layers import Neuron
from apical.nn.pyramidal import _Pyramidal, branch_views
from apical.nn.unit import Unit

_AFFINE = (nn.Linear, _ConvNd, nn.Bilinear, nn.Embedding, nn.EmbeddingBag)
BIASES = ("zero", "uniform")
WEIGHTS = ("xavier", "he", "siren", "data")
_CONSTANT = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU, Activation)


def initialise_(model: nn.Module, *, seed: int, biases: str = "zero", weights: str = "xavier") -> list[str]:
    """Draw all weights anew, uniformly, with fans counted per branch; zero biases, norms and activations as new.

    `weights` is "xavier", "he", "siren" or "data", as the module says. With `biases="uniform"` biases are drawn as by
    torch: uniform between +-1/sqrt(fan in). Returns the names of the parameters it does not know how to draw (of
    modules that are not torch's or apical's) and leaves as they are.
    """
    if not isinstance(seed, int) or seed < 0:
        raise InvalidArgumentError(f"seed is {seed!r}, but must be an integer of at least 0")
    for name, value, allowed in (("biases", biases, BIASES), ("weights", weights, WEIGHTS)):
        if value not in allowed:
            raise InvalidArgumentError(f"{name} is {value!r}, but must be one of {', '.join(allowed)}")
    unknown: list[str] = []
    done: set[int] = set()
    bounds = _bounds(model, weights)
    with torch.no_grad():
        for name, logical, module in logical_modules(model):
            own = {key: p for key, p in module.named_parameters(recurse=False) if id(p) not in done}
            done |= {id(p) for p in own.values()}
            if isinstance(module, _CONSTANT):
                module.reset_parameters()
            elif isinstance(module, _AFFINE):
                _affine_(module, logical, seed, biases, bounds.get(id(module)))
            else:
                unknown += [_join(name, key) for key in own]
    return unknown


def calculate_gain(activation: "str | Unit | nn.Module") -> float:
    """1 / sqrt(E[f(z)^2]) for a standard normal z: He's gain for any activation; sqrt(2) for ReLU.

    Weights of variance gain^2 / fan_in behind this activation give the next one inputs of variance 1 again. The two
    branches of a pyramidal neuron have independent inputs. The integral is a sum over 48,001 points, right to 1e-6.

    Examples:
        >>> calculate_gain("relu")
        >>> calculate_gain("ada(alpha=0.5)")
    """
    if isinstance(activation, str | Unit):
        activation = Unit.parse(activation).layers().linear(1, 1)
    if isinstance(activation, Neuron):
        activation = activation.activation
    if isinstance(activation, _Pyramidal):
        (first, of_first), (second, of_second) = _moments(activation.basal), _moments(activation.apical)
        return 1 / sqrt(of_first + of_second + 2 * first * second)
    return 1 / sqrt(_moments(activation)[1])


def _moments(activation: nn.Module) -> tuple[float, float]:
    """E[f(z)] and E[f(z)^2] for a standard normal z."""
    owner = activation.owner if isinstance(activation, Shared) else activation
    like = next(owner.parameters(), torch.empty(0))
    channels = max([p.numel() for p in owner.parameters()], default=1)
    dim = getattr(owner, "dim", -1)
    z = torch.linspace(-12.0, 12.0, 48_001, dtype=torch.float64)
    grid = z.to(like.dtype).view(-1, *[1] * max(1, -dim)).expand(-1, channels, *[-1] * (max(1, -dim) - 1))
    with torch.no_grad():
        values = owner(grid.to(like.device)).double().cpu().flatten(1).mean(1)
    density = torch.exp(-0.5 * z * z)
    density /= density.sum()
    return float(values @ density), float(values.square() @ density)


def scale_to_data_(model: nn.Module, inputs: Tensor) -> None:
    """Scale the weights of each affine layer so that w x has the variance 1 over its outputs, layer by layer.

    x is what the layer gets for `inputs`, a batch of training data, when the layers before it are scaled: the
    layer-sequential unit variance of Mishkin and Matas (2016) without its orthogonal start. Biases stay, and so does
    a layer that is not called.
    """
    training = model.training
    model.eval()
    with torch.no_grad():
        for _, _, module in logical_modules(model):
            if isinstance(module, nn.Linear | _ConvNd):
                products: list[Tensor] = []
                hook = module.register_forward_pre_hook(lambda m, x, seen=products: seen.append(_product(m, x[0])))
                try:
                    model(inputs)
                finally:
                    hook.remove()
                deviation = float(products[0].std()) if products else 0.0
                if deviation > 0:
                    module.weight /= deviation
    model.train(training)


def _product(layer: Any, x: Tensor) -> Tensor:
    """w x, of both branches where there are two."""
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(x, layer.weight)
    return layer._conv_forward(x, layer.weight, None)  # type: ignore[no-any-return]


def logical_modules(model: nn.Module, name: str = "", logical: str = "") -> Iterator[tuple[str, str, nn.Module]]:
    """Every module of `model` with its name and its logical name; a shared one comes once, under its first name."""
    seen: set[int] = set()

    def walk(module: nn.Module, name: str, logical: str) -> Iterator[tuple[str, str, nn.Module]]:
        if id(module) in seen:
            return
        seen.add(id(module))
        yield name, logical, module
        for key, child in module.named_children():
            yield from walk(child, _join(name, key), _join(logical, logical_name(module, key)))

    return walk(model, name, logical)


def logical_name(module: nn.Module, key: str) -> str:
    """The logical name, within `module`, of its child or parameter `key`."""
    names: Any = getattr(module, "logical_names", {})
    return str(names.get(key, key))


def drawn(shape: torch.Size, name: str, seed: int, bound: float | None = None) -> Tensor:
    """The weight of that shape and logical name, always the same for a seed: float32 on the CPU.

    It is uniform between +-bound; None is Xavier's bound.
    """
    weight = torch.empty(shape, dtype=torch.float32, device="cpu")
    if bound is not None:
        return weight.uniform_(-bound, bound, generator=_generator(name, seed))
    return nn.init.xavier_uniform_(weight, generator=_generator(name, seed))


def _generator(name: str, seed: int) -> torch.Generator:
    key = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(key[:8], "little", signed=True))


def _bounds(model: nn.Module, weights: str) -> dict[int, float]:
    """Between +- which value the weights of each affine layer are drawn, by its identity; Xavier's are left out."""
    if weights not in ("he", "siren"):
        return {}
    bounds: dict[int, float] = {}
    neurons: dict[int, Any] = {}  # by the affine layer of each
    before: Any = None  # the last neuron, which feeds the next layer
    for name, _, module in logical_modules(model):
        if isinstance(module, Neuron):
            neurons[id(module.affine)] = module.activation
        if not isinstance(module, _AFFINE):
            continue
        own = module if isinstance(module, _Pyramidal) else neurons.get(id(module))
        weight: Any = module._parameters["weight"]
        fan_in = weight[0].numel()
        if weights == "he":
            bounds[id(module)] = (1.0 if before is None else calculate_gain(before)) * sqrt(3 / fan_in)
        else:
            bounds[id(module)] = sqrt(6 / fan_in) / _omega(name, own or before) if bounds else 1 / fan_in
        before = own or before
    return bounds


def _omega(name: str, activation: nn.Module | None) -> float:
    """The omega of a sine."""
    owner: Any = activation.owner if isinstance(activation, Shared) else activation
    if not hasattr(owner, "omega"):
        raise InvalidArgumentError(f"weights is 'siren', but {name} has no omega: use a unit such as sine(omega=30)")
    return float(owner.omega)


def _affine_(module: nn.Module, logical: str, seed: int, biases: str, bound: float | None) -> None:
    weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
    if weight is not None:
        name = _join(logical, logical_name(module, "weight"))
        if isinstance(module, _Pyramidal) and module.apical_affine is None:
            apical = _join(logical, logical_name(module, "apical_weight"))
            shape = torch.Size((module.outputs, *weight.shape[1:]))
            for view, key in zip(branch_views(weight, module.groups), (name, apical), strict=True):
                view.copy_(drawn(shape, key, seed, bound).view_as(view))
        else:
            weight.copy_(drawn(weight.shape, name, seed, bound))
    if bias is not None and weight is not None and biases == "uniform":
        limit = weight[0].numel() ** -0.5
        key = _join(logical, logical_name(module, "bias"))
        bias.copy_(torch.empty(bias.shape).uniform_(-limit, limit, generator=_generator(key, seed)))
    elif bias is not None:
        bias.zero_()
    padding = getattr(module, "padding_idx", None)
    if weight is not None and padding is not None:
        weight[padding] = 0


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name
