"""The unit that an activation of somebody's is: a class, an instance, a factory or a function."""

import re
from copy import deepcopy
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.nn import building, catalogue, kinds
from apical.nn.activations import Shared
from apical.nn.descriptors import LEARN, Kind
from apical.nn.elementwise import Elementwise
from apical.nn.unit import Unit


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
    builtin = catalogue.PAPER.get(name) or catalogue.OTHERS.get(name)
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
    known: dict[type, Kind] = {nn.PReLU: catalogue.OTHERS["prelu"]}
    for kind in (*catalogue.PAPER.values(), *catalogue.OTHERS.values()):
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
        if kind.form == "function" and module.function is building.target(kind):
            return Unit(kind.name, **_settings(kind, module))
    return Unit(_own(module, _Copies(module), getattr(module.function, "__name__", "function")).name)


def _settings(kind: Kind, module: nn.Module) -> dict[str, Any]:
    """What a module is set to; a learned value counts by its mean, and belongs to the layer or its channels."""
    settings: dict[str, Any] = {}
    for parameter in kind.parameters:
        value: Any = getattr(module, parameter.argument or parameter.name)
        if not isinstance(value, Tensor):
            settings[parameter.name] = value
            continue
        start = float(value.detach().float().mean())
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
        return kinds.find(path)
    for kind in kinds._LOCAL.values():
        if kind.build is make or getattr(kind.build, "original", None) is what:
            return kind
    stem = "local_" + (re.sub(r"\W+", "_", qualname.rpartition(".")[2]).strip("_") or "activation")
    name, count = stem, 1
    while name in kinds._LOCAL:
        count += 1
        name = f"{stem}_{count}"
    kind = kinds._LOCAL[name] = building.kind_of(name, stem.removeprefix("local_"), make)
    return kind


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
