"""The functions against the formula in float64, compiled where the backend compiles."""

from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
from keras import ops

from apical import errors
from apical.keras import ada, leaky_ada, rbf, register, swish

# XLA takes numbers below the normal ones (1.2e-38) for zero, whose derivative is e^c, so they are not among these.
EXTREMES = [0.0, -0.0, 2e-38, -2e-38, 1e-30, 1e-7, 88.0, -88.0, 104.0, 1e4, -1e4, 1e15, 1.1e16, 3.4e38, -3.4e38]
X = np.concatenate([np.linspace(-20, 20, 801), np.geomspace(1e-6, 1e4, 301), EXTREMES]).astype("float32")
ALPHAS = [1e-4, 0.01, 0.3, 1.0, 10.0, 1e4]
SMALLEST = 1.2e-38  # XLA takes what is smaller for zero, an intermediate exp(c - alpha*x) too


def exact(x: Any, alpha: float, c: float, leak: float) -> dict[str, Any]:
    """ADA and its derivatives in float64, at the float32 values of x, alpha and c."""
    x, alpha, c = (np.asarray(v, "float32").astype("float64") for v in (x, alpha, c))
    p = np.maximum(x, 0)
    exponent = c - alpha * p
    e = np.exp(np.maximum(exponent, -1000))
    below = x < 0
    return {
        "exponent": exponent,
        "flushed": SMALLEST * (1 + np.minimum(p, 1e6)) ** 2 * (1 + alpha),
        "y": p * e + leak * np.minimum(x, 0),
        "x": np.where(below, leak, e * (1 - alpha * p)),
        "x_scale": np.where(below, leak, e * (1 + alpha * p)),
        "alpha": -p * p * e,
        "c": p * e,
    }


def assert_near(found: Any, wanted: Any, scale: Any, exponent: Any, flushed: Any = 1e-35) -> None:
    """Within 1e-6 of the scale, and 1e-5 where the exponent itself, beyond 8, cannot be held more exactly."""
    bound = np.where(np.abs(exponent) <= 8, 1e-6, 1e-5) * np.abs(scale) + flushed
    worst = np.argmax(np.abs(found - wanted) - bound)
    assert np.all(np.abs(found - wanted) <= bound), (found[worst], wanted[worst])


@pytest.mark.parametrize("leak", [0.0, 0.01])
@pytest.mark.parametrize("c", [-5.0, 0.0, 1.0, 5.0])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_ada_and_its_derivatives_are_the_formulas(gradients: Any, alpha: float, c: float, leak: float) -> None:
    alphas, cs = np.full_like(X, alpha), np.full_like(X, c)
    y, dx, dalpha, dc = gradients(lambda x, a, b: ada(x, a, b, leak), X, alphas, cs)
    want = exact(X, alpha, c, np.float32(leak))
    for found, name, scale in ((y, "y", "y"), (dx, "x", "x_scale"), (dalpha, "alpha", "alpha"), (dc, "c", "c")):
        assert_near(found, want[name], want[scale], want["exponent"], want["flushed"])


