"""The networks by name. A network is a factory: a function of a Unit and of keyword-only dimensions."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from apical import imports, trust
from apical.errors import ApicalError, InvalidArgumentError, unknown
from apical.limits import limit, raise_it
from apical.nn import Unit, initialise_

Factory = Callable[..., nn.Module]


def never(_: object) -> bool:
    """Whatever the dimensions are."""
    return False


@dataclass(frozen=True)
class Network:
    """A factory, and what other parts ask about its networks.

    `alpha_start`: where a learned alpha starts in standard and in pyramidal neurons, if the unit does not say.
    `stacks`: several trials of it can be trained as one, see `register`.
    `channels_last`: by its dimensions, whether its steps on a CPU are faster in that layout (benchmarks/layouts.py).
    `winograd`: its 3x3 convolutions on a CPU are faster by Winograd's algorithm (benchmarks/layouts.py).
    `redraw`: the weights are drawn by `initialise_`; else the factory draws, or loads, its own.
    """

    factory: Factory
    alpha_start: tuple[float, float] = (1.0, 1.0)
    stacks: bool = False
    redraw: bool = False
    channels_last: Callable[[Mapping[str, Any]], bool] = never
    winograd: bool = False

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.factory).parameters)

    @property
    def takes_unit(self) -> bool:
        return "unit" in self.parameters


_BUILT_IN: dict[str, Network] = {}
_REGISTERED: dict[str, Network] = {}


def built_in(
    name: str,
    *,
    alpha_start: tuple[float, float],
    stacks: bool = False,
    channels_last: Callable[[Mapping[str, Any]], bool] = never,
    winograd: bool = False,
) -> Callable[[Factory], Factory]:
    """Mark a factory as the paper's network of that name; see `Network` for the rest."""

    def add(factory: Factory) -> Factory:
        _BUILT_IN[name] = Network(
            factory, alpha_start, stacks, redraw=True, channels_last=channels_last, winograd=winograd
        )
        return factory

    return add


def register(
    name: str, factory: Factory, *, alpha_start: tuple[float, float] = (1.0, 1.0), stacks: bool = False
) -> None:
    """Add a network of your own: `factory(unit, **dims)` makes it, asking `unit.layers()` for its neurons.

    Its weights stay as the factory makes them, so that it may load trained ones; with `create(..., seed=)` torch's
    generator is seeded while it runs. Call `apical.nn.initialise_` in it for weights that are drawn by name.

    `alpha_start` is where a learned alpha starts, in standard and in pyramidal neurons. `stacks=True` promises that the
    network is its children one after the other, in the order of `named_children`, so that studies may train several
    trials as one: layers of `unit.layers()` without norms, `nn.MaxPool2d`, `nn.Linear`, and `nn.Sequential` of these.
    """
    if not (isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name)):
        raise InvalidArgumentError(f"{name!r} cannot name a network: use letters, digits, '-', '_' and '.'")
    if name in names():
        raise InvalidArgumentError(f"there is a network {name!r} already: register yours under another name")
    if not callable(factory):
        raise InvalidArgumentError(f"the factory of network {name!r} is {factory!r}, but must be a function of a Unit")
    _REGISTERED[name] = Network(factory, alpha_start, stacks)


def names() -> tuple[str, ...]:
    """The names that `create` knows: the paper's networks, then the registered ones."""
    return (*_BUILT_IN, *_REGISTERED)


def find(name: str) -> Network:
    """The network of that name, or the one that `package.module:factory` points at, where its module is allowed."""
    network = _BUILT_IN.get(name) or _REGISTERED.get(name)
    if network is not None:
        return network
    if isinstance(name, str) and ":" in name:
        return Network(trust.factory(name, "network"))
    known, bracket, rest = str(name).partition("(")
    if bracket and known.strip() in names():
        dims = rest.rstrip(" )").replace("=", " = ") or "..."
        raise InvalidArgumentError(
            f"unknown network {name!r}: name {known.strip()!r} alone, its dimensions go beside it: "
            f"dims = {{ {dims} }} in the part of a study file"
        )
    more = f"'package.module:factory' names a function of your own, and {imports.adding('apical.models.register')}"
    raise InvalidArgumentError(unknown("network", name, names(), more))


def takes_unit(name: str) -> bool:
    """True where the network is built of a unit's neurons; else `create(name, None)` makes it, to be converted."""
    return find(name).takes_unit


