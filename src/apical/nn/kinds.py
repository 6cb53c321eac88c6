"""The kinds of units by name, built in and registered. Reading it imports no torch, so that studies and reports can."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from apical import notation
from apical.errors import InvalidArgumentError, unknown
from apical.nn import catalogue
from apical.nn.descriptors import LEARN, SCOPES, Kind, Parameter, Scope

__all__ = [
    "LEARN",
    "SCOPES",
    "Kind",
    "Parameter",
    "color",
    "family",
    "find",
    "get",
    "label",
    "names",
    "open_parameters",
    "parse",
    "register_unit",
    "stackable",
]

_REGISTERED: dict[str, Kind] = {}
_LOCAL: dict[str, Kind] = {}  # made by Unit.of of what has no name: known to this process alone
_EXAMPLE = "pynada(alpha=0.3,c=1)"


def names() -> tuple[str, ...]:
    """Every kind: the paper's, torch's, then the registered ones."""
    return (*catalogue.PAPER, *(name for name in catalogue.OTHERS if name not in _REGISTERED), *_REGISTERED)


def get(name: str) -> Kind | None:
    """The kind of that name, or of that class of torch; None where it is not known. Nothing is imported for it."""
    if name == catalogue.WRITTEN_OUT.name:
        return catalogue.WRITTEN_OUT
    kind = _REGISTERED.get(name) or catalogue.PAPER.get(name) or catalogue.OTHERS.get(name) or _LOCAL.get(name)
    if kind is None and (alias := _aliases().get(str(name).removeprefix("torch.").removeprefix("nn."))):
        kind = get(alias)
    return kind


def find(name: str) -> Kind:
    """The kind of that name, or the one that `package.module:activation` points at."""
    kind = get(name)
    if kind is None and re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", str(name)):
        kind = _imported(name)
    if kind is None:
        more = "pyramidal(basal=..., apical=...) joins two, 'package.module:activation' and register_unit add your own"
        raise InvalidArgumentError(unknown("unit", name, names(), more))
    return kind


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """The kind and the settings in a text like `pynada(alpha=0.3,c=1)`, as they are written there."""
    return notation.read(text, what="unit", example=_EXAMPLE)


def open_parameters(text: str) -> dict[str, Parameter]:
    """The parameters that a unit has and does not fix in its text, by name: what a study may tune."""
    name, given = parse(text)
    if name == catalogue.WRITTEN_OUT.name:
        branches = [open_parameters(str(given[branch])) for branch in ("basal", "apical") if branch in given]
        return {key: p for parameters in branches for key, p in parameters.items()}
    return {p.name: p for p in find(name).parameters if p.name not in given}


def stackable(text: str) -> bool:
    """True where trials of this unit can be computed as one stack."""
    name, given = parse(text)
    if name == catalogue.WRITTEN_OUT.name:
        return all(stackable(str(given.get(branch))) for branch in ("basal", "apical"))
    kind = get(name)
    return kind is not None and kind.stack is not None


def family(text: str) -> str:
    """A unit without its settings: what units that differ in those alone have in common, as colour or stack."""
    name, given = parse(text)
    if name == catalogue.WRITTEN_OUT.name:
        return notation.write(name, {branch: family(str(given[branch])) for branch in ("basal", "apical")})
    kind = get(name)
    return name if kind is None else kind.name


def label(text: str) -> str:
    """What tables call a unit: "PyNADA (alpha=0.3)", "GELU + ADA"; a kind that is not known here goes by its name."""
    name, settings = parse(text)
    if name == catalogue.WRITTEN_OUT.name and {"basal", "apical"} <= {*settings}:
        return f"{label(str(settings['basal']))} + {label(str(settings['apical']))}"
    kind = get(name)
    shown = kind.label if kind is not None else name.rpartition(":")[2]
    _, bracket, rest = text.partition("(")
    return shown + (f" ({rest.rstrip(' )')})" if bracket else "")


def color(name: str) -> tuple[str, str] | None:
    """The colours of a kind on light and on dark pages; None where it has none of its own."""
    kind = get(name)
    return None if kind is None else kind.color


def register_unit(
    name: str,
    *,
    activation: str | Callable[..., Any] | None = None,
    function: str | Callable[..., Any] | None = None,
    basal: str | None = None,
    apical: str | None = None,
    parameters: Mapping[str, Parameter | float | str] | None = None,
    label: str | None = None,
    color: str | tuple[str, str] | None = None,
    stack: bool = False,
    scope: Scope = "network",
    group: str | None = None,
) -> None:
    """Add a kind: by a function of a tensor, by a factory of its module, or, pyramidal, by the kinds of its branches.

    `parameters` are its settings, each a `Parameter` or simply a default. A `function(x, **settings)` is called with
    numbers, or with tensors that fit x where they are learned; all of its numbers can be, unless a Parameter says
    otherwise. A factory is called `activation(**settings)`; where a Parameter is learnable, with `learnable`,
    `num_parameters` and `dim` too, as `apical.Swish` is.

    `label` and `color` ("#rrggbb", or one for light and one for dark pages) are for reports. `stack=True` promises that
    each output depends on its own input alone, so that studies may train several trials as one.

    Examples:
        >>> register_unit("bump", function=lambda x, width: torch.exp(-(x / width) ** 2), parameters={"width": 1.0})
        >>> layer = Unit.parse("bump(width=learn,width_init=2)").layers().linear(4, 3)
    """
    _check_name(name)
    if sum(given is not None for given in (activation, function, basal or apical)) != 1:
        raise InvalidArgumentError(
            f"unit {name!r} needs one of activation= (a factory of its module), function= (of a tensor and its "
            "settings), or both basal= and apical= (names of kinds)"
        )
    if isinstance(activation, str) and ":" not in activation:
        raise InvalidArgumentError(
            f"activation of unit {name!r} is {activation!r}, but must be a factory: called without arguments, it "
            "returns a module, e.g. nn.GELU; 'package.module:name' says where one is"
        )
    shown, colors = label or name, _colors(name, color)
    if basal or apical:
        if parameters:
            raise InvalidArgumentError(f"unit {name!r} is pyramidal and has the parameters of its branches")
        kinds = [_branch(name, branch, text) for branch, text in (("basal", basal), ("apical", apical))]
        branches = str(basal), str(apical)
        _REGISTERED[name] = catalogue.pyramidal(name, *kinds, branches=branches, label=shown, color=colors)
        return
    own = tuple(_parameter(name, key, given, function is not None) for key, given in (parameters or {}).items())
    learnable = any(p.learnable for p in own)
    kind = Kind(
        name,
        shown,
        colors,
        own,
        build=function or activation,
        form="function" if function is not None else "activation" if learnable else "module",
        stack=("values" if function is not None or learnable else "module") if stack else None,
        scope=scope,
        group=group or ("leaky" if name.startswith("leaky_") else "standard"),
    )
    from apical.nn import building  # noqa: PLC0415  torch, which whoever has an activation has loaded

    building.check_factory(kind)
    _REGISTERED[name] = kind


def _check_name(name: str) -> None:
    if not (isinstance(name, str) and name.isidentifier()):
        raise InvalidArgumentError(f"{name!r} cannot name a unit: use letters, digits and _, not starting with a digit")
    if name in (catalogue.WRITTEN_OUT.name, *catalogue.PAPER, *_REGISTERED):
        raise InvalidArgumentError(f"there is a unit {name!r} already: register yours under another name")


def _colors(name: str, color: str | tuple[str, str] | None) -> tuple[str, str] | None:
    pair = (color, color) if isinstance(color, str) else color
    if pair is not None and not (len(pair) == 2 and all(_is_color(c) for c in pair)):
        raise InvalidArgumentError(
            f"color of unit {name!r} is {color!r}, but must be '#rrggbb', or one for light and one for dark pages"
        )
    return None if pair is None else (pair[0].lower(), pair[1].lower())


def _is_color(text: Any) -> bool:
    return (
        isinstance(text, str)
        and len(text) == 7
        and text[0] == "#"
        and all(c in "0123456789abcdefABCDEF" for c in text[1:])
    )


def _branch(name: str, branch: str, text: str | None) -> Kind:
    """The kind of a branch, with the parameters that its text leaves open."""
    kind = None if text is None else find(parse(str(text))[0])
    if kind is None or kind.pyramidal:
        raise InvalidArgumentError(f"{branch} of unit {name!r} is {text!r}, but must name a standard kind")
    return replace(kind, parameters=tuple(open_parameters(str(text)).values()))


_TAKEN = ("kind", "settings", "scope", "basal", "apical", "pyramidal", "layers", "parse", "of", "kinds", "label", LEARN)
"""What a parameter cannot be called: `Unit` has these."""


def _parameter(unit: str, name: str, given: Parameter | float | str, learnable: bool) -> Parameter:
    if not name.isidentifier() or name in _TAKEN or name.endswith("_init") or name.startswith("_"):
        raise InvalidArgumentError(
            f"parameter {name!r} of unit {unit!r} cannot be called so: use a word that is none of {', '.join(_TAKEN)} "
            "and does not end in _init"
        )
    if isinstance(given, Parameter):
        parameter = replace(given, name=name)
    else:
        parameter = Parameter(given, name=name, learnable=learnable and not isinstance(given, str))
    if parameter.default == LEARN and parameter.start is None:
        raise InvalidArgumentError(f"parameter {name!r} of unit {unit!r} is learned: say from where on with start=")
    parameter.check(parameter.default)
    for value in parameter.tune or ():
        parameter.check(value)
    return parameter


@cache
def _aliases() -> dict[str, str]:
    """The names of kinds by the class that they are: "GELU", "LeakyReLU", "ADA"."""
    known: dict[str, str] = {}
    for kind in (*catalogue.PAPER.values(), *catalogue.OTHERS.values()):
        own = [kind.build.partition(":")[2]] if isinstance(kind.build, str) and kind.form != "function" else []
        known |= dict.fromkeys((*own, *kind.aliases), kind.name)
    return known


@cache
def _imported(name: str) -> Kind:
    """The kind of an activation that has a place of its own: `package.module:Activation`."""
    from apical.nn import building  # noqa: PLC0415  torch

    return building.kind_of(name, name.rpartition(":")[2], name)


def load(path: str) -> Any:
    """What `package.module:name` points at."""
    module, _, attribute = path.partition(":")
    try:
        thing: Any = import_module(module)
    except Exception as error:  # somebody's module may raise anything
        raise InvalidArgumentError(
            f"unit {path!r} cannot be imported ({type(error).__name__}: {error}): write package.module:activation, "
            "with the package installed or in a folder on PYTHONPATH"
        ) from error
    for part in attribute.split("."):
        thing = getattr(thing, part, None)
    if thing is None:
        raise InvalidArgumentError(f"unit {path!r} cannot be imported: module {module} has no {attribute!r}")
    return thing
