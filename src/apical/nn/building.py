"""Build the activation module of a unit, and recognise the unit of an activation."""

import re
import sys
from contextlib import suppress
from copy import deepcopy
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from apical import trust
from apical.errors import InvalidArgumentError
from apical.nn import kinds
from apical.nn.activations import Activation, Elementwise, Shared
from apical.nn.kinds import LEARN, Kind, Settings
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
            raise InvalidArgumentError(f"unit {str(unit)!r} learns one value per channel: give the number as channels=")
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
    value = settings[parameter.name]
    if value in parameter.words:
        return parameter.words[value](settings)
    if value != LEARN:
        return value
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
    cause = ""
    try:
        if _works(kind, thing, defaults):
            return
    except Exception as error:  # whatever it is, the sentence below says what to give instead
        cause = f" ({type(error).__name__}: {error})"
    arguments = ", ".join(f"{p.argument or p.name}={p.default!r}" for p in kind.parameters)
    if kind.form == "function":
        raise InvalidArgumentError(
            f"function of unit {kind.name!r} is {thing!r}, but must return a tensor of the shape of its input: called "
            f"as function(x{', ' if arguments else ''}{arguments}) it does not{cause}"
        )
    called = f"called as activation({arguments})" if arguments else "called without arguments"
    raise InvalidArgumentError(
        f"activation of unit {kind.name!r} is {thing!r}, but must be a factory: {called}, it returns a "
        f"module, e.g. nn.GELU or lambda: MyActivation(2.0){cause}"
    )


# The unit that an activation of somebody's is: a class, an instance, a factory or a function.


def unit_of(what: Any) -> Unit:
    """See `Unit.of`."""
    if isinstance(what, type) and issubclass(what, nn.Module):
        return Unit(_named(what, _classes().get(what)) or _own(what, what, what.__qualname__).name)
    if isinstance(what, nn.Module):
        return _of_instance(what)
    if not callable(what):
        raise InvalidArgumentError(
            f"invalid unit {what!r}; give its text, e.g. 'pynada(alpha=0.3,c=1)', or an activation: a class such as "
            "nn.Mish, an instance, a factory or a function"
        )
    name = getattr(what, "__name__", "")
    builtin = kinds.PAPER.get(name) or kinds.OTHERS.get(name)
    same = any(getattr(home, name, None) is what for home in (nn.functional, torch))
    qualname = name if getattr(torch, name, None) is what else getattr(what, "__qualname__", type(what).__name__)
    return Unit(_named(what, builtin if same else None) or _own(what, what, qualname).name)


def _named(what: Any, builtin: Kind | None) -> str | None:
    """The name of the kind that somebody registered for it, or of the built-in one, unless that was redefined."""
    for kind in kinds._REGISTERED.values():
        if kind.build is what:
            return kind.name
    return builtin.name if builtin is not None and kinds.get(builtin.name) is builtin else None


@cache
def _classes() -> dict[type, Kind]:
    """The kinds that are classes of modules."""
    known: dict[type, Kind] = {nn.PReLU: kinds.OTHERS["prelu"]}
    for kind in (*kinds.PAPER.values(), *kinds.OTHERS.values()):
        if isinstance(kind.build, str) and kind.form != "function":
            known[kinds.load(kind.build)] = kind
    return known


def _of_instance(module: nn.Module) -> Unit:
    """The unit with the settings of a module; where its class is no kind, copies of the module itself."""
    module = module.owner if isinstance(module, Shared) else module
    kind = _classes().get(type(module))
    redefined = kind is not None and kinds.get(kind.name) is not kind
    if kind is None or redefined or module._forward_hooks or module._forward_pre_hooks:
        if isinstance(module, Elementwise):
            return _of_elementwise(module)
        return Unit(_own(module, _Copies(module), type(module).__name__).name)
    return Unit(kind.name, **_settings(kind, module))


def _of_elementwise(module: Elementwise) -> Unit:
    for name in kinds.names():
        kind = kinds.find(name)
        if kind.form == "function" and module.function is target(kind):
            return Unit(kind.name, **_settings(kind, module))
    return Unit(_own(module, _Copies(module), getattr(module.function, "__name__", "function")).name)


def _settings(kind: Kind, module: nn.Module) -> dict[str, Any]:
    """What a module is set to; a learned value belongs to the layer or its channels, and starts from its own value."""
    settings: dict[str, Any] = {}
    for parameter in kind.parameters:
        value: Any = getattr(module, parameter.argument or parameter.name)
        if not isinstance(value, Tensor):
            settings[parameter.name] = value
            continue
        own = value.detach().float()
        start, last = float(own.min()), float(own.max())
        if start != last:
            scope = f"{kind.name}(scope=channel,{parameter.name}_init={own.mean():.3g})"
            raise InvalidArgumentError(
                f"{type(module).__name__} has {len(own)} values of {parameter.name}, from {start:.4g} to {last:.4g}, "
                f"but a unit starts all of its channels at one: give {scope!r}, say"
            )
        settings |= {parameter.name: LEARN, f"{parameter.name}_init": start}
        settings["scope"] = "channel" if value.numel() > 1 else "layer"
    return settings


class _Copies:
    """A factory of copies of one module."""

    def __init__(self, original: nn.Module) -> None:
        self.original = original

    def __call__(self) -> nn.Module:
        return deepcopy(self.original)


def _own(what: Any, make: Any, qualname: str) -> Kind:
    """The kind of something that has none: by the place that it can be imported from, else for this process alone."""
    path = f"{getattr(what, '__module__', None)}:{qualname}"
    if make is what and _importable(path, what):
        trust.grant(path)  # the caller has it at hand
        return kinds.find(path)
    for kind in kinds._LOCAL.values():
        if kind.build is make or getattr(kind.build, "original", None) is what:
            return kind
    stem = "local_" + (re.sub(r"\W+", "_", qualname.rpartition(".")[2]).strip("_") or "activation")
    name, count = stem, 1
    while name in kinds._LOCAL:
        count += 1
        name = f"{stem}_{count}"
    kind = kinds._LOCAL[name] = kind_of(name, stem.removeprefix("local_"), make)
    return kind


def is_loaded(path: str) -> bool:
    """True for a class of modules in what this process has imported: a file may name it, for no code is brought."""
    module, _, attribute = path.partition(":")
    thing: Any = sys.modules.get(module)
    for part in attribute.split("."):
        thing = getattr(thing, part, None)
    return isinstance(thing, type) and issubclass(thing, nn.Module)


def _importable(path: str, what: Any) -> bool:
    module, _, attribute = path.partition(":")
    if module == "__main__" or "<" in path:
        return False
    try:
        thing: Any = import_module(module)
    except ImportError:
        return False
    for part in attribute.split("."):
        thing = getattr(thing, part, None)
    return thing is what