@pytest.mark.parametrize("leak", [0.0, 0.01])
@pytest.mark.parametrize("alpha", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("c", [-20.0, 20.0])
def test_ada_of_finite_numbers_is_finite(gradients: Any, alpha: float, c: float, leak: float) -> None:
    x = np.concatenate([X, -np.geomspace(1e-38, 3.4e38, 200), np.geomspace(1e-38, 3.4e38, 200)]).astype("float32")
    for values in gradients(lambda x: ada(x, alpha, c, leak), x):
        assert np.isfinite(values).all()


def test_the_derivative_at_zero_is_the_right_hand_one(gradients: Any) -> None:
    assert gradients(lambda x: ada(x, 1.0, 1.0, 0.01), [0.0, -0.0])[1] == pytest.approx(np.e, rel=1e-6)


@pytest.mark.parametrize("leak", [0.0, 0.01])
def test_infinities_and_nan(gradients: Any, leak: float) -> None:
    y, dx = gradients(lambda x: ada(x, 0.5, 1.0, leak), [np.inf, -np.inf, np.nan])
    assert y[0] == 0
    assert dx[0] == 0
    assert y[1] == (-np.inf if leak else 0)
    assert dx[1] == pytest.approx(leak)
    assert np.isnan(y[2])
    assert np.isnan(dx[2])


@pytest.mark.parametrize("function", [ada, leaky_ada, rbf, swish])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_number_gives_a_number(gradients: Any, dtype: str, function: Any) -> None:
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    x = np.arange(65536, dtype="uint16").view(kind).astype("float32")
    x = x[np.isfinite(x)]
    y, dx = gradients(function, x, dtype=dtype)
    assert len(x) > 60000
    assert not np.isnan(y).any()
    assert not np.isnan(dx).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("function", [ada, leaky_ada, rbf, swish])
def test_the_output_has_the_dtype_of_the_input(function: Any, dtype: str) -> None:
    y = function(ops.cast(ops.convert_to_tensor([1.0, -1.0]), dtype), 0.7)
    assert keras.backend.standardize_dtype(y.dtype) == dtype


@pytest.mark.parametrize("s", [0.3, 1.0, 4.0])
def test_rbf_is_the_formula(gradients: Any, s: float) -> None:
    x = np.linspace(-6, 6, 1001).astype("float32")
    wide, width = x.astype("float64"), float(np.float32(s))
    y, dx = gradients(lambda x: rbf(x, s), np.append(x, [1e30, -1e30, np.inf, -np.inf]))
    value = np.exp(-(wide**2) / width)
    assert_near(y[:-4], value, value, wide**2 / width)
    assert_near(dx[:-4], -2 * wide / width * value, 2 * wide / width * value, wide**2 / width)
    assert not y[-4:].any()
    assert not dx[-4:].any()


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_swish_is_the_formula(gradients: Any, beta: float) -> None:
    x = np.linspace(-20, 20, 1001).astype("float32")
    wide, b = x.astype("float64"), float(np.float32(beta))
    y, dx = gradients(lambda x: swish(x, beta), np.append(x, [3e38, -3e38]))
    sigmoid = 1 / (1 + np.exp(-b * wide))
    slope = sigmoid * (1 - sigmoid) * b * wide
    assert_near(y[:-2], wide * sigmoid, wide * sigmoid, b * wide)
    assert_near(dx[:-2], sigmoid + slope, np.abs(sigmoid) + np.abs(slope), b * wide)
    assert np.isfinite(y[-2:]).all()
    assert dx[-2:] == pytest.approx([1, 0])


def test_values_per_channel_meet_their_axis() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    for axis in (1, -1, 2):
        alpha = np.linspace(0.5, 2, x.shape[axis]).astype("float32")
        wide = alpha.reshape([-1 if i == axis % 3 else 1 for i in range(3)])
        found = ops.convert_to_numpy(ada(x, alpha, 1.0, axis=axis))
        assert found == pytest.approx(np.maximum(x, 0) * np.exp(1 - wide * np.maximum(x, 0)), rel=2e-6)


def test_functions_build_functional_models(tmp_path: Any) -> None:
    x = keras.Input((3,))
    model = keras.Model(x, leaky_ada(keras.layers.Dense(4)(x), 0.3))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    batch = np.ones((2, 3), "float32")
    assert ops.convert_to_numpy(again(batch)) == pytest.approx(ops.convert_to_numpy(model(batch)))


def test_registered_names_are_activations_of_keras(tmp_path: Any) -> None:
    register()
    assert keras.activations.get("ada") is ada
    assert keras.activations.get("leaky_ada") is leaky_ada
    assert keras.activations.get("rbf") is rbf
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation="ada")])
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").layers[0].activation is ada


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: ada([1.0], alpha=0),
            errors.InvalidArgumentError,
            "alpha is 0.0, but must be greater than 0 and finite",
        ),
        (lambda: ada([1.0], alpha=np.nan), errors.InvalidArgumentError, "alpha is nan"),
        (lambda: ada([1.0], np.float32([-1])), errors.InvalidArgumentError, "the smallest alpha is -1.0"),
        (lambda: ada([1.0], c=np.inf), errors.InvalidArgumentError, "c is inf, but must be finite"),
        (lambda: ada([1.0], "x"), errors.DtypeError, "alpha is 'x', but must be a number"),
        (lambda: ada([1.0], leak=2), errors.InvalidArgumentError, r"leak is 2, but must lie in \[0, 1\]"),
        (lambda: rbf([1.0], s=-1), errors.InvalidArgumentError, "s is -1.0"),
        (lambda: swish(np.array([1])), errors.DtypeError, "swish needs floating-point numbers, got int"),
        (
            lambda: ada(np.ones((2, 3), "float32"), np.float32([1, 2])),
            errors.InvalidArgumentError,
            r"alpha has shape \(2,\), but axis -1 of the input has size 3",
        ),
        (
            lambda: ada(np.ones((2, 3), "float32"), np.float32([1, 2]), axis=5),
            errors.InvalidArgumentError,
            "axis 5, but the input has only 2 axes",
        ),
    ],
)
def test_wrong_values_are_refused_in_one_sentence(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_arrays_of_one_value_serve_all_channels() -> None:
    x = ops.ones((2, 3))
    for alpha in (0.5, np.float32(0.5), np.float32([0.5]), ops.convert_to_tensor([0.5]), ops.convert_to_tensor(0.5)):
        assert ops.convert_to_numpy(ada(x, alpha)) == pytest.approx(np.exp(-0.5))
