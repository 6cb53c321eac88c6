"""From a unit to the module of its activation."""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.nn import kinds
from apical.nn.activations import Activation
from apical.nn.descriptors import LEARN, Kind, Settings
from apical.nn.elementwise import Elementwise
from apical.nn.unit import Unit


def build(unit: Unit, channels: int | None, dim: int) -> nn.Module:
    """The activation of a standard unit, with one learned value per channel where its scope says so."""
    kind = unit.descriptor
    if kind.pyramidal:
        raise InvalidArgumentError(
            f"{str(unit)!r} is pyramidal: it has two activations, {str(unit.basal)!r} and {str(unit.apical)!r}, "
            "and comes with its affine layer; ask for a linear or convolution layer, or name a standard kind"
        )
    count = 1
    if unit.settings["scope"] == "channel" and unit.learned:
        if channels is None:
            raise InvalidArgumentError(f"unit {str(unit)!r} learns one value per channel: say how many with channels=")
        count = channels
    return make(kind, unit.settings, count, dim)


def make(kind: Kind, settings: Settings, count: int = 1, dim: int = 1) -> nn.Module:
    """The module of a kind with these settings."""
    thing = target(kind)
    learned = [p.name for p in kind.parameters if settings[p.name] == LEARN]
    values = {p.argument or p.name: _start(p, settings) for p in kind.parameters}
    if kind.form == "module":
        return thing(**values)  # type: ignore[no-any-return]
    if kind.form == "function":
        return Elementwise(thing, learn=learned, num_parameters=count, dim=dim, **values)
    module = thing(**values, learnable=bool(learned), num_parameters=count, dim=dim)
    absent = [name for name in learned if name not in module._parameters]
    if absent:
        raise InvalidArgumentError(
            f"the activation of unit {kind.name!r} was called with learnable=True, but has no parameter {absent[0]!r}: "
            f"register it as self.{absent[0]} = nn.Parameter(...), of shape (num_parameters,)"
        )
    if not isinstance(module, Activation):
        module.learned_settings = tuple(learned)  # for no_weight_decay
    return module  # type: ignore[no-any-return]


def _start(parameter: kinds.Parameter, settings: Settings) -> Any:
    """The value of a setting, or, where it is learned, the one that training begins with."""
    if settings[parameter.name] != LEARN:
        return settings[parameter.name]
    start = settings.get(f"{parameter.name}_init", parameter.start)
    return parameter.default if start is None else start


def target(kind: Kind) -> Any:
    """What makes the activation of a kind: a class, a factory or a function."""
    return kinds.load(kind.build) if isinstance(kind.build, str) else kind.build


def kind_of(name: str, label: str, thing: Any) -> Kind:
    """The kind of a factory of modules, or of a function of a tensor, whichever it is."""
    function = Kind(name, label, build=thing, form="function")
    with suppress(Exception):  # whatever it is, it is no function of a tensor
        if _works(function, target(function), {}):
            return function
    kind = Kind(name, label, build=thing)
    check_factory(kind)
    return kind


def _works(kind: Kind, thing: Any, settings: Settings) -> bool:
    """True where the kind gives a module, or, as a function, a tensor like its input."""
    if isinstance(thing, nn.Module) or (kind.form == "function" and isinstance(thing, type)):
        return False
    module = make(kind, settings)
    if kind.form != "function":
        return isinstance(module, nn.Module)
    x = torch.linspace(-1.0, 1.0, 6).view(2, 3)
    y = module(x)
    return isinstance(y, Tensor) and y.shape == x.shape


def activation(which: object, channels: int | None, dim: int) -> nn.Module:
    """`which` itself if it is a module; else the module of the unit that it names or is."""
    return which if isinstance(which, nn.Module) else build(Unit.of(which), channels, dim)


def check_factory(kind: Kind) -> None:
    """Refuse what gives no module, or, as a function, no tensor like its input, before a network is half built."""
    defaults = {p.name: p.default for p in kind.parameters}
    thing = target(kind)
    with suppress(Exception):  # whatever it is, the sentence below says what to give instead
        if _works(kind, thing, defaults):
            return
    arguments = ", ".join(f"{p.argument or p.name}={p.default!r}" for p in kind.parameters)
    if kind.form == "function":
        raise InvalidArgumentError(
            f"function of unit {kind.name!r} is {thing!r}, but must return a tensor of the shape of its input: called "
            f"as function(x{', ' if arguments else ''}{arguments}) it does not"
        )
    called = f"called as activation({arguments})" if arguments else "called without arguments"
    raise InvalidArgumentError(
        f"activation of unit {kind.name!r} is {thing!r}, but must be a factory: {called}, it returns a "
        "module, e.g. nn.GELU or lambda: MyActivation(2.0)"
    )
