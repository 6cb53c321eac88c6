"""Pyramidal layers against the two-branch formula written plainly."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from apical import errors
from apical.keras import ADA, PyramidalConv1D, PyramidalConv2D, PyramidalDense, ada, rbf

rng = np.random.default_rng(1)


def numpy(tensor: Any) -> Any:
    return np.asarray(ops.convert_to_numpy(tensor))


def filled(layer: Any, shape: tuple[int, ...]) -> Any:
    """The layer, built, with weights and biases that are all different."""
    layer.build(shape)
    for weight in layer.affine.weights:
        weight.assign(rng.normal(size=weight.shape).astype("float32"))
    return layer


def branch(layer: Any, shape: tuple[int, ...], rows: Any) -> Any:
    """One branch as the plain Keras layer."""
    settings = {**layer.settings, layer.outputs_name: layer.outputs}
    plain = layer.affine_class(**settings)
    plain.build(shape)
    plain.kernel.assign(numpy(layer.kernel)[..., rows])
    plain.bias.assign(numpy(layer.affine.bias)[rows])
    return plain


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "dense": (lambda: PyramidalDense(3, apical=lambda x: ada(x, 0.3, 1.0)), (2, 4)),
    "dense, steps": (lambda: PyramidalDense(3, apical=lambda x: ada(x, 0.3, 1.0)), (2, 5, 4)),
    "conv1d": (lambda: PyramidalConv1D(6, 3, padding="causal", apical=lambda x: ada(x, 0.3, 1.0)), (2, 9, 4)),
    "conv1d, groups": (lambda: PyramidalConv1D(6, 3, groups=2, apical=lambda x: ada(x, 0.3, 1.0)), (2, 9, 4)),
    "conv2d": (
        lambda: PyramidalConv2D(6, 3, strides=2, padding="same", apical=lambda x: ada(x, 0.3, 1.0)),
        (2, 8, 7, 4),
    ),
    "conv2d, depthwise": (lambda: PyramidalConv2D(4, 3, groups=4, apical=lambda x: ada(x, 0.3, 1.0)), (2, 8, 7, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_neuron_is_the_sum_of_its_branches(name: str) -> None:
    make, shape = CASES[name]
    layer, x = filled(make(), shape), rng.normal(size=shape).astype("float32")
    rows = np.arange(2 * layer.outputs).reshape(layer.groups, 2, -1)  # by group, and within a group basal then apical
    basal, apical = (branch(layer, shape, rows[:, i].ravel())(x) for i in (0, 1))
    assert numpy(layer(x)) == pytest.approx(numpy(ops.relu(basal) + ada(apical, 0.3, 1.0)), rel=1e-5, abs=1e-5)


def test_with_one_group_the_basal_half_comes_first() -> None:
    layer = filled(PyramidalDense(3), (None, 4))
    assert np.array_equal(numpy(layer.basal_kernel), numpy(layer.kernel)[:, :3])
    assert np.array_equal(numpy(layer.apical_kernel), numpy(layer.kernel)[:, 3:])


@pytest.mark.parametrize("initializer", ["glorot_uniform", "he_normal", keras.initializers.GlorotUniform(seed=7)])
def test_each_branch_starts_with_its_own_fans_and_numbers(initializer: Any) -> None:
    layer = PyramidalConv2D(64, 3, groups=2, kernel_initializer=initializer)
    layer.build((None, 8, 8, 32))
    basal, apical = numpy(layer.basal_kernel), numpy(layer.apical_kernel)
    plain = keras.layers.Conv2D(64, 3, groups=2, kernel_initializer=layer.settings["kernel_initializer"])
    plain.build((None, 8, 8, 32))
    assert np.abs(basal - apical).max() > 0.01
    for half in (basal, apical):
        assert half.std() == pytest.approx(numpy(plain.kernel).std(), rel=0.1)
    if not isinstance(initializer, str):
        assert np.array_equal(basal, numpy(plain.kernel))


def test_constant_initialisers_serve_both_branches() -> None:
    layer = PyramidalDense(2, kernel_initializer="zeros", bias_initializer="ones")
    layer.build((None, 3))
    assert not numpy(layer.kernel).any()
    assert numpy(layer.affine.bias).tolist() == [1, 1, 1, 1]


def test_a_longer_dendrite_reads_the_second_input() -> None:
    layer = PyramidalDense(3, apical="rbf")
    x, far = rng.normal(size=(2, 4)).astype("float32"), rng.normal(size=(2, 5)).astype("float32")
    y = numpy(layer(x, apical_input=far))
    basal = np.maximum(x @ numpy(layer.basal_kernel), 0)
    assert y == pytest.approx(basal + numpy(rbf(far @ numpy(layer.apical_kernel))), rel=1e-4, abs=1e-5)
    assert numpy(layer.apical_kernel).shape == (5, 3)
    assert numpy(layer(x, far)) == pytest.approx(y)


def silent(z: object) -> object:
    return 0.0 * z


def test_each_branch_has_its_own_norm() -> None:
    x = rng.normal(size=(64, 4)).astype("float32") * 5 + 3
    for branches in ({"basal": "linear", "apical": silent}, {"basal": silent, "apical": "linear"}):
        layer = PyramidalDense(3, norm=keras.layers.BatchNormalization, **branches)
        y = numpy(layer(x, training=True))
        assert y.mean(axis=0) == pytest.approx(0, abs=1e-4)
        assert y.std(axis=0) == pytest.approx(1, rel=0.05)
    assert layer.basal_norm.gamma.shape == (3,)
    assert numpy(layer.basal_norm.moving_mean) != pytest.approx(numpy(layer.apical_norm.moving_mean))


def test_activations_may_be_names_layers_and_functions() -> None:
    x = rng.normal(size=(2, 4)).astype("float32")
    outputs = []
    for apical in ("ada(alpha=0.3,c=1)", ADA(alpha=0.3, c=1.0), lambda z: ada(z, 0.3, 1.0)):
        layer = PyramidalDense(3, apical=apical, kernel_initializer=keras.initializers.GlorotUniform(seed=1))
        outputs.append(numpy(layer(x)))
    assert outputs[1] == pytest.approx(outputs[0])
    assert outputs[2] == pytest.approx(outputs[0])
    assert numpy(PyramidalDense(3, basal="gelu")(x)).shape == (2, 3)


def test_the_leak_of_a_named_basal_branch_is_the_papers() -> None:
    assert PyramidalDense(3, basal="leaky_relu").basal.negative_slope == pytest.approx(0.01)


def test_alpha_per_channel_has_one_value_for_each_output() -> None:
    layer = PyramidalConv1D(6, 3, apical="ada(alpha=learn,scope=channel,alpha_init=0.5)")
    assert numpy(layer.apical.learned).tolist() == [0.5] * 6


@pytest.mark.parametrize("padding", ["same", "causal"])
def test_masks_pass_where_the_steps_stay(padding: str) -> None:
    x = keras.layers.Masking()(np.array([[[1.0], [2.0], [0.0]]], "float32"))
    assert numpy(keras.src.backend.get_keras_mask(PyramidalConv1D(2, 3, padding=padding)(x))).tolist() == [[1, 1, 0]]
    assert numpy(keras.src.backend.get_keras_mask(PyramidalDense(2)(x))).tolist() == [[1, 1, 0]]
    with pytest.warns(UserWarning, match="does not support masking"):
        PyramidalConv1D(2, 3, padding="valid")(x)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy: str) -> None:
    layer = PyramidalDense(3, dtype=policy, apical="ada(alpha=learn)", norm=keras.layers.BatchNormalization)
    y = layer(np.full((4, 2), 3.0, "float32"), training=True)
    assert keras.backend.standardize_dtype(y.dtype) == policy.removeprefix("mixed_")
    assert {keras.backend.standardize_dtype(w.dtype) for w in layer.weights} == {"float32"}
    assert np.isfinite(numpy(ops.cast(y, "float32"))).all()


def test_a_saved_model_computes_the_same(tmp_path: Any) -> None:
    layers = [
        PyramidalConv2D(4, 3, groups=2, norm=keras.layers.BatchNormalization(epsilon=0.1)),
        keras.layers.Flatten(),
        PyramidalDense(3, basal="leaky_relu", apical="leaky_ada(alpha=learn,alpha_init=0.3,scope=channel)"),
    ]
    model = keras.Sequential([keras.Input((6, 6, 2)), *layers])
    layers[-1].apical.learned.assign([0.2, 0.3, 0.4])
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    again = keras.saving.load_model(tmp_path / "model.keras")
    fresh = keras.models.clone_model(model)
    fresh.load_weights(tmp_path / "model.weights.h5")
    x = rng.normal(size=(2, 6, 6, 2)).astype("float32")
    for other in (again, fresh):
        assert np.array_equal(numpy(other(x)), numpy(model(x)))


def test_units_train_xor_with_one_neuron() -> None:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float32")
    t = np.array([[0], [1], [1], [0]], "float32")
    neuron = PyramidalDense(1, apical="ada(alpha=1,c=1)")
    model = keras.Sequential([keras.Input((2,)), neuron])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse")
    neuron.kernel.assign([[0.1, 0.9], [0.1, 1.1]])
    neuron.affine.bias.assign([0.0, 0.1])
    assert (numpy(model(x)).round() != t).any()
    model.fit(np.tile(x, (400, 1)), np.tile(t, (400, 1)), batch_size=4, verbose=0, shuffle=False)
    assert (numpy(model(x)).round() == t).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: PyramidalDense(3, apical="aada"),
            errors.InvalidArgumentError,
            r"unknown activation 'aada'; did you mean 'ada'\?",
        ),
        (lambda: PyramidalDense(3, apical="pynada"), errors.InvalidArgumentError, "'pynada' is pyramidal"),
        (
            lambda: PyramidalDense(3, apical="ada(beta=1)"),
            errors.InvalidArgumentError,
            "unknown setting 'beta'",
        ),
        (lambda: PyramidalDense(3, activation="relu"), errors.InvalidArgumentError, "use basal= and apical="),
        (lambda: PyramidalDense(3, norm=4), errors.InvalidArgumentError, "norm is 4, but must be a Keras layer"),
        (lambda: PyramidalDense(-3), ValueError, "invalid value for `units`"),
        (lambda: PyramidalConv1D(4, 3, groups=3), ValueError, "must be evenly divisible"),
        (lambda: _built()(np.ones((2, 5), "float32")), ValueError, "expected axis -1 of input shape to have value 4"),
        (
            lambda: _built()(np.ones((2, 4), "float32"), np.ones((2, 4), "float32")),
            errors.InvalidArgumentError,
            "was built with one input and is now called with two",
        ),
        (
            lambda: _built(5)(np.ones((2, 4), "float32")),
            errors.InvalidArgumentError,
            "was built with two inputs and is now called with one",
        ),
        (
            lambda: _built(5)(np.ones((2, 4), "float32"), np.ones((2, 6), "float32")),
            errors.InvalidArgumentError,
            r"apical_input has shape \(2, 6\), but the layer '.*' was built for 5 channels",
        ),
        (
            lambda: PyramidalConv1D(4, 3)(np.ones((2, 9, 2), "float32"), np.ones((2, 9, 2), "float32")),
            errors.InvalidArgumentError,
            r"the basal branch gives shape \(2, 7, 4\) and the apical branch \(2, 9, 4\)",
        ),
    ],
)
def test_wrong_calls_are_refused_in_one_sentence(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def _built(second: int | None = None) -> PyramidalDense:
    layer = PyramidalDense(3)
    layer.build((None, 4), *([] if second is None else [(None, second)]))
    return layer
