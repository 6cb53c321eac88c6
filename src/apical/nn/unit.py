"""Unit: the one vocabulary for "which neuron". Free of torch until it is asked for layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from apical import notation, trust
from apical.errors import InvalidArgumentError, unknown
from apical.nn import kinds
from apical.nn.kinds import LEARN, SCOPES, WRITTEN_OUT, Kind, Parameter

if TYPE_CHECKING:
    from apical.nn.layers import Layers

_BRANCHES = ("basal", "apical")
_COMMON = ("alpha", "alpha_init", "c", "leak")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Unit:
    """A neuron: its kind and the settings of its activation, `Unit(kind, **settings)`.

    The kind says which settings there are; those of other kinds read as None. A setting of "learn" is learned, from
    `<setting>_init` on (left out: from where the network or the kind says), and `scope` says what shares one value: the
    whole network, a layer, or a channel. `pyramidal` takes two units as its settings, `basal` and `apical`; every other
    setting goes to the apical branch, or, where that has no such setting, to the basal one.

    Examples:
        >>> Unit.parse("pynada(alpha=0.3,c=1)") == Unit("pynada", alpha=0.3, c=1)
        True
        >>> str(Unit("pyramidal", basal="gelu", apical="ada(alpha=0.5)"))
        'pyramidal(basal=gelu,apical=ada(alpha=0.5))'
    """

    kind: str
    settings: Mapping[str, Any]
    """What the unit is set to: its parameters, the scope, then where learned ones start if the unit says so."""

    def __init__(self, kind: str, *, settings: Mapping[str, Any] | None = None, **own: Any) -> None:
        known = kinds.find(kind)
        given = {key: value for key, value in {**(settings or {}), **own}.items() if value is not None}
        complete = _written_out(given) if known is WRITTEN_OUT else _completed(known, given)
        object.__setattr__(self, "kind", known.name)
        object.__setattr__(self, "settings", MappingProxyType(complete))

    @classmethod
    def parse(cls, text: "str | Unit") -> "Unit":
        """The unit that `text` describes, as `str(unit)` writes it; a Unit is returned as it is."""
        if isinstance(text, Unit):
            return text
        if not isinstance(text, str):
            raise InvalidArgumentError(f"invalid unit {text!r}; give its kind, e.g. 'relu' or 'pynada(alpha=0.3,c=1)'")
        kind, settings = kinds.parse(text)
        return cls(kind, settings=settings)

    @classmethod
    def of(cls, what: Any) -> "Unit":
        """The unit of a text, a Unit, a class of modules (`nn.Mish`), an instance, a factory or a function.

        What has no kind of its own is named by where it can be imported from, `package.module:Activation`, and else by
        a name that this process alone knows, `local_Activation`.
        """
        if isinstance(what, str | Unit):
            return cls.parse(what)
        from apical.nn import building  # noqa: PLC0415  torch

        return building.unit_of(what)

    @staticmethod
    def kinds() -> tuple[str, ...]:
        """The names of all kinds, registered ones included."""
        return kinds.names()

    def with_(self, **settings: Any) -> "Unit":
        """The same unit with other settings."""
        return Unit(self.kind, settings=self.settings, **settings)

    __replace__ = with_

    def __str__(self) -> str:
        return notation.write(self.kind, self._shown())

    def __repr__(self) -> str:
        own = "".join(
            f", {key}={str(value) if isinstance(value, Unit) else value!r}" for key, value in self._shown().items()
        )
        return f"Unit({self.kind!r}{own})"

    def _repr_html_(self) -> str:
        """For notebooks: the settings as a table."""
        rows = [(key, "learned" if value == LEARN else value) for key, value in self.settings.items() if key != "scope"]
        shared = f"one learned value for each {self.scope}" if self.learned else ""
        kind = "pyramidal neuron" if self.pyramidal else "standard neuron"
        return notation.html_table(("setting", "value"), rows, title=str(self), notes=filter(None, (kind, shared)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unit) and (self.kind, self.settings) == (other.kind, other.settings)

    def __hash__(self) -> int:
        return hash((self.kind, *self.settings.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.kind, dict(self.settings))

    def __getattr__(self, name: str) -> Any:
        """A setting; None where another kind has it, but not this one."""
        if name.startswith("_") or name in ("kind", "settings"):
            raise AttributeError(name)
        if name in self.settings:
            return self.settings[name]
        if self.kind == WRITTEN_OUT.name:
            owner = self._owner(name.removesuffix("_init"))
            return getattr(owner or self.apical, name)
        if name in _COMMON or any(name.removesuffix("_init") in kinds.find(kind).settings for kind in kinds.names()):
            return None
        raise AttributeError(f"unit {str(self)!r} has no {name!r}; it has {', '.join(self.settings)}")

    def _owner(self, name: str) -> "Unit | None":
        """The branch that a setting of a unit that is written out belongs to."""
        branches: tuple[Unit, Unit] = self.settings["apical"], self.settings["basal"]
        if name == "scope":
            return next((b for b in branches if b.learned), branches[0])
        return next((b for b in branches if name in b.settings), None)

    @property
    def descriptor(self) -> Kind:
        """What there is to know of its kind."""
        return kinds.find(self.kind)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What can be set: of its kind, or of the branches that are written out."""
        if self.kind == WRITTEN_OUT.name:
            merged = {p.name: p for branch in (self.basal, self.apical) for p in branch.parameters}
            return tuple(merged.values())
        return self.descriptor.parameters

    @property
    def learned(self) -> tuple[str, ...]:
        """The settings that are learned."""
        if self.kind == WRITTEN_OUT.name:
            return tuple(dict.fromkeys((*self.basal.learned, *self.apical.learned)))
        return tuple(p.name for p in self.descriptor.parameters if self.settings[p.name] == LEARN)

    @property
    def label(self) -> str:
        """What tables call it."""
        return kinds.label(str(self))

    @property
    def pyramidal(self) -> bool:
        """True where the neuron has a basal and an apical branch."""
        return self.descriptor.pyramidal

    @property
    def basal(self) -> "Unit":
        """The standard unit of the basal branch; a standard unit is its own."""
        return self._branch(0) if self.pyramidal else self

    @property
    def apical(self) -> "Unit":
        """The standard unit of the apical branch; only pyramidal units have one."""
        if self.pyramidal:
            return self._branch(1)
        raise InvalidArgumentError(f"unit {str(self)!r} is standard and has no apical branch: ask unit.pyramidal first")

    def _branch(self, which: int) -> "Unit":
        kind = self.descriptor
        if kind.branches is None:
            return self.settings[_BRANCHES[which]]  # type: ignore[no-any-return]
        text = kind.branches[which]
        wanted = set(kinds.open_parameters(text))
        own = {key: value for key, value in self.settings.items() if key.removesuffix("_init") in wanted}
        branch = Unit.parse(text).with_(**own)
        return branch.with_(scope=self.scope) if branch.learned else branch

    def layers(self) -> "Layers":
        """The factory of one network's neurons: ask it for every layer, so that a network-wide alpha is shared."""
        from apical.nn.layers import Layers  # noqa: PLC0415  torch

        return Layers(self.basal, self.apical) if self.pyramidal else Layers(self)

    def _shown(self) -> dict[str, Any]:
        """The settings that are not at their defaults."""
        defaults = {p.name: p.default for p in self.descriptor.parameters} | {"scope": self.descriptor.scope}
        return {key: value for key, value in self.settings.items() if key not in defaults or value != defaults[key]}


