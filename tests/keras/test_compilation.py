"""`jit_compile=True`: the whole training step in the backend's compiler."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from apical.keras import ADA, RBF, LeakyADA, PyramidalConv1D, PyramidalConv2D, PyramidalDense, Swish, register

pytestmark = pytest.mark.slow if keras.backend.backend() == "torch" else []  # torch calls a C++ compiler


def network() -> Any:
    """Every layer of apical.keras once, and one activation by its registered name."""
    register()
    x = keras.Input((12, 12, 2))
    h = PyramidalConv2D(4, 3, groups=2, apical="ada(alpha=learn)", norm=layers.BatchNormalization)(x)
    h = LeakyADA(learnable=True, num_parameters=4)(layers.Conv2D(4, 3, strides=2)(h))
    h = PyramidalConv1D(3, 2, basal="leaky_relu", apical="swish")(layers.Reshape((16, 4))(h))
    h = RBF()(layers.Dense(4, activation="ada")(layers.Flatten()(h)))
    h = PyramidalDense(4, apical="rbf")(h, apical_input=layers.Flatten()(x))
    h = Swish()(ADA(alpha=0.3, c=1.0)(h))
    return keras.Model(x, layers.Dense(1)(h))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch.compile's own
def test_compiled_training_equals_eager_training() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 12, 12, 2)).astype("float32"), rng.normal(size=(8, 1)).astype("float32")
    model = network()
    start = model.get_weights()
    results = []
    for settings in ({"jit_compile": True}, {"run_eagerly": True, "jit_compile": False}):
        model.set_weights(start)
        model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse", **settings)
        losses = [float(model.train_on_batch(x, y)) for _ in range(3)]
        results.append((losses, model.get_weights(), ops.convert_to_numpy(model(x))))
    (fast, fast_weights, fast_output), (slow, slow_weights, slow_output) = results
    assert fast == pytest.approx(slow, rel=1e-4)
    assert fast[-1] != fast[0]
    for a, b in zip(fast_weights, slow_weights, strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-5)
    assert fast_output == pytest.approx(slow_output, rel=1e-3, abs=1e-4)
