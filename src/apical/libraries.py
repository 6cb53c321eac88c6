"""apical's activations by name in libraries that keep a table of activations: timm, Transformers, MONAI."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Any

import torch
from torch import nn

from apical.errors import ApicalError, InvalidArgumentError, LibraryError, MissingExtraError, unknown
from apical.nn import building, kinds
from apical.nn.unit import Unit

Factory = Callable[..., nn.Module]


@dataclass(frozen=True)
class Library:
    """A library with a table of activations."""

    name: str
    tested: str
    """The version that the tests run with."""
    module: str
    """Where its table is."""
    has: Callable[[Any, str], bool]
    """Whether the table in that module knows a name."""
    add: Callable[[Any, str, Factory], None]
    make: Callable[[Any, str], Any]
    """The activation of that name, asked for as the library's own networks do."""
    instead: str
    """What does without the table."""


def _add_to_timm(module: Any, name: str, factory: Factory) -> None:
    module._ACT_LAYER_DEFAULT[name.lower()] = factory


def _add_to_transformers(module: Any, name: str, factory: Factory) -> None:
    module.ACT2FN[name] = factory
    importlib.import_module("apical.hub").warn_of_plain_loading()


def _add_to_monai(module: Any, name: str, factory: Factory) -> None:
    if name.isidentifier():  # others are written ("ada", {"alpha": 0.3}) there
        module.Act.add_factory_callable(name, lambda: factory, "see apical.register")


LIBRARIES = {
    library.name: library
    for library in (
        Library(
            name="timm",
            tested="1.0.30",
            module="timm.layers.create_act",
            has=lambda module, name: name.lower() in {**module._ACT_LAYER_DEFAULT, **module._ACT_LAYER_ME},
            add=_add_to_timm,
            make=lambda module, name: module.create_act_layer(name, inplace=True),
            instead="act_layer=apical.ADA",
        ),
        Library(
            name="transformers",
            tested="5.22.2",
            module="transformers.activations",
            has=lambda module, name: name in module.ACT2FN,
            add=_add_to_transformers,
            make=lambda module, name: module.ACT2FN[name],
            instead="apical.convert_(model, 'ada')",
        ),
        Library(
            name="monai",
            tested="1.6.1",
            module="monai.networks.layers.factories",
            has=lambda module, name: name.upper() in module.Act.names,
            add=_add_to_monai,
            make=lambda module, name: module.Act[name](),
            instead="act=(apical.ADA, {})",
        ),
    )
}
_REGISTERED: set[tuple[str, str]] = set()
"""Library and name of what `register` has added in this process."""


def register(*libraries: str, units: str | Sequence[str] = ()) -> tuple[str, ...]:
    """Make `"ada"`, `"leaky_ada"` and your own standard units known to timm, Transformers and MONAI by name.

    Without arguments, in every one of them that is installed. `units` adds names with settings, such as
    `"ada(alpha=0.3)"` (not in MONAI, which takes `("ada", {"alpha": 0.3})`); a learned parameter is then one per layer.
    Names that a library has already, such as `"swish"`, keep the meaning they have there. In Transformers, plain
    `from_pretrained` then warns of a folder with a converted model. Returns the libraries with their versions.

    Examples:
        >>> apical.register("timm")
        ('timm 1.0.30',)
        >>> timm.create_model("resnet18", act_layer="ada")
    """
    units = (units,) if isinstance(units, str) else units
    for name in libraries:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"register takes names one by one, not {name!r}: e.g. apical.register('timm')")
        if name not in LIBRARIES:
            raise InvalidArgumentError(unknown("library", name, LIBRARIES, "others take the module itself: apical.ADA"))
    factories = {name: _factory(name) for name in (*_own_kinds(), *units)}
    asked = {name for name in factories if name in units or name in ("ada", "leaky_ada")}
    done, faults = [], []
    for library in (LIBRARIES[name] for name in libraries or LIBRARIES):
        try:
            module = _load(library)
            if module is None:
                if libraries:
                    faults.append(f"{library.name} is not installed: pip install {library.name}")
                continue
            _fill(library, module, factories, asked)
            done.append(f"{library.name} {metadata.version(library.name)}")
        except LibraryError as error:
            faults.append(str(error))
    if faults:
        others = f" (registered in {', '.join(done)})" if done else ""
        raise LibraryError("; ".join(faults) + others)
    if not done:
        raise MissingExtraError(
            f"none of {', '.join(LIBRARIES)} is installed, and there is nothing to register in: install the one that "
            "you use, or give your network the module itself, e.g. apical.ADA()"
        )
    return tuple(done)


