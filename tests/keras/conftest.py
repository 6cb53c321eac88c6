"""One way to values and gradients for the three backends of Keras."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

Function = Callable[..., Any]

if keras.backend.backend() != "torch":
    # They compare with the torch half, or need scikit-learn, which these environments do not have.
    collect_ignore = ["test_example.py", "test_oracle.py", "test_transfer.py"]


def _torch_gradients(function: Function, arrays: list[Any]) -> list[Any]:
    for array in arrays:
        array.requires_grad_()
    y = function(*arrays)
    y.backward(ops.ones_like(y))
    return [y.detach(), *(array.grad for array in arrays)]


def _jax_gradients(function: Function, arrays: list[Any]) -> list[Any]:
    import jax

    @jax.jit
    def both(*arrays: Any) -> Any:
        y, pull = jax.vjp(function, *arrays)
        return y, *pull(ops.ones_like(y))

    return list(both(*arrays))


def _tensorflow_gradients(function: Function, arrays: list[Any]) -> list[Any]:
    import tensorflow as tf

    @tf.function(jit_compile=True)
    def both(*arrays: Any) -> Any:
        with tf.GradientTape() as tape:
            for array in arrays:
                tape.watch(array)
            y = function(*arrays)
        return y, *tape.gradient(y, arrays)

    return list(both(*arrays))


@pytest.fixture(scope="session")
def gradients() -> Callable[..., list[Any]]:
    """`gradients(f, *arrays)`: f's value and the gradient of its sum for each array, by XLA if there is one."""
    run = {"torch": _torch_gradients, "jax": _jax_gradients, "tensorflow": _tensorflow_gradients}[
        keras.backend.backend()
    ]

    def compute(function: Function, *arrays: Any, dtype: str = "float32") -> list[Any]:
        tensors = [ops.cast(ops.convert_to_tensor(np.asarray(a, "float32")), dtype) for a in arrays]
        return [np.asarray(ops.convert_to_numpy(ops.cast(t, "float32"))) for t in run(function, tensors)]

    return compute


@pytest.fixture(autouse=True)
def same_weights_every_time() -> None:
    """First weights are drawn from Keras' own generator: no test may depend on what ran before it."""
    keras.utils.set_random_seed(0)
