"""Activation layers: the learned alpha, precision, masks, storage."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from apical import errors
from apical.keras import ADA, RBF, LeakyADA, Swish, ada, no_weight_decay
from apical.keras import unit as units
from apical.keras.activations import FLOOR, AtLeast


def numpy(tensor: Any) -> Any:
    return np.asarray(ops.convert_to_numpy(tensor))


def trained(layer: Any, *, optimizer: Any, steps: int = 1, loss: str = "mse") -> Any:
    """A model of one activation layer after some steps towards a far target."""
    model = keras.Sequential([keras.Input((4,)), layer])
    model.compile(optimizer=optimizer, loss=loss)
    x = np.full((8, 4), 2.0, "float32")
    model.fit(x, np.full((8, 4), 5.0, "float32"), epochs=steps, verbose=0)
    return model


def test_a_learned_alpha_learns() -> None:
    layer = ADA(alpha=1.0, learnable=True)
    trained(layer, optimizer=keras.optimizers.SGD(0.01), steps=3)
    assert 0.3 < numpy(layer.learned)[0] < 0.999


def test_alpha_is_held_above_its_floor_and_comes_back() -> None:
    layer = ADA(alpha=0.01, learnable=True)
    model = trained(layer, optimizer=keras.optimizers.SGD(1.0), steps=3)  # wants a higher peak: pushes alpha down
    assert numpy(layer.learned) == pytest.approx(FLOOR)
    x = np.full((8, 4), 2.0, "float32")
    model.fit(x, np.zeros((8, 4), "float32"), epochs=1, verbose=0)
    assert numpy(layer.learned)[0] > 100 * FLOOR


def test_a_weight_below_the_floor_computes_at_the_floor() -> None:
    layer = ADA(learnable=True)
    layer.learned.assign([-3.0])
    x = np.array([[1.0, 100.0]], "float32")
    assert numpy(layer(x)) == pytest.approx(numpy(ada(x, FLOOR)))
    assert numpy(layer.effective_alpha) == pytest.approx(FLOOR)


def test_the_constraint_is_serialisable() -> None:
    again = keras.constraints.deserialize(keras.constraints.serialize(AtLeast(0.5)))
    assert numpy(again(np.array([0.1, 0.7], "float32"))) == pytest.approx([0.5, 0.7])


def test_weight_decay_spares_what_shapes_an_activation() -> None:
    def after_a_step(optimizer: Any) -> tuple[float, float]:
        layer = ADA(alpha=1.0, learnable=True)
        dense = keras.layers.Dense(4, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((4,)), dense, layer])
        model.compile(optimizer=optimizer, loss="mse")
        x = np.full((2, 4), -1.0, "float32")  # ADA and its gradients are 0 here, so that decay alone moves a weight
        model.fit(x, np.zeros((2, 4), "float32"), verbose=0)
        return numpy(layer.learned)[0], numpy(dense.kernel)[0, 0]

    def adamw() -> Any:
        return keras.optimizers.AdamW(0.1, weight_decay=0.5)

    assert after_a_step(adamw()) == pytest.approx((0.95, 0.95))
    assert after_a_step(no_weight_decay(adamw())) == pytest.approx((1.0, 0.95))
    assert after_a_step(no_weight_decay(adamw(), also=["kernel"])) == pytest.approx((1.0, 1.0))


LAYERS = [ADA(alpha=0.3, c=1.0), ADA(learnable=True, num_parameters=3), LeakyADA(leak=0.1), RBF(s=2.0), Swish(beta=2.0)]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_a_saved_model_computes_the_same(layer: Any, tmp_path: Any) -> None:
    made = type(layer).from_config(layer.get_config())
    if made.weights:
        made.learned.assign(np.linspace(0.5, 0.9, made.num_parameters))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), made])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    assert type(again.layers[-1]) is type(layer)
    assert np.array_equal(numpy(again(x)), numpy(model(x)))


def test_a_layer_serves_as_an_argument_of_another(tmp_path: Any) -> None:
    dense = keras.layers.Dense(3, activation=ADA(learnable=True, num_parameters=3))
    model = keras.Sequential([keras.Input((2,)), dense])
    assert [w.shape[0] for w in model.trainable_weights] == [2, 3, 3]
    dense.activation.learned.assign([0.2, 0.4, 0.6])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert numpy(again.layers[0].activation.learned) == pytest.approx([0.2, 0.4, 0.6])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16", "bfloat16"])
@pytest.mark.parametrize("layer", [ADA, LeakyADA, RBF, Swish])
def test_half_precision_gives_the_rounded_value(layer: Any, policy: str) -> None:
    arguments = {"alpha": 0.375, "learnable": True} if issubclass(layer, ADA) else {}
    half, full = layer(**arguments, dtype=policy), layer(**arguments)
    dtype = policy.removeprefix("mixed_")
    x = np.linspace(-60000, 60000, 4001).astype("float32")
    x = numpy(ops.cast(ops.cast(np.concatenate([x, x / 1e4]), dtype), "float32"))
    y = half(ops.cast(x, dtype))
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    found, wanted = numpy(ops.cast(y, "float32")), numpy(full(x))
    assert np.isfinite(found).all()
    assert found == pytest.approx(wanted, rel=0.02 if dtype == "bfloat16" else 0.002, abs=1e-6)
    if policy.startswith("mixed") and half.weights:
        assert keras.backend.standardize_dtype(half.learned.dtype) == "float32"


@pytest.mark.parametrize("layer", [ADA, LeakyADA, RBF, Swish])
def test_masks_pass_through(layer: Any) -> None:
    model = keras.Sequential(
        [keras.layers.Embedding(5, 3, mask_zero=True), layer(), keras.layers.GlobalAveragePooling1D()]
    )
    tokens = np.array([[1, 2, 0, 0]])
    assert numpy(model(tokens)) == pytest.approx(numpy(model(tokens[:, :2])), rel=1e-5)


def test_values_per_channel_have_their_axis() -> None:
    layer = ADA(learnable=True, num_parameters=2, axis=1)
    layer.learned.assign([0.5, 2.0])
    x = np.ones((3, 2, 4), "float32")
    assert numpy(layer(x))[0, :, 0] == pytest.approx(np.exp([-0.5, -2.0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ADA(alpha=-1), "alpha is -1.0, but must be greater than 0"),
        (lambda: ADA(c=np.inf), "c is inf"),
        (lambda: LeakyADA(leak=-0.1), "leak is -0.1"),
        (lambda: RBF(s=0), "s is 0.0"),
        (lambda: Swish(beta=np.nan), "beta is nan"),
        (lambda: ADA(num_parameters=3), "num_parameters is 3, but a fixed value is one number"),
        (lambda: ADA(learnable=True, num_parameters=0), "num_parameters is 0, but must be 1"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_wrong_number_of_channels_is_refused_in_one_sentence() -> None:
    layer = ADA(learnable=True, num_parameters=3)
    with pytest.raises(ValueError, match=r"expected axis -1 of input shape to have value 3") as caught:
        layer(np.ones((2, 4), "float32"))
    assert "\n" not in str(caught.value)


def test_one_neuron_learns_xor() -> None:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float32")
    t = np.array([[0], [1], [1], [0]], "float32")
    neuron = keras.layers.Dense(1, activation=ADA(alpha=1.0, c=1.0))
    model = keras.Sequential([keras.Input((2,)), neuron])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse")
    neuron.kernel.assign([[0.9], [1.1]])
    neuron.bias.assign([0.1])
    assert (numpy(model(x)).round() != t).any()
    model.fit(np.tile(x, (400, 1)), np.tile(t, (400, 1)), batch_size=4, verbose=0, shuffle=False)
    assert (numpy(model(x)).round() == t).all()


def test_the_papers_neuron_solves_xor() -> None:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float32")
    neuron = keras.layers.Dense(1, activation=ADA(alpha=1.0, c=1.0))
    neuron.build((None, 2))
    neuron.kernel.assign([[5.0], [5.0]])
    neuron.bias.assign([-4.0])
    assert numpy(neuron(x)).round().ravel().tolist() == [0, 1, 1, 0]


def test_c_can_follow_from_alpha() -> None:
    peak = units.layer(units.parse("ada(alpha=0.5,c=peak)"))
    assert float(numpy(peak(np.array([2.0], "float32")))[0]) == pytest.approx(1.0)
    assert peak.get_config()["c"] == pytest.approx(1 + np.log(0.5))
