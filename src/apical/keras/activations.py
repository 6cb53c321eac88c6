"""Activation layers: ADA, LeakyADA, RBF, Swish, with fixed or learned parameters."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from apical.errors import InvalidArgumentError
from apical.keras import functional
from apical.keras.functional import PACKAGE, check_leak, number

FLOOR = 1e-4
"""A learned alpha is at least this, so that it stays positive and can come back."""

LEARNED_NAMES = ("ada_alpha", "swish_beta")
"""The names of the weights that shape an activation; `no_weight_decay` knows them by these."""


@keras.saving.register_keras_serializable(PACKAGE)
class AtLeast(keras.constraints.Constraint):  # type: ignore[misc]
    """The constraint w >= floor: after each step of an optimiser, what fell below the floor is put on it."""

    def __init__(self, floor: float = FLOOR) -> None:
        self.floor = floor

    def __call__(self, w: Any) -> Any:
        w = ops.convert_to_tensor(w)
        return ops.maximum(w, ops.cast(self.floor, w.dtype))

    def get_config(self) -> dict[str, Any]:
        return {"floor": self.floor}


class Activation(keras.layers.Layer):  # type: ignore[misc]
    """A layer that keeps the shape of its input, with at most one learned weight.

    With `learnable`, the weight has shape (1,), or with `per_channel` one value for each channel along `axis`.
    """

    def __init__(self, *, learnable: bool, per_channel: bool, axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if per_channel and not learnable:
            raise InvalidArgumentError(
                "per_channel=True needs a learned value, but learnable is False: add learnable=True, or leave it out"
            )
        self.learnable, self.per_channel, self.axis = learnable, per_channel, axis
        self.supports_masking = True
        self.learned: Any = None

    def build(self, input_shape: Sequence[int | None]) -> None:
        if self.learnable:
            self.learned = self._learned(self._count(input_shape))
        self.built = True

    def _learned(self, count: int) -> Any:
        """The learned weight of `count` values."""
        raise NotImplementedError

    def _weight(self, name: str, start: float, count: int, constraint: Any = None) -> Any:
        # No autocast: under mixed precision the activation still computes with the float32 value.
        return self.add_weight(
            shape=(count,), initializer=keras.initializers.Constant(start), name=name, constraint=constraint,
            autocast=False,
        )  # fmt: skip

    def _count(self, input_shape: Sequence[int | None]) -> int:
        if not self.per_channel:
            return 1
        rank = len(input_shape)
        if not -rank <= self.axis < rank or input_shape[self.axis] is None:
            raise InvalidArgumentError(
                f"per_channel=True learns one value for each channel along axis {self.axis}, but the input has shape "
                f"{tuple(input_shape)}: choose an axis whose size is known"
            )
        return int(input_shape[self.axis])  # type: ignore[arg-type]

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        own = {"learnable": self.learnable, "per_channel": self.per_channel, "axis": self.axis}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(PACKAGE)
class ADA(Activation):
    """Apical dendrite activation max(0,x)*exp(c - alpha*x), Eq. 3 of the paper.

    With `learnable`, alpha is a weight that starts at `alpha` and is held above 1e-4: one value, or with `per_channel`
    one for each channel along `axis` (-1, or 1 for channels-first data).
    """

    leak = 0.0

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        c: float = 0.0,
        learnable: bool = False,
        per_channel: bool = False,
        axis: int = -1,
        **kwargs: Any,
    ) -> None:
        super().__init__(learnable=learnable, per_channel=per_channel, axis=axis, **kwargs)
        self.alpha = number("alpha", alpha, positive=True)
        self.c = number("c", c)

    def _learned(self, count: int) -> Any:
        return self._weight("ada_alpha", self.alpha, count, AtLeast())

    @property
    def effective_alpha(self) -> Any:
        """The value or values of alpha that a call uses, floor applied; differentiable in the learned weight."""
        if self.learned is None:
            return self.alpha
        raw = ops.convert_to_tensor(self.learned)
        held = ops.stop_gradient(raw)
        # Weights set by hand may lie below the floor; their gradient passes straight through, so they can come back.
        return ops.maximum(held, ops.cast(FLOOR, held.dtype)) + (raw - held)

    def call(self, inputs: Any) -> Any:
        return functional.ada(inputs, self.effective_alpha, self.c, self.leak, axis=self.axis)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "alpha": self.alpha, "c": self.c}


@keras.saving.register_keras_serializable(PACKAGE)
class LeakyADA(ADA):
    """Leaky apical dendrite activation, Eq. 6 of the paper: ADA with a slope of `leak` below zero."""

    def __init__(self, *, leak: float = 0.01, **kwargs: Any) -> None:
        check_leak(leak)
        super().__init__(**kwargs)
        self.leak = float(leak)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "leak": self.leak}


@keras.saving.register_keras_serializable(PACKAGE)
class RBF(keras.layers.Layer):  # type: ignore[misc]
    """Gaussian radial basis function exp(-x^2 / s)."""

    def __init__(self, *, s: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.s = number("s", s, positive=True)
        self.supports_masking = True
        self.built = True

    def call(self, inputs: Any) -> Any:
        return functional.rbf(inputs, self.s)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "s": self.s}


@keras.saving.register_keras_serializable(PACKAGE)
class Swish(Activation):
    """Swish x * sigmoid(beta * x), with beta learned from its start value unless `learnable=False`."""

    def __init__(
        self,
        *,
        beta: float = 1.0,
        learnable: bool = True,
        per_channel: bool = False,
        axis: int = -1,
        **kwargs: Any,
    ) -> None:
        super().__init__(learnable=learnable, per_channel=per_channel, axis=axis, **kwargs)
        self.beta = number("beta", beta)

    def _learned(self, count: int) -> Any:
        return self._weight("swish_beta", self.beta, count)

    def call(self, inputs: Any) -> Any:
        beta = self.beta if self.learned is None else ops.convert_to_tensor(self.learned)
        return functional.swish(inputs, beta, axis=self.axis)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beta": self.beta}


def no_weight_decay(optimizer: Any, *, also: Sequence[str] = ()) -> Any:
    """`optimizer`, told to leave every learned alpha and beta undecayed, and what has a name in `also`.

    Call it before training starts; it replaces an earlier `exclude_from_weight_decay`.

    >>> model.compile(optimizer=no_weight_decay(keras.optimizers.AdamW(weight_decay=0.01), also=["bias"]))
    """
    optimizer.exclude_from_weight_decay(var_names=[*LEARNED_NAMES, *also])
    return optimizer
