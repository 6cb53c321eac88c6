"""convert(model, unit): what is replaced, what is kept and why, which weights survive."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from apical import errors
from apical.keras import ADA, LeakyADA, PyramidalConv2D, PyramidalDense, convert, graph
from apical.keras.unit import KINDS

rng = np.random.default_rng(2)
X = rng.normal(size=(3, 10, 10, 1)).astype("float32")


def numpy(tensor: Any) -> Any:
    return np.asarray(ops.convert_to_numpy(tensor))


def sequential() -> Any:
    """A convolutional network that applies ReLU in three ways."""
    model = keras.Sequential(
        [
            keras.Input((10, 10, 1)),
            layers.Conv2D(4, 3, activation="relu", name="fused"),
            layers.Conv2D(6, 3, use_bias=False, name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(name="after_norm"),
            layers.Flatten(name="flat"),
            layers.Dense(5, name="dense"),
            layers.Activation("relu", name="after_dense"),
            layers.Dense(3, activation="softmax", name="output"),
        ]
    )
    for weight in model.weights:
        weight.assign(np.abs(rng.normal(size=weight.shape)) * 0.4 - 0.1 * (len(weight.shape) > 1))
    return model


def residual() -> Any:
    """A functional model with a residual sum, an operation, a shared layer and a model inside."""
    x = keras.Input((8,), name="in")
    inner = keras.Sequential([keras.Input((8,)), layers.Dense(8, activation="relu", name="inside")], name="inner")
    shared = layers.Dense(8, activation="gelu", name="shared")
    h = inner(shared(shared(x)))
    h = ops.relu(layers.Dense(8, name="before_op")(h))
    h = layers.Activation("relu", name="after_add")(layers.Add()([layers.Dense(8, name="in_sum")(h), x]))
    h = layers.Activation("tanh", name="gate")(layers.Dense(8, name="before_gate")(h))
    return keras.Model(x, layers.Dense(2, name="out")(h))


def survivors(model: Any) -> set[str]:
    """The activations that a converted model still applies, found by looking at its layers."""
    return {name for _, operation, _ in graph.members(model) if (name := graph.activation_of(operation))}


@pytest.mark.parametrize(
    ("make", "kind"),
    [*((sequential, kind) for kind in KINDS), (residual, "ada(alpha=learn)"), (residual, "leaky_pynada")],
)
def test_every_kind_converts_and_trains(make: Any, kind: str) -> None:
    report = convert(make(), kind)
    model = report.model
    x = X if make is sequential else rng.normal(size=(3, 8)).astype("float32")
    y = numpy(model(x))
    assert np.isfinite(y).all()
    model.compile(optimizer="sgd", loss="mse")
    before = [w.copy() for w in model.get_weights()]
    model.train_on_batch(x, np.ones_like(y))
    assert any((a != b).any() for a, b in zip(before, model.get_weights(), strict=True))


def test_a_standard_unit_replaces_every_activation() -> None:
    report = convert(sequential(), "ada(alpha=0.3,c=1)")
    assert [row.name for row in report.converted] == ["fused", "after_norm", "after_dense"]
    assert survivors(report.model) == {"ada", "softmax"}
    fused = report.model.get_layer("fused")
    assert isinstance(fused.activation, ADA)
    assert (fused.activation.alpha, fused.activation.c) == (0.3, 1.0)


def test_the_weights_are_copied_and_the_original_is_untouched() -> None:
    model = sequential()
    before = numpy(model(X))
    report = convert(model, "relu")
    assert numpy(report.model(X)) == pytest.approx(before, rel=1e-5)
    report.model.compile(optimizer="sgd", loss="mse")
    report.model.train_on_batch(X, np.ones((3, 3), "float32"))
    report.model.predict(X, verbose=0)
    assert np.array_equal(numpy(model(X)), before)


def test_a_pyramidal_unit_takes_in_the_layer_and_the_norm_before_it() -> None:
    model = sequential()
    report = convert(model, "leaky_pynada")
    assert [row.name for row in report.converted] == ["fused", "after_norm", "after_dense"]
    assert survivors(report.model) == {"softmax"}
    for name, kind in (("fused", PyramidalConv2D), ("conv", PyramidalConv2D), ("dense", PyramidalDense)):
        neuron, old = report.model.get_layer(name), model.get_layer(name)
        assert isinstance(neuron, kind)
        assert isinstance(neuron.apical, LeakyADA)
        assert np.array_equal(numpy(neuron.basal_kernel), numpy(old.kernel))
        assert numpy(neuron.apical_kernel).std() > 0
    norms = report.model.get_layer("conv").basal_norm.get_weights(), model.get_layer("norm").get_weights()
    assert all(np.array_equal(a, b) for a, b in zip(*norms, strict=True))


def test_keep_function_keeps_the_outputs_and_reaches_the_apical_branch() -> None:
    model = sequential()
    report = convert(model, "pynada", keep_function=True)
    assert numpy(report.model(X)) == pytest.approx(numpy(model(X)), rel=1e-6)
    report.model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    report.model.train_on_batch(X, np.ones((3, 3), "float32"))
    assert numpy(report.model.get_layer("dense").apical_kernel).any()


def test_keep_function_refuses_another_activation() -> None:
    model = keras.Sequential([keras.Input((2,)), layers.Dense(2, activation="gelu")])
    with pytest.raises(errors.ConversionError, match="applies gelu: leave keep_function out"):
        convert(model, "pynada", keep_function=True)


def test_functional_models_with_shared_layers_operations_and_models_inside() -> None:
    report = convert(residual(), "ada")
    assert {row.name for row in report.converted} == {"shared", "inner/inside", "after_add"} | {
        row.name for row in report.rows if row.name.startswith("relu")
    }
    assert len(report.converted) == 4
    assert survivors(report.model) == {"ada", "tanh"}
    assert [row.reason for row in report.kept] == ["tanh is not among the kinds to convert"]


def test_through_a_residual_sum_the_apical_branch_is_added_behind_the_activation() -> None:
    model = residual()
    report = convert(model, "pynada(c=1)", keep_function=False, kinds=["relu"])
    assert {row.name for row in report.converted} >= {"inner/inside", "after_add"}
    x, new = rng.normal(size=(3, 8)).astype("float32"), report.model
    read = [new.get_layer(name).output for name in ("before_op", "in_sum_apical", "after_add")]
    h, apical, basal = (numpy(t) for t in keras.Model(new.input, read)(x))
    kernel, second = numpy(model.get_layer("in_sum").kernel), numpy(new.get_layer("in_sum_apical").kernel)
    assert basal == pytest.approx(np.maximum(h @ kernel + x, 0), rel=1e-4, abs=1e-5)
    assert apical == pytest.approx(h @ second, rel=1e-4, abs=1e-5)
    total = basal + np.maximum(apical, 0) * np.exp(1 - np.maximum(apical, 0))
    expected = model.layers[-1](np.tanh(numpy(model.get_layer("before_gate")(total))))
    assert numpy(new(x)) == pytest.approx(numpy(expected), rel=1e-3, abs=1e-4)


def test_keep_function_through_a_residual_sum_with_norms() -> None:
    x = keras.Input((6, 6, 3))
    h = layers.BatchNormalization()(layers.Conv2D(3, 3, padding="same", use_bias=False)(x))
    model = keras.Model(x, layers.ReLU(name="end")(h + x))
    report = convert(model, "pynada", keep_function=True)
    assert [row.name for row in report.converted] == ["end"]
    batch = rng.normal(size=(4, 6, 6, 3)).astype("float32")
    assert numpy(report.model(batch)) == pytest.approx(numpy(model(batch)), rel=1e-6)
    report.model.compile(optimizer="sgd", loss="mse")
    report.model.train_on_batch(batch, batch + 1)
    gammas = [w for w in report.model.trainable_weights if "apical" in w.path and w.name == "gamma"]
    assert len(gammas) == 1
    assert numpy(gammas[0]).any()


def test_two_layers_in_one_sum_are_listed() -> None:
    x = keras.Input((4,))
    h = layers.Dense(4)(x) + layers.Dense(4)(x)
    model = keras.Model(x, layers.Dense(4, activation="relu")(layers.ReLU(name="after_two")(h)))
    assert [row.name for row in convert(model, "pynada").kept] == ["after_two"]


def test_what_no_layer_feeds_is_listed_with_its_reason() -> None:
    model = keras.Sequential(
        [
            keras.Input((8, 4)),
            layers.LayerNormalization(),
            layers.ReLU(name="first"),
            layers.SeparableConv1D(4, 3, activation="relu", name="separable"),
            layers.LSTM(4, activation="relu", name="recurrent"),
            layers.Dense(4, activation="relu", name="dense"),
        ]
    )
    report = convert(model, "pynada")
    assert {row.name: row.reason for row in report.kept} == {
        "first": "no Dense, Conv1D or Conv2D layer feeds this activation alone",
        "separable": "there is no pyramidal SeparableConv1D, only Dense, Conv1D and Conv2D",
        "recurrent": "the activation is part of the cell of a LSTM",
    }
    assert [row.name for row in report.converted] == ["dense"]


def test_a_layer_whose_output_is_used_twice_is_not_taken_in() -> None:
    x = keras.Input((4,))
    h = layers.Dense(4)(x)
    model = keras.Model(x, layers.Dense(4, activation="relu")(layers.ReLU(name="one_of_two")(h) + h))
    assert [row.name for row in convert(model, "pynada").kept] == ["one_of_two"]


def test_kinds_and_filter_choose() -> None:
    assert len(convert(residual(), "ada", kinds=["tanh"]).converted) == 1
    report = convert(residual(), "ada", filter_fn=lambda name, layer: name != "inner/inside")
    assert ("inner/inside", "filter_fn leaves it out") in [(row.name, row.reason) for row in report.kept]


@pytest.mark.parametrize("kind", ["ada", "pynada"])
def test_one_alpha_serves_a_network_and_survives_storage(kind: str, tmp_path: Any) -> None:
    model = convert(sequential(), f"{kind}(alpha=learn,alpha_init=0.5)").model
    alphas = [w for w in model.trainable_weights if w.name == "ada_alpha"]
    assert len(alphas) == 1
    alphas[0].assign([0.7])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert [numpy(w).tolist() for w in again.trainable_weights if w.name == "ada_alpha"] == [[np.float32(0.7)]]
    assert np.array_equal(numpy(again(X)), numpy(model(X)))
    twice = [keras.saving.load_model(tmp_path / "model.keras") for _ in range(2)]
    assert not {id(w) for w in twice[0].weights} & {id(w) for w in twice[1].weights}


@pytest.mark.parametrize(("scope", "shapes"), [("layer", [1, 1, 1]), ("channel", [4, 6, 5])])
@pytest.mark.parametrize("kind", ["ada", "pynada"])
def test_a_learned_alpha_has_its_scope(kind: str, scope: str, shapes: list[int], tmp_path: Any) -> None:
    model = convert(sequential(), f"{kind}(alpha=learn,scope={scope})").model
    assert [w.shape[0] for w in model.trainable_weights if w.name == "ada_alpha"] == shapes
    model.save(tmp_path / "model.keras")
    assert np.array_equal(numpy(keras.saving.load_model(tmp_path / "model.keras")(X)), numpy(model(X)))


def test_a_converted_model_converts_again() -> None:
    report = convert(convert(sequential(), "ada").model, "leaky_ada")
    assert survivors(report.model) == {"leaky_ada", "softmax"}


def test_a_model_without_a_shape_converts_before_it_is_built() -> None:
    model = keras.Sequential([layers.Dense(3, activation="relu"), layers.Dense(1)])
    report = convert(model, "pynada")
    assert numpy(report.model(np.ones((2, 4), "float32"))).shape == (2, 1)


def test_the_report_prints_a_table() -> None:
    lines = str(convert(sequential(), "pynada")).splitlines()
    assert lines[0].split() == ["layer", "before", "after", "reason"]
    assert lines[1].split() == ["fused", "relu", "pynada"]
    assert lines[-1] == "3 of 4 activations became pynada"


def test_a_compiled_model_stays_compiled() -> None:
    model = sequential()
    model.compile(optimizer="adam", loss="categorical_crossentropy")
    assert convert(model, "ada").model.optimizer.__class__.__name__ == "Adam"


class Subclassed(keras.Model):
    def call(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: convert(sequential(), "adda"),
            errors.InvalidArgumentError,
            "unknown unit 'adda'; did you mean 'ada'",
        ),
        (
            lambda: convert(Subclassed(), "ada"),
            errors.ConversionError,
            "needs a functional or sequential model, got Subcl",
        ),
        (
            lambda: convert(keras.Sequential([keras.Input((2,)), layers.Dense(2, activation="tanh")]), "ada"),
            errors.ConversionError,
            r"applies only 'tanh': name what to replace, e.g. convert\(model, 'ada', kinds=\['tanh'\]\)",
        ),
        (
            lambda: convert(keras.Sequential([keras.Input((2,)), layers.Dense(2)]), "ada"),
            errors.ConversionError,
            "it has no activations",
        ),
        (
            lambda: convert(sequential(), "ada", filter_fn=lambda name, layer: False),
            errors.ConversionError,
            "fused: filter_fn leaves it out",
        ),
        (lambda: convert(sequential(), "ada", kinds=["rellu"]), errors.ConversionError, "only 'relu', 'softmax'"),
    ],
)
def test_wrong_calls_are_refused_in_one_sentence(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
