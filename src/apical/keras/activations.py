"""Activation layers: ADA, LeakyADA, RBF, Swish, with fixed or learned parameters."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops
from keras.src.saving import serialization_lib

from apical.errors import InvalidArgumentError
from apical.keras import functional
from apical.keras.functional import PACKAGE, check_leak, number

FLOOR = 1e-4
"""A learned alpha is at least this, so that it stays positive and can come back."""

LEARNED_NAMES = ("ada_alpha", "swish_beta")
"""The names of the weights that shape an activation; `no_weight_decay` knows them by these."""


@keras.saving.register_keras_serializable(PACKAGE)
class AtLeast(keras.constraints.Constraint):
    """The constraint w >= floor: after each step of an optimiser, what fell below the floor is put on it."""

    def __init__(self, floor: float = FLOOR) -> None:
        self.floor = floor

    def __call__(self, w: Any) -> Any:
        w = ops.convert_to_tensor(w)
        return ops.maximum(w, ops.cast(self.floor, w.dtype))

    def get_config(self) -> dict[str, Any]:
        return {"floor": self.floor}


class Activation(keras.layers.Layer):
    """A layer that keeps the shape of its input, with at most one learned weight, of shape (num_parameters,).

    The weight is there from the start, so that the layer may stand in `activation=` of another one. Where several
    layers of a model share it so, `shared` is a mark by which a saved model finds the one instance again.
    """

    def __init__(
        self, *, learnable: bool, num_parameters: int, axis: int, shared: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.shared = shared
        self.learnable, self.num_parameters, self.axis = learnable, num_parameters, axis
        self.supports_masking = True
        self.learned: Any = None

    def _learn(self, name: str, start: float, constraint: Any = None) -> None:
        """Make the weight where it is wished for; the layer is then built."""
        if not isinstance(self.num_parameters, int) or self.num_parameters < 1:
            raise InvalidArgumentError(
                f"num_parameters is {self.num_parameters}, but must be 1 (one value for all) or the number of channels"
            )
        if self.num_parameters > 1 and not self.learnable:
            raise InvalidArgumentError(
                f"num_parameters is {self.num_parameters}, but a fixed value is one number: "
                "add learnable=True, or leave num_parameters out"
            )
        if self.learnable:
            # No autocast: under mixed precision the activation still computes with the float32 value.
            self.learned = self.add_weight(
                shape=(self.num_parameters,), initializer=keras.initializers.Constant(start), name=name,
                constraint=constraint, autocast=False,
            )  # fmt: skip
        if self.num_parameters > 1:
            self.input_spec = keras.layers.InputSpec(axes={self.axis: self.num_parameters})
        self.built = True

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        own = {"learnable": self.learnable, "num_parameters": self.num_parameters, "axis": self.axis}
        return {**super().get_config(), **own, **({"shared": self.shared} if self.shared else {})}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The layer of that config; while a file is loaded, the one that already has the same mark."""
        mark = config.get("shared")
        known = serialization_lib.get_shared_object(mark) if mark else None
        if known is None:
            known = super().from_config(config)
            if mark:
                serialization_lib.record_object_after_deserialization(known, mark)
        return known


@keras.saving.register_keras_serializable(PACKAGE)
class ADA(Activation):
    """Apical dendrite activation max(0,x)*exp(c - alpha*x), Eq. 3 of the paper.

    With `learnable`, alpha is a weight of shape `(num_parameters,)` that starts at `alpha` and is held above 1e-4: one
    value, or one for each channel along `axis` (-1, or 1 for channels-first data).
    """

    leak = 0.0

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        c: float = 0.0,
        learnable: bool = False,
        num_parameters: int = 1,
        axis: int = -1,
        **kwargs: Any,
    ) -> None:
        super().__init__(learnable=learnable, num_parameters=num_parameters, axis=axis, **kwargs)
        self.alpha = number("alpha", alpha, positive=True)
        self.c = number("c", c)
        self._learn("ada_alpha", self.alpha, AtLeast())

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
class RBF(keras.layers.Layer):
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
        num_parameters: int = 1,
        axis: int = -1,
        **kwargs: Any,
    ) -> None:
        super().__init__(learnable=learnable, num_parameters=num_parameters, axis=axis, **kwargs)
        self.beta = number("beta", beta)
        self._learn("swish_beta", self.beta)

    def call(self, inputs: Any) -> Any:
        beta = self.beta if self.learned is None else ops.convert_to_tensor(self.learned)
        return functional.swish(inputs, beta, axis=self.axis)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beta": self.beta}


def no_weight_decay(optimizer: Any, *, also: Sequence[str] = ()) -> Any:
    """`optimizer`, told to leave every learned alpha and beta undecayed, and what has a name in `also`.

    Call it before training starts; it replaces an earlier `exclude_from_weight_decay`.

    Examples:
        >>> model.compile(optimizer=no_weight_decay(keras.optimizers.AdamW(weight_decay=0.01), also=["bias"]))
    """
    optimizer.exclude_from_weight_decay(var_names=[*LEARNED_NAMES, *also])
    return optimizer
