"""Activation modules: ADA, LeakyADA, RBF, Swish, Dendrite."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Literal

import torch
from torch import Tensor, nn

from apical import functional
from apical.errors import DtypeError, InvalidArgumentError
from apical.functional import check_number
from apical.kernels import eager

FLOOR = 1e-4
"""A learned alpha works as if it were at least this, so that it stays positive and can come back."""


def lowest(floor: str) -> float:
    """What a learned value is held at from below: FLOOR where that is "on", nothing where it is "off"."""
    if floor not in ("on", "off"):
        raise InvalidArgumentError(f"floor is {floor!r}, but must be one of on, off")
    return FLOOR if floor == "on" else -inf


NOISE_IN = ("alpha", "input", "output", "mask")
"""Where ADA's noise may be."""


class Activation(nn.Module):
    """An activation with named settings and, where asked, one learned parameter of shape `(num_parameters,)`.

    `learned` names that parameter. `repr` shows the constructor call.
    """

    learned: str | None = None

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = settings

    def _register(
        self,
        name: str,
        value: float,
        learnable: bool,
        num_parameters: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        if num_parameters < 1:
            raise InvalidArgumentError(
                f"num_parameters is {num_parameters}, but must be 1 (one {name} for all) or the number of channels"
            )
        if num_parameters > 1 and not learnable:
            raise InvalidArgumentError(
                f"num_parameters is {num_parameters}, but a fixed {name} is one number: "
                "add learnable=True, or leave num_parameters out"
            )
        if learnable:
            start = torch.full((num_parameters,), value, device=device, dtype=dtype)
            self.register_parameter(name, nn.Parameter(start))
        else:
            setattr(self, name, value)

    def reset_parameters(self) -> None:
        """Put what is learned back to its start."""
        for name, parameter in self._parameters.items():
            nn.init.constant_(parameter, self._settings[name])  # type: ignore[arg-type]

    def compute(self, x: Tensor, dim: int, **values: Any) -> Tensor:
        """The activation of `x` with these settings, each a number or a tensor with one value per channel along `dim`.

        With the module's own settings this is `forward`; the stacked trainer gives those of many networks.
        """
        raise NotImplementedError(f"{type(self).__name__} has no settings that differ between channels")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._settings.items())


