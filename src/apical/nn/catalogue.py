"""The kinds of units that come with apical: those of the paper, and torch's activations. Free of torch."""

from dataclasses import replace

from apical.nn.descriptors import LEARN, Kind, Parameter, Settings, Stack

ALPHA = Parameter(1.0, above=0.0, learnable=True)
LEAK = Parameter(0.01, minimum=0.0, maximum=1.0)


def named(**parameters: Parameter | float | str) -> tuple[Parameter, ...]:
    """Parameters by name, in that order; a number or a word is a default without conditions."""
    return tuple(
        replace(p, name=name) if isinstance(p, Parameter) else Parameter(p, name=name) for name, p in parameters.items()
    )


def pyramidal(
    name: str,
    basal: Kind,
    apical: Kind,
    *,
    branches: tuple[str, str] | None = None,
    label: str = "",
    color: tuple[str, str] | None = None,
) -> Kind:
    """A pyramidal kind of two standard ones; a parameter that both have is one, with the apical branch's default.

    `branches` are their units, where these fix some of the settings.
    """
    merged = {p.name: p for p in (*basal.parameters, *apical.parameters)}
    return Kind(
        name=name,
        label=label or name,
        color=color,
        parameters=tuple(merged[key] for key in sorted(merged)),
        stack="branches" if basal.stack and apical.stack else None,
        scope=apical.scope if apical.learns or not basal.learns else basal.scope,
        group="pyramidal",
        branches=branches or (basal.name, apical.name),
    )


_STANDARD = (
    Kind("relu", "ReLU", ("#3f74b3", "#6fa3e0"), build="torch.nn:ReLU", stack="module"),
    Kind(
        "leaky_relu", "leaky ReLU", ("#5b8fc9", "#a9cbf2"), named(leak=replace(LEAK, argument="negative_slope")),
        build="torch.nn:LeakyReLU", stack="module", group="leaky",
    ),
    Kind("tanh", "tanh", ("#7d7a2e", "#c2c26a"), build="torch.nn:Tanh", stack="module"),
    Kind(
        "rbf", "RBF", ("#8e5ea8", "#c09adb"), named(s=Parameter(1.0, above=0.0, learnable=True)),
        build="apical.nn.activations:RBF", form="activation", stack="values",
    ),
    Kind(
        "swish", "Swish", ("#2a8c82", "#4fc0b5"), named(beta=Parameter(LEARN, learnable=True, start=1.0)),
        build="apical.nn.activations:Swish", form="activation", stack="values",
    ),
    Kind(
        "ada", "ADA", ("#d1452b", "#ff8066"), named(alpha=ALPHA, c=0.0),
        build="apical.nn.activations:ADA", form="activation", stack="fused",
    ),
    Kind(
        "leaky_ada", "leaky ADA", ("#c97a12", "#f7b267"), named(alpha=ALPHA, c=0.0, leak=LEAK),
        build="apical.nn.activations:LeakyADA", form="activation", stack="fused", group="leaky",
    ),
)  # fmt: skip
_BY_NAME = {kind.name: kind for kind in _STANDARD}
_PYRAMIDAL = tuple(
    pyramidal(name, _BY_NAME[basal], _BY_NAME[apical], label=label, color=color)
    for name, label, color, basal, apical in (
        ("pynrelu", "PyNReLU", ("#1d3f73", "#4d86f0"), "relu", "relu"),
        ("pynrbf", "PyNRBF", ("#54306b", "#9a6ed6"), "relu", "rbf"),
        ("pynswish", "PyNSwish", ("#14544e", "#2fa57c"), "relu", "swish"),
        ("pynada", "PyNADA", ("#8f1d3f", "#f2608c"), "relu", "ada"),
        ("leaky_pynada", "leaky PyNADA", ("#7a4a10", "#c98a45"), "leaky_relu", "leaky_ada"),
    )
)
PAPER: dict[str, Kind] = {kind.name: kind for kind in (*_STANDARD, *_PYRAMIDAL)}
"""The paper's kinds; nobody can redefine them."""

WRITTEN_OUT = Kind("pyramidal", "pyramidal", group="pyramidal")
"""`pyramidal(basal=..., apical=...)`: its settings are two units."""


def _ordered(low: str, high: str, settings: Settings) -> str | None:
    if settings[low] > settings[high]:
        return f"{low} is {settings[low]}, but must not be above {high}, which is {settings[high]}"
    return None


def _torch(
    name: str,
    attribute: str,
    color: tuple[str, str] | None = None,
    *,
    stack: Stack | None = "module",
    **parameters: Parameter | float | str,
) -> Kind:
    return Kind(name, attribute, color, named(**parameters), build=f"torch.nn:{attribute}", stack=stack)


OTHERS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        _torch("gelu", "GELU", ("#3a8f2f", "#86d678"), approximate=Parameter("none", choices=("none", "tanh"))),
        _torch("silu", "SiLU", ("#b547b0", "#f08fec")),
        _torch("mish", "Mish", ("#6450d6", "#a79bff")),
        _torch("elu", "ELU", ("#8d6552", "#cfa692"), alpha=1.0),
        _torch("celu", "CELU", alpha=Parameter(1.0, above=0.0)),
        _torch("selu", "SELU", ("#cf4f86", "#ff9cc4")),
        Kind(
            "prelu", "PReLU", ("#4b5d57", "#9fb5ad"), named(weight=Parameter(LEARN, learnable=True, start=0.25)),
            build="apical.nn.elementwise:prelu", form="function", stack="values", scope="layer", aliases=("PReLU",),
        ),
        replace(
            _torch("rrelu", "RReLU", stack=None, lower=1 / 8, upper=1 / 3),  # draws anew in every call while training
            conflict=lambda settings: _ordered("lower", "upper", settings),
        ),
        _torch("relu6", "ReLU6"),
        replace(
            _torch("hardtanh", "Hardtanh", min_val=-1.0, max_val=1.0),
            conflict=lambda settings: _ordered("min_val", "max_val", settings),
        ),
        _torch("hardswish", "Hardswish"),
        _torch("hardsigmoid", "Hardsigmoid"),
        _torch("sigmoid", "Sigmoid"),
        _torch("logsigmoid", "LogSigmoid"),
        _torch("softplus", "Softplus", beta=Parameter(1.0, above=0.0), threshold=20.0),
        _torch("softsign", "Softsign"),
        _torch("softshrink", "Softshrink", lambd=Parameter(0.5, minimum=0.0)),
        _torch("hardshrink", "Hardshrink", lambd=Parameter(0.5, minimum=0.0)),
        _torch("tanhshrink", "Tanhshrink"),
        _torch("threshold", "Threshold", threshold=0.0, value=0.0),
        Kind("gcu", "GCU", build="apical.nn.elementwise:gcu", form="function", stack="values"),
        Kind("gaussian", "Gaussian", build="apical.nn.elementwise:gaussian", form="function", stack="values"),
        Kind(
            "sine", "sine", parameters=named(omega=Parameter(1.0, learnable=True)),
            build="apical.nn.elementwise:sine", form="function", stack="values",
        ),
    )
}  # fmt: skip
"""Torch's activations by their names there, and some others that papers compare with; a user may redefine them."""