def _rebuilt(kind: str, settings: dict[str, Any]) -> Unit:
    if ":" in kind:
        trust.grant(kind)  # who unpickles trusts what is in it
    return Unit(kind, settings=settings)


def _completed(kind: Kind, given: dict[str, Any]) -> dict[str, Any]:
    """All settings of a standard or named pyramidal unit, checked, those not given at their defaults."""
    values = {p.name: p.check(given.get(p.name, p.default)) for p in kind.parameters}
    starts = {f"{p.name}_init": p for p in kind.parameters if values[p.name] == LEARN}
    learned = [*starts]
    for key, value in given.items():
        if key in values or key in starts or (key == "scope" and (learned or value in (kind.scope, "network"))):
            continue
        raise InvalidArgumentError(_refusal(kind, key, [*values, *learned, *(["scope"] if learned else [])]))
    scope = given.get("scope", kind.scope) if learned else kind.scope
    if scope not in SCOPES:
        raise InvalidArgumentError(f"scope is {scope!r}, but must be one of {', '.join(SCOPES)}")
    if kind.conflict is not None and (fault := kind.conflict(values)):
        raise InvalidArgumentError(f"unit {kind.name!r}: {fault}")
    own = {key: p.check(given[key], key) for key, p in starts.items() if key in given}
    return {**values, "scope": scope, **own}


def _refusal(kind: Kind, key: str, allowed: list[str]) -> str:
    learnable = [p.name for p in kind.parameters if p.learnable]
    base = key.removesuffix("_init")
    if (key == "scope" and learnable) or (base != key and base in learnable):
        wanted = learnable[0] if key == "scope" else base
        return f"unit {kind.name!r} has {key}= but learns nothing: add {wanted}={LEARN!r}, or leave {key} out"
    return f"unit {kind.name!r}: {unknown('setting', key, allowed)}"


def _written_out(given: dict[str, Any]) -> dict[str, Any]:
    """The two units of `pyramidal(basal=..., apical=...)`, with the settings that are given beside them."""
    missing = [branch for branch in _BRANCHES if branch not in given]
    if missing:
        raise InvalidArgumentError(
            f"unit 'pyramidal' has no {' and no '.join(missing)}: write e.g. pyramidal(basal=relu,apical=ada)"
        )
    units = {branch: Unit.of(given[branch]) for branch in _BRANCHES}
    for branch, unit in units.items():
        if unit.pyramidal:
            raise InvalidArgumentError(f"the {branch} branch is {str(unit)!r}, but must be a standard unit")
    beside = {key: value for key, value in given.items() if key not in _BRANCHES}
    scope = beside.pop("scope", None)
    for branch in ("apical", "basal"):
        unit = units[branch]
        own = {key: beside[key] for key in [*beside] if key.removesuffix("_init") in unit.settings}
        units[branch] = unit.with_(**own)
        if scope is not None and (units[branch].learned or not any(unit.learned for unit in units.values())):
            units[branch] = units[branch].with_(scope=scope)
        beside = {key: value for key, value in beside.items() if key not in own}
    if beside:
        allowed = dict.fromkeys((*units["apical"].settings, *units["basal"].settings))
        raise InvalidArgumentError(f"unit 'pyramidal': {unknown('setting', next(iter(beside)), allowed)}")
    return units