def _own_kinds() -> list[str]:
    """The standard kinds that are not torch's: apical's and the user's."""
    standard = [kind for kind in map(kinds.find, kinds.names()) if not kind.pyramidal]
    return [kind.name for kind in standard if not str(kind.build).startswith("torch.nn:")]


def _factory(text: str) -> Factory:
    """What makes the activation of a unit, called as torch's activations are: with `inplace`, or with settings."""
    unit = Unit.parse(text)
    if unit.pyramidal:
        raise InvalidArgumentError(
            f"unit {text!r} has weights of its own, so it cannot be registered as an activation: "
            f"build the network, then apical.convert_(model, {text!r})"
        )
    building.build(unit, None, 1)  # a unit that cannot be built says so here
    kind = unit.descriptor
    if text == kind.name and kind.form == "activation" and str(kind.build).startswith("apical."):
        return building.target(kind)  # type: ignore[no-any-return]

    def make(inplace: bool = False, **settings: Any) -> nn.Module:
        return building.build(unit.with_(**settings), None, 1)

    make.__name__ = make.__qualname__ = text
    return make


def _load(library: Library) -> ModuleType | None:
    """The module with the library's table; None where the library is not installed."""
    try:
        importlib.import_module(library.name)
    except ModuleNotFoundError as error:
        if error.name == library.name:
            return None
        raise LibraryError(_sentence(library, f"does not import ({error})")) from error
    except Exception as error:  # what a library raises at import is its own affair
        raise LibraryError(_sentence(library, f"does not import ({type(error).__name__}: {error})")) from error
    try:
        return importlib.import_module(library.module)
    except ImportError as error:
        raise LibraryError(_sentence(library, f"has no {library.module}, where its activations were")) from error


def _fill(library: Library, module: ModuleType, factories: dict[str, Factory], asked: set[str]) -> None:
    """Add what the library does not know, and see that it gives it back."""
    for name, factory in factories.items():
        try:
            if (library.name, name) in _REGISTERED:
                continue
            if library.has(module, name):
                if name in asked:
                    raise LibraryError(_sentence(library, f"has an activation {name!r} of its own"))
                continue
            library.add(module, name, factory)
            if not library.has(module, name):
                continue
            given = library.make(module, name)
            if not isinstance(given, nn.Module) or not _same(given, factory()):
                raise LibraryError(_sentence(library, f"gives {given!r} for {name!r}"))
        except ApicalError:
            raise
        except Exception as error:  # its table is not what it was
            raise LibraryError(
                _sentence(library, f"stores its activations in an unknown way ({type(error).__name__}: {error})")
            ) from error
        _REGISTERED.add((library.name, name))


def _same(one: nn.Module, other: nn.Module) -> bool:
    x = torch.linspace(-3.0, 3.0, 13)
    with torch.no_grad():
        return torch.equal(one(x), other(x))


def _sentence(library: Library, fault: str) -> str:
    try:
        version = metadata.version(library.name)
    except metadata.PackageNotFoundError:
        version = "(of unknown version)"
    return (
        f"{library.name} {version} {fault}; apical.register is tested with {library.name} {library.tested}: "
        f"use {library.instead} instead"
    )
