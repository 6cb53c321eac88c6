"""The activations as functions on `keras.ops`. Stateless; the formulas of `apical.functional`, for every backend.

`alpha`, `c`, `s` and `beta` are numbers, or tensors of one value or one value per channel along `axis`.
The output has the dtype of the input; half types compute in float32 inside.
"""

from math import isfinite, prod
from typing import Any

import keras
import numpy as np
from keras import ops

from apical.errors import DtypeError, InvalidArgumentError

PACKAGE = "apical"
"""The name under which Keras stores our objects in its files."""

# Where e^(c - alpha*x) has long been zero, x is held here: neither inf nor x * gradient can turn that zero into NaN.
_FLAT = {"float32": 1e16, "float64": 1e150}


@keras.saving.register_keras_serializable(PACKAGE)
def ada(x: Any, alpha: Any = 1.0, c: Any = 0.0, leak: float = 0.0, *, axis: int = -1) -> Any:
    """Apical dendrite activation: leak*min(0,x) + max(0,x)*exp(c - alpha*max(0,x)), Eqs. 3 and 6 of the paper.

    The derivative at 0 is the right-hand one, e^c.
    """
    check_leak(leak)
    value, dtype = wide("ada", x)
    alpha = parameter("alpha", alpha, value, axis, positive=True)
    c = parameter("c", c, value, axis)
    flat = _FLAT[keras.backend.standardize_dtype(value.dtype)]
    # `where` and not `maximum`: derivative 1 at 0, and NaN stays NaN under every compiler.
    p = ops.where(value < 0, ops.zeros_like(value), ops.where(value > flat, ops.full_like(value, flat), value))
    y = p * ops.exp(c - alpha * p)
    if leak:
        y = y + ops.where(value < 0, leak * value, ops.zeros_like(value))
    return ops.cast(y, dtype)


@keras.saving.register_keras_serializable(PACKAGE)
def leaky_ada(x: Any, alpha: Any = 1.0, c: Any = 0.0, leak: float = 0.01, *, axis: int = -1) -> Any:
    """Leaky apical dendrite activation, Eq. 6 of the paper: `ada` with a slope of `leak` below zero."""
    return ada(x, alpha, c, leak, axis=axis)


@keras.saving.register_keras_serializable(PACKAGE)
def rbf(x: Any, s: Any = 1.0, *, axis: int = -1) -> Any:
    """Gaussian radial basis function: exp(-x^2 / s)."""
    value, dtype = wide("rbf", x)
    s = parameter("s", s, value, axis, positive=True)
    flat = _FLAT[keras.backend.standardize_dtype(value.dtype)]
    value = ops.where(ops.abs(value) > flat, ops.full_like(value, flat), value)
    return ops.cast(ops.exp(-(value * value) / s), dtype)


@keras.saving.register_keras_serializable(PACKAGE)
def swish(x: Any, beta: Any = 1.0, *, axis: int = -1) -> Any:
    """Swish: x * sigmoid(beta * x)."""
    value, dtype = wide("swish", x)
    beta = parameter("beta", beta, value, axis)
    return ops.cast(value * ops.sigmoid(beta * value), dtype)


def register() -> None:
    """Let Keras layers take our activations by name, e.g. `keras.layers.Dense(10, activation="ada")`.

    `"swish"` is a name of Keras' own for the same function (beta = 1) and stays as it is.
    """
    # keras.activations.get looks names up in this table alone; Keras has no public way to add one.
    from keras.src.activations import ALL_OBJECTS_DICT  # noqa: PLC0415

    ALL_OBJECTS_DICT.update(ada=ada, leaky_ada=leaky_ada, rbf=rbf)


def wide(name: str, x: Any) -> tuple[Any, str]:
    """`x` as a tensor of the dtype that the formulas compute in (float32 for half types), and its own dtype."""
    x = ops.convert_to_tensor(x)
    dtype = keras.backend.standardize_dtype(x.dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise DtypeError(
            f"{name} needs floating-point numbers, got {dtype}: convert them first, e.g. ops.cast(x, 'float32')"
        )
    return (x if dtype in _FLAT else ops.cast(x, "float32")), dtype


def parameter(name: str, value: Any, x: Any, axis: int, *, positive: bool = False) -> Any:
    """A number, checked; or a tensor in the dtype of `x`, shaped so that its values meet the channels of `x`.

    The values of arrays are checked, those of tensors are not: that would stop a compiler, or wait for a device.
    """
    if not hasattr(value, "shape") or not value.shape:
        return value if hasattr(value, "shape") and not is_array(value) else number(name, value, positive=positive)
    if is_array(value) and value.size:
        number(f"the smallest {name}", value.min(), positive=positive)
        number(f"the largest {name}", value.max(), positive=positive)
    value = ops.cast(value, x.dtype)
    if prod(value.shape) == 1:
        return ops.reshape(value, ())
    check_channels(name, tuple(value.shape), x, axis)
    shape = [1] * len(x.shape)
    shape[axis] = value.shape[0]
    return ops.reshape(value, shape)


def is_array(value: Any) -> bool:
    """True for what numpy holds, whose values can be looked at."""
    return isinstance(value, np.ndarray | np.generic)


def number(name: str, value: Any, *, positive: bool = False) -> float:
    """`value` as a finite float, above 0 with `positive`, or the sentence that says why not."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise DtypeError(f"{name} is {value!r}, but must be a number or a tensor of numbers") from None
    if not isfinite(found) or (positive and found <= 0):
        raise InvalidArgumentError(f"{name} is {found}, but must be {'greater than 0 and ' if positive else ''}finite")
    return found


def check_leak(leak: float) -> None:
    """Refuse a leak outside [0, 1]."""
    if not 0.0 <= number("leak", leak) <= 1.0:
        raise InvalidArgumentError(f"leak is {leak}, but must lie in [0, 1]: 0 gives ADA, 0.01 the paper's leaky ADA")


def check_channels(name: str, shape: tuple[int, ...], x: Any, axis: int) -> None:
    """Refuse a per-channel parameter whose length is not the size of `x` along `axis`."""
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise InvalidArgumentError(
            f"{name} has {shape} values for axis {axis}, but the input has only {rank} axes: "
            f"give one value, or an axis between {-rank} and {rank - 1}"
        )
    if len(shape) != 1 or (x.shape[axis] is not None and shape[0] != x.shape[axis]):
        raise InvalidArgumentError(
            f"{name} has shape {shape}, but axis {axis} of the input has size {x.shape[axis]}: "
            f"give one value, or {x.shape[axis]} in one row"
        )
