"""Keras' own harness for layers: build, symbolic and eager call, serialisation, a compiled training step."""

from typing import Any

import keras
import pytest
from keras.src import testing

from apical.keras import ADA, RBF, LeakyADA, PyramidalConv1D, PyramidalConv2D, PyramidalDense, Swish

# name: (class, arguments, input shape, output shape, trainable weights, other weights)
LAYERS: dict[str, tuple[Any, dict[str, Any], Any, tuple[int, ...], int, int]] = {
    "ADA": (ADA, {"alpha": 0.3, "c": 1.0}, (2, 3), (2, 3), 0, 0),
    "ADA, learned": (ADA, {"learnable": True}, (2, 3, 4), (2, 3, 4), 1, 0),
    "ADA, per channel": (ADA, {"learnable": True, "num_parameters": 4}, (2, 3, 4), (2, 3, 4), 1, 0),
    "LeakyADA": (LeakyADA, {"leak": 0.1}, (2, 3), (2, 3), 0, 0),
    "LeakyADA, learned": (LeakyADA, {"learnable": True}, (2, 3), (2, 3), 1, 0),
    "RBF": (RBF, {"s": 2.0}, (2, 3), (2, 3), 0, 0),
    "Swish": (Swish, {}, (2, 3), (2, 3), 1, 0),
    "Swish, fixed": (Swish, {"learnable": False, "beta": 2.0}, (2, 3), (2, 3), 0, 0),
    "PyramidalDense": (PyramidalDense, {"units": 5}, (2, 3), (2, 5), 2, 0),
    "PyramidalDense, settings": (
        PyramidalDense,
        {
            "units": 5,
            "basal": "leaky_relu(leak=0.1)",
            "apical": "leaky_ada(alpha=learn,scope=channel)",
            "use_bias": False,
            "kernel_regularizer": "l2",
            "kernel_initializer": "he_normal",
        },
        (2, 4, 3),
        (2, 4, 5),
        2,
        0,
    ),
    "PyramidalDense, norm": (
        PyramidalDense,
        {"units": 5, "norm": keras.layers.BatchNormalization()},
        (2, 3),
        (2, 5),
        6,
        4,
    ),
    "PyramidalConv1D": (
        PyramidalConv1D,
        {"filters": 4, "kernel_size": 3, "padding": "causal"},
        (2, 8, 2),
        (2, 8, 4),
        2,
        0,
    ),
    "PyramidalConv1D, groups": (
        PyramidalConv1D,
        {"filters": 4, "kernel_size": 3, "groups": 2, "strides": 2, "apical": "swish"},
        (2, 9, 2),
        (2, 4, 4),
        3,
        0,
    ),
    "PyramidalConv2D": (PyramidalConv2D, {"filters": 4, "kernel_size": 3}, (2, 7, 6, 3), (2, 5, 4, 4), 2, 0),
    "PyramidalConv2D, settings": (
        PyramidalConv2D,
        {
            "filters": 4,
            "kernel_size": (3, 2),
            "padding": "same",
            "dilation_rate": 2,
            "groups": 2,
            "apical": "rbf",
            "norm": keras.layers.LayerNormalization(),
        },
        (2, 7, 6, 4),
        (2, 7, 6, 4),
        6,
        0,
    ),
}


class TestLayers(testing.TestCase):
    """The harness is a method of a unittest case."""


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")  # by the harness itself
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
@pytest.mark.parametrize("name", LAYERS)
def test_keras_accepts_the_layer(name: str) -> None:
    layer, arguments, shape, output, trainable, other = LAYERS[name]
    case = TestLayers()
    case.setUp()
    case.run_layer_test(
        layer,
        init_kwargs=arguments,
        input_shape=shape,
        expected_output_shape=output,
        expected_num_trainable_weights=trainable,
        expected_num_non_trainable_weights=other,
        expected_num_losses=1 if "kernel_regularizer" in arguments else 0,
        supports_masking=not (name.startswith("PyramidalConv") and arguments.get("padding", "valid") == "valid"),
    )


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        (lambda: PyramidalDense(5), [(2, 3), (2, 4)]),
        (lambda: PyramidalConv1D(5, 3), [(2, 8, 3), (2, 6, 4)]),
        (lambda: PyramidalConv2D(5, 3, strides=2, apical_strides=2), [(2, 7, 7, 3), (2, 5, 5, 2)]),
    ],
)
def test_a_longer_dendrite_is_built_called_and_stored(layer: Any, shapes: Any, tmp_path: Any) -> None:
    first, second = (keras.Input(shape[1:]) for shape in shapes)
    model = keras.Model([first, second], layer()(first, apical_input=second))
    data = [keras.random.normal(shape) for shape in shapes]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert len(again.weights) == 4
    assert keras.ops.convert_to_numpy(again(data)) == pytest.approx(keras.ops.convert_to_numpy(model(data)))
