"""`convert(model, unit)`: a Keras model with every activation replaced by a unit of apical."""

from collections.abc import Sequence
from typing import Any

import keras

from apical.errors import ConversionError
from apical.keras import graph
from apical.keras.plan import ConversionPlan, Filter
from apical.keras.report import Change, ConversionReport
from apical.keras.unit import parse
from apical.nn.unit import Unit

HIDDEN_KINDS = (
    "relu", "relu6", "leaky_relu", "prelu", "elu", "celu", "selu", "gelu", "silu", "hard_silu", "mish",
    "ada", "leaky_ada", "rbf", "swish",
)  # fmt: skip
"""What `convert` replaces unless told otherwise: the activations of hidden layers, not gates and outputs."""


def convert(
    model: Any,
    unit: str | Unit,
    *,
    filter_fn: Filter | None = None,
    kinds: Sequence[str] = HIDDEN_KINDS,
    keep_function: bool = False,
) -> ConversionReport:
    """A copy of a functional or sequential model in which `unit` stands for every activation; weights are copied.

    A pyramidal unit also takes the Dense, Conv1D or Conv2D layer that feeds the activation, with a norm between them:
    the original weights become the basal branch. Where a residual sum stands between them, a second such layer is the
    apical branch, added behind the activation. `kinds` names what is replaced, `filter_fn(name, layer)` may spare
    some. With `keep_function` the apical branch starts at zero, so that the outputs stay the same.
    """
    if not graph.is_model(model) or not (isinstance(model, keras.Sequential) or hasattr(model, "_nodes_by_depth")):
        raise ConversionError(
            f"convert needs a functional or sequential model, got {type(model).__name__}: "
            "a model written as a class hides its calls, so put layers of apical.keras into its code"
        )
    wanted = parse(unit)
    every: Filter = lambda _name, _layer: True  # noqa: E731
    plan = ConversionPlan(list(graph.members(model)), wanted, filter_fn or every, tuple(kinds), keep_function)
    if not any(row.converted for row in plan.rows):
        raise ConversionError(_nothing(model, wanted, plan.rows))
    call = plan.call if plan.sides else None  # clone_model refuses it for sequential models, which have no sums
    copy = keras.models.clone_model(model, clone_function=plan.clone, call_function=call, recursive=True)
    plan.copy_weights()
    return ConversionReport(copy, str(wanted), plan.rows)


def _nothing(model: Any, unit: Unit, rows: list[Change]) -> str:
    """Why nothing was converted, and the call that would."""
    other = sorted({f"{row.name}: {row.reason}" for row in rows if not row.reason.endswith("to convert")})
    if rows and not other:
        names = ", ".join(repr(name) for name in sorted({row.before for row in rows}))
        return (
            f"nothing in {model.name!r} was converted, because it applies only {names}: "
            f"name what to replace, e.g. convert(model, {str(unit)!r}, kinds=[{names}])"
        )
    return (
        f"nothing in {model.name!r} was converted ({'; '.join(other) or 'it has no activations'}): "
        "give a model with hidden activations, e.g. Dense(10, activation='relu'), or a filter_fn that excludes less"
    )
