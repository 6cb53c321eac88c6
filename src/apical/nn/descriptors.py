"""What there is to know of a kind of unit, in one place and free of torch: `Kind` and its `Parameter`s."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import Any, Literal

from apical.errors import DtypeError, InvalidArgumentError

Scope = Literal["network", "layer", "channel"]
Form = Literal["module", "activation", "function"]
Stack = Literal["fused", "values", "module", "branches"]
Settings = Mapping[str, Any]

SCOPES: tuple[Scope, ...] = ("network", "layer", "channel")
LEARN = "learn"


@dataclass(frozen=True)
class Parameter:
    """A setting of a kind: its default, what is allowed, whether training may find it, what a study tries.

    `above`, `minimum` and `maximum` bound a number; `choices` makes it one of several words instead. Where it is
    `learnable`, "learn" is allowed too, and training begins at `start` (None: at the default). `tune` holds the values
    that a study tries where its file names none (None: only those that the file names). `argument` is what the
    activation calls it, where that is another name.
    """

    default: float | str
    _: KW_ONLY
    name: str = ""
    above: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    learnable: bool = False
    start: float | None = None
    tune: tuple[float | str, ...] | None = None
    argument: str = ""

    def check(self, value: Any, name: str = "") -> float | str:
        """The value as a unit keeps it, or the sentence that says what is allowed; `name` stands in that sentence."""
        name = name or self.name
        if isinstance(value, str):
            return self._word(value, name)
        if self.choices:
            raise InvalidArgumentError(f"{name} is {value!r}, but must be one of {', '.join(self.choices)}")
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise DtypeError(f"{name} is {value!r}, but must be a number") from None
        low, high = self.minimum, self.maximum
        fits = (self.above is None or number > self.above) and (low is None or number >= low)
        if not isfinite(number) or not fits or (high is not None and number > high):
            raise InvalidArgumentError(f"{name} is {number}, but must {self.allowed}")
        return number

    def _word(self, value: str, name: str) -> str:
        if value in self.choices or (value == LEARN and self.learnable and name == self.name):
            return value
        if self.choices:
            raise InvalidArgumentError(f"{name} is {value!r}, but must be one of {', '.join(self.choices)}")
        also = f" or {LEARN!r}" if self.learnable and name == self.name else ""
        raise InvalidArgumentError(f"{name} is {value!r}, but must be a number{also}")

    @property
    def allowed(self) -> str:
        """In words, after "must": "be greater than 0 and finite", "lie in [0, 1]"."""
        if self.choices:
            return f"be one of {', '.join(self.choices)}"
        if self.minimum is not None and self.maximum is not None:
            return f"lie in [{self.minimum:g}, {self.maximum:g}]"
        low = f"greater than {self.above:g} and " if self.above is not None else ""
        low += f"at least {self.minimum:g} and " if self.minimum is not None else ""
        high = f"at most {self.maximum:g} and " if self.maximum is not None else ""
        return f"be {low}{high}finite"


@dataclass(frozen=True)
class Kind:
    """A kind of unit. `label` and `color` (on light and on dark pages; None: one is picked) are what reports show.

    `build` makes the activation: "module:name", so that reading this imports nothing, or the thing itself. `form` says
    how it is called: a "module" with the settings as keywords, an "activation" with `learnable`, `num_parameters` and
    `dim` too, a "function" as f(x, **settings). `scope` is what shares a learned value where the unit does not say.

    `stack` says how trials of the kind are computed as one stack: by the "fused" kernel of ADA with values for each
    channel; by a function with "values" for each channel; by one "module" for all trials of equal settings; a pyramidal
    kind by the stacks of its "branches"; None: not at all.

    `branches` are the units of the basal and the apical branch of a pyramidal kind. `group` is where tables put it.
    `conflict` says what is wrong with settings that are right one by one.
    """

    name: str
    label: str = ""
    color: tuple[str, str] | None = None
    parameters: tuple[Parameter, ...] = ()
    build: str | Callable[..., Any] | None = None
    form: Form = "module"
    stack: Stack | None = None
    scope: Scope = "network"
    group: str = "standard"
    branches: tuple[str, str] | None = None
    aliases: tuple[str, ...] = ()
    conflict: Callable[[Settings], str | None] | None = None

    @property
    def pyramidal(self) -> bool:
        """True where it has a basal and an apical branch."""
        return self.group == "pyramidal"

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return tuple(p.name for p in self.parameters)

    @property
    def learns(self) -> str | None:
        """The parameter that is learned unless the unit says otherwise."""
        return next((p.name for p in self.parameters if p.default == LEARN), None)

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of that name, if it has one."""
        return next((p for p in self.parameters if p.name == name), None)
