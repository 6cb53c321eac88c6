"""Unit: the one vocabulary for "which neuron"."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from apical.errors import InvalidArgumentError
from apical.nn import kinds
from apical.nn.layers import Layers

Scope = Literal["network", "layer", "channel"]


@dataclass(frozen=True)
class Unit:
    """A neuron: its kind and the settings of its activation.

    `alpha="learn"` learns alpha from `alpha_init` on (None: from where the network says, or 1), and `scope` says what
    shares one value: the whole network, a layer, or a channel; `swish` and `pynswish` learn their beta so, from 1 on.
    Settings a kind does not have are None.

    Examples:
        >>> Unit.parse("pynada(alpha=0.3,c=1)") == Unit("pynada", alpha=0.3, c=1)
        True
    """

    kind: str
    alpha: float | Literal["learn"] | None = None
    c: float | None = None
    leak: float | None = None
    scope: Scope = "network"
    alpha_init: float | None = None

    def __post_init__(self) -> None:
        settings = kinds.complete(self.kind, self.settings)
        for field in fields(self)[1:]:
            object.__setattr__(self, field.name, settings.get(field.name))

    @classmethod
    def parse(cls, text: "str | Unit") -> "Unit":
        """The unit that `text` describes, as `str(unit)` writes it; a Unit is returned as it is."""
        if isinstance(text, Unit):
            return text
        if not isinstance(text, str):
            raise InvalidArgumentError(f"{text!r} is no unit: give its kind, e.g. 'relu' or 'pynada(alpha=0.3,c=1)'")
        kind, settings = kinds.parse(text)
        return cls(kind, **settings)

    def __str__(self) -> str:
        return kinds.write(self.kind, self.settings)

    @staticmethod
    def kinds() -> tuple[str, ...]:
        """The names of all kinds, registered ones included."""
        return kinds.names()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name; None for those that the kind does not have."""
        return {field.name: getattr(self, field.name) for field in fields(self)[1:]}

    @property
    def pyramidal(self) -> bool:
        """True where the neuron has a basal and an apical branch."""
        return isinstance(kinds.find(self.kind), kinds.Pyramidal)

    @property
    def basal(self) -> "Unit":
        """The standard unit of the basal branch; a standard unit is its own."""
        kind = kinds.find(self.kind)
        return self._branch(kind.basal) if isinstance(kind, kinds.Pyramidal) else self

    @property
    def apical(self) -> "Unit":
        """The standard unit of the apical branch; only pyramidal units have one."""
        kind = kinds.find(self.kind)
        if isinstance(kind, kinds.Pyramidal):
            return self._branch(kind.apical)
        raise InvalidArgumentError(f"unit {str(self)!r} is standard and has no apical branch: ask unit.pyramidal first")

    def _branch(self, name: str) -> "Unit":
        kind = kinds.find(name)
        own = {key: value for key, value in self.settings.items() if key in kind.settings}
        if own.get("alpha") == "learn":
            own |= {"alpha_init": self.alpha_init, "scope": self.scope}
        elif kind.learns:
            own |= {"scope": self.scope}
        return Unit(name, **own)

    def layers(self) -> Layers:
        """The factory of one network's neurons: ask it for every layer, so that a network-wide alpha is shared."""
        if self.pyramidal:
            return Layers(str(self.basal), str(self.apical))
        return Layers(str(self))