def stacks(name: str) -> bool:
    """True where trials of the network can be trained as one stack; a factory has to be registered to say so."""
    network = _BUILT_IN.get(name) or _REGISTERED.get(name)
    return network is not None and network.stacks


def create(name: str, unit: "str | Unit | None", *, seed: int | None = None, **dims: Any) -> nn.Module:
    """The network `name` with every neuron a `unit`; `dims` are the keyword-only arguments of its factory.

    Initial weights are Xavier uniform and biases zero, unless `dims` of the network say otherwise. With `seed` each
    weight is drawn by (seed, logical name), so that networks that differ in their unit alone start from the same
    weights; without, by torch's global generator.
    """
    trust.grant(name)  # who calls this names it; what a file names goes through `find` first
    network = find(name)
    arguments = _checked_dims(name, network, dims)
    if network.takes_unit:
        arguments["unit"] = unit_for(name, unit)  # type: ignore[arg-type]
    elif unit is not None:
        raise InvalidArgumentError(
            f"network {name!r} takes no unit: call apical.convert_(apical.models.create({name!r}, None), '{unit}')"
        )
    if network.redraw:
        _rehearse(name, network.factory, arguments)
    with limited(name), _seeded(seed):
        model = network.factory(**arguments)
        if not isinstance(model, nn.Module):
            raise InvalidArgumentError(f"network {name!r} returns {type(model).__name__}, but must return an nn.Module")
        if network.redraw:
            drawn = int(torch.randint(2**62, (), device="cpu")) if seed is None else seed
            how = {
                "biases": getattr(model, "initial_biases", "zero"),
                "weights": getattr(model, "initial_weights", "xavier"),
            }
            initialise_(model, seed=drawn, **how)
    return model


def unit_for(name: str, unit: str | Unit) -> Unit:
    """The unit as `create` uses it: a learned alpha that does not say where it starts has the network's own start."""
    unit, network = Unit.parse(unit), find(name)
    if unit.alpha == "learn" and unit.alpha_init is None:
        return unit.with_(alpha_init=network.alpha_start[unit.pyramidal])
    return unit


def _checked_dims(name: str, network: Network, dims: dict[str, Any]) -> dict[str, Any]:
    """The dims, if the factory takes them all."""
    parameters = network.parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(dims)
    allowed = {key: p for key, p in parameters.items() if key != "unit" and p.kind is not p.VAR_POSITIONAL}
    others = [key for key in dims if key not in allowed]
    if others:
        takes = ", ".join(str(p.replace(annotation=p.empty)) for p in allowed.values()) or "none"
        raise InvalidArgumentError(
            f"network {name!r} has no dimension {', '.join(map(repr, others))}; available: {takes}"
        )
    return dict(dims)


def _rehearse(name: str, factory: Factory, arguments: dict[str, Any]) -> None:
    """Build one of our networks without memory, so that what is too large or makes no sense is refused before."""
    try:
        with limited(name), torch.device("meta"):
            factory(**arguments)
    except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        if isinstance(error, ApicalError):
            raise
        dims = ", ".join(f"{key}={value!r:.40}" for key, value in arguments.items() if key != "unit")
        raise InvalidArgumentError(f"network {name!r} cannot be built with {dims}: {error!s:.200}") from error


@contextmanager
def limited(name: str, weights: Collection[Tensor] = ()) -> Iterator[None]:
    """Refuse a network while it is built, once its weights and buffers are too many: its dimensions may be a file's.

    So many may be there beyond the `weights` that are at hand.
    """
    most, numbers = limit("parameters") + sum(tensor.numel() for tensor in weights), 0
    pieces, tensors = limit("tensors") + len(weights), 0

    def count(_module: nn.Module, _key: str, tensor: object) -> None:
        nonlocal numbers, tensors
        if isinstance(tensor, Tensor):
            numbers, tensors = numbers + tensor.numel(), tensors + 1
        if numbers > most or tensors > pieces:
            what, allowed = ("parameters", most) if numbers > most else ("tensors", pieces)
            raise InvalidArgumentError(
                f"network {name!r} has more than {allowed:,} {what} with these dimensions: make it smaller or, "
                f"{raise_it(what, max(10 * allowed, numbers if what == 'parameters' else 0))}"
            )

    hooks = (register_module_parameter_registration_hook(count), register_module_buffer_registration_hook(count))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """With a seed, torch's generator starts from it inside and is left alone outside."""
    if seed is None:
        yield
        return
    if not isinstance(seed, int) or seed < 0:
        raise InvalidArgumentError(f"seed is {seed!r}, but must be an integer of at least 0")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