class ADA(Activation):
    """Apical dendrite activation `max(0,x)*exp(c - alpha*x)`, Eq. 3 of the paper.

    With `learnable`, alpha is a Parameter of shape `(num_parameters,)`: one value, or one per channel along `dim`
    (1 after convolutions, -1 after Linear); it works as if it were at least 1e-4 unless `floor` is "off". `inplace` is
    accepted and ignored, so that ADA drops in for ReLU.

    While training, `noise` is the deviation of Gaussian noise g, drawn for each value by torch's generator, in one of
    four places: on "alpha", alpha * exp(noise*g - noise^2/2), of mean alpha; on the "input", x + noise*g; on the
    "output", y * (1 + noise*g), which is Gaussian dropout; or as a "mask", dropout with the same variance, which keeps
    a value with a probability of 1/(1 + noise^2). In evaluation mode there is none.
    """

    learned = "alpha"
    alpha: float | nn.Parameter

    def __init__(
        self,
        inplace: bool = False,
        *,
        alpha: float = 1.0,
        c: float = 0.0,
        floor: Literal["on", "off"] = "on",
        noise: float = 0.0,
        noise_in: Literal["alpha", "input", "output", "mask"] = "alpha",
        learnable: bool = False,
        num_parameters: int = 1,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_inplace(type(self), inplace)
        alpha, c = check_number("alpha", alpha, above=0.0), check_number("c", c)
        off: dict[str, Any] = {"floor": floor} if floor == "off" else {}
        if noise_in not in NOISE_IN:
            raise InvalidArgumentError(f"noise_in is {noise_in!r}, but must be one of {', '.join(NOISE_IN)}")
        if check_number("noise", noise) < 0:
            raise InvalidArgumentError(f"noise is {noise}, but must be at least 0 and finite")
        off |= {"noise": noise, "noise_in": noise_in} if noise else {}
        super().__init__(alpha=alpha, c=c, **off, learnable=learnable, num_parameters=num_parameters, dim=dim)
        self.c, self.leak, self.floor, self.dim = c, 0.0, floor, dim
        self.noise, self.noise_in = float(noise), noise_in
        self.lowest = lowest(floor)
        self._operation = eager.Ada(floor=self.lowest if learnable else 0.0, dim=dim)
        self._register("alpha", alpha, learnable, num_parameters, device, dtype)

    @property
    def effective_alpha(self) -> Tensor:
        """The value of alpha that `forward` uses, floor applied."""
        return torch.as_tensor(self.alpha).detach().reshape(-1).clamp_min(self.lowest)

    def forward(self, input: Tensor) -> Tensor:
        alpha = self.alpha
        if isinstance(alpha, Tensor) and alpha.numel() > 1:
            functional.check_channels("alpha", alpha, input, self.dim)
        if self.noise and self.training:
            return self._noisy(input)
        return eager.run(self._operation, input, alpha, self.c)

    def _noisy(self, x: Tensor) -> Tensor:
        """The activation with noise; m * alpha at x is what alpha is at m * x, over m, so that one kernel serves."""

        def clean(z: Tensor) -> Tensor:
            return eager.run(self._operation, z, self.alpha, self.c)

        if self.noise_in == "mask":
            return nn.functional.dropout(clean(x), 1 - 1 / (1 + self.noise**2))
        g = self.noise * torch.randn_like(x)
        if self.noise_in == "input":
            return clean(x + g)
        if self.noise_in == "output":
            return clean(x) * (1 + g)
        m = torch.exp(g - self.noise**2 / 2)
        return clean(x * m) / m


class LeakyADA(ADA):
    """Leaky apical dendrite activation, Eq. 6 of the paper: ADA with a slope of `leak` below zero."""

    def __init__(self, inplace: bool = False, *, leak: float = 0.01, **settings: Any) -> None:
        functional.check_leak("leak", leak)
        super().__init__(inplace, **settings)
        self.leak = float(leak)
        self._operation = self._operation._replace(leak=self.leak)
        self._settings = {"leak": self.leak, **self._settings}


class RBF(Activation):
    """Gaussian radial basis function exp(-x^2 / s), with s fixed, or learned from there on.

    A learned s works as if it were at least 1e-4, unless `floor` is "off".
    """

    learned = "s"
    s: float | nn.Parameter

    def __init__(
        self,
        inplace: bool = False,
        *,
        s: float = 1.0,
        floor: Literal["on", "off"] = "on",
        learnable: bool = False,
        num_parameters: int = 1,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_inplace(type(self), inplace)
        s = check_number("s", s, above=0.0)
        lowest(floor)
        off = {"floor": floor} if floor == "off" else {}
        super().__init__(s=s, **off, **_if_learned(learnable, num_parameters, dim))
        self.floor, self.dim = floor, dim
        self._register("s", s, learnable, num_parameters, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return self.compute(input, self.dim, s=self.s, floor=self.floor)

    def compute(self, x: Tensor, dim: int, **values: Any) -> Tensor:
        if values.get("floor") == "off":
            return eager.rbf(x, values["s"], dim)
        return functional.rbf(x, eager.above(values["s"], FLOOR), dim=dim)


class Swish(Activation):
    """Swish `x * sigmoid(beta * x)`, with beta learned from its start value unless `learnable=False`."""

    learned = "beta"
    beta: float | nn.Parameter

    def __init__(
        self,
        inplace: bool = False,
        *,
        beta: float = 1.0,
        learnable: bool = True,
        num_parameters: int = 1,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_inplace(type(self), inplace)
        beta = check_number("beta", beta)
        super().__init__(beta=beta, learnable=learnable, num_parameters=num_parameters, dim=dim)
        self.dim = dim
        self._register("beta", beta, learnable, num_parameters, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return functional.swish(input, self.beta, dim=self.dim)

    def compute(self, x: Tensor, dim: int, **values: Any) -> Tensor:
        return eager.swish(x, values["beta"], dim)


class Dendrite(Activation):
    """The activation observed in human dendrites, Eq. 2 of the paper; for plots and comparison."""

    def __init__(self, inplace: bool = False) -> None:
        check_inplace(type(self), inplace)
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return functional.dendrite(input)


class Shared(nn.Module):
    """An activation whose learned parameter lives in another activation of the same network, its owner.

    The owner is hidden from registration: `state_dict` and `parameters` list the parameter once, under the owner.
    """

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        self._owner = (owner,)

    @property
    def owner(self) -> nn.Module:
        """The activation that holds the parameter."""
        return self._owner[0]

    def forward(self, input: Tensor) -> Tensor:
        return self._owner[0](input)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"with {self.owner}"


def check_inplace(activation: type[nn.Module], inplace: Any) -> None:
    """`inplace` may come first, as in `nn.ReLU(True)`, and does nothing; a number there is a mistake."""
    if not isinstance(inplace, bool):
        raise DtypeError(
            f"{activation.__name__}({inplace!r}) is ambiguous: the only positional argument is inplace, True or False; "
            "give settings by name, e.g. ADA(alpha=0.3)"
        )


def _if_learned(learnable: bool, num_parameters: int, dim: int) -> dict[str, Any]:
    """What `repr` shows of an activation whose setting is learned."""
    return {"learnable": learnable, "num_parameters": num_parameters, "dim": dim} if learnable else {}


def no_weight_decay(model: nn.Module, *, weight_decay: float | None = None) -> list[dict[str, Any]]:
    """Two parameter groups for an optimiser: all others, and what shapes an activation, which is not decayed.

    Examples:
        >>> torch.optim.AdamW(no_weight_decay(nn.Sequential(nn.Linear(2, 2), ADA(learnable=True))), weight_decay=0.1)
    """
    spared: dict[int, nn.Parameter] = {}
    for module in model.modules():
        if isinstance(module, Activation | nn.PReLU):
            spared |= {id(p): p for p in module.parameters()}
        for name in getattr(module, "learned_settings", ()):  # of an activation of somebody's, see `building.make`
            parameter: Any = getattr(module, name)
            spared[id(parameter)] = parameter
    others = [p for p in model.parameters() if id(p) not in spared]
    first: dict[str, Any] = {"params": others}
    if weight_decay is not None:
        first["weight_decay"] = weight_decay
    return [first, {"params": list(spared.values()), "weight_decay": 0.0}]


# A function of a tensor as an activation, its settings fixed or learned; and some such functions.

Value = float | Tensor


class Elementwise(Activation):
    """`function(x, **settings)`. The settings in `learn` are Parameters of shape `(num_parameters,)` that start at the
    value given: one value, or one per channel along `dim`."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        *,
        learn: Sequence[str] = (),
        num_parameters: int = 1,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.function, self.names, self.dim = function, tuple(settings), dim
        self.learned = learn[0] if learn else None
        if num_parameters > 1 and not learn:
            raise InvalidArgumentError(f"num_parameters is {num_parameters}, but nothing is learned: leave it out")
        for name, value in settings.items():
            learned = name in learn
            self._register(name, value, learned, num_parameters if learned else 1, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return self.compute(input, self.dim, **{name: getattr(self, name) for name in self.names})

    def compute(self, x: Tensor, dim: int, **values: Value) -> Tensor:
        return self.function(x, **{name: _fitted(name, value, x, dim) for name, value in values.items()})

    def extra_repr(self) -> str:
        learned = f"learned: {', '.join(self._parameters)}" if self._parameters else ""
        name = getattr(self.function, "__name__", repr(self.function))
        return ", ".join(filter(None, (name, super().extra_repr(), learned)))


def _fitted(name: str, value: Any, x: Tensor, dim: int) -> Any:
    """A learned value in the dtype of `x`, shaped so that it meets the channels along `dim`."""
    if not isinstance(value, Tensor):
        return value
    value = value.to(x.dtype)
    if value.numel() == 1:
        return value.reshape(())
    if isinstance(x, Tensor):
        functional.check_channels(name, value, x, dim)
    after = -1 - dim if dim < 0 else x.dim() - 1 - dim
    return value.reshape(-1, *[1] * after)


def prelu(x: Tensor, weight: Value) -> Tensor:
    """x above 0, weight * x below."""
    return torch.where(x > 0, x, weight * x)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1. Its gradient is 0 everywhere: gradients cannot train what lies in front of it."""
    return torch.sign(x)


def gcu(x: Tensor) -> Tensor:
    """The growing cosine unit x * cos(x)."""
    return x * torch.cos(x)


def gaussian(x: Tensor, sigma: Value = 1.0) -> Tensor:
    """exp(-x^2 / (2 sigma^2)), the bell of deviation sigma."""
    z = x / sigma
    return torch.exp(-0.5 * z * z)


def wavelet(x: Tensor, omega: Value = 5.0, sigma: Value = 1.0) -> Tensor:
    """cos(omega * x) * exp(-x^2 / (2 sigma^2)), the real Gabor wavelet of WIRE (Saragadam et al., 2023)."""
    return torch.cos(omega * x) * gaussian(x, sigma)


def sine(x: Tensor, omega: Value = 1.0) -> Tensor:
    """sin(omega * x)."""
    return torch.sin(omega * x)
