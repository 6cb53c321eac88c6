"""How the layers of a Keras model follow one another, and which activation each of them applies."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import keras

from apical.keras.activations import ADA, RBF, LeakyADA, Swish

# Layers that are an activation and nothing else, and the name of what they compute.
ACTIVATION_LAYERS = {
    keras.layers.ReLU: "relu",
    keras.layers.LeakyReLU: "leaky_relu",
    keras.layers.PReLU: "prelu",
    keras.layers.ELU: "elu",
    keras.layers.Softmax: "softmax",
    ADA: "ada",
    LeakyADA: "leaky_ada",
    RBF: "rbf",
    Swish: "swish",
}

# keras.ops called on the tensors of a functional model leave an operation of this class in it.
OPERATIONS = {
    "Relu": "relu", "Relu6": "relu6", "LeakyRelu": "leaky_relu", "Elu": "elu", "Selu": "selu", "Celu": "celu",
    "Gelu": "gelu", "Silu": "silu", "HardSilu": "hard_silu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softmax": "softmax",
}  # fmt: skip

Member = tuple[str, Any, tuple[Any, ...]]
"""The name of a layer or operation, itself, and what feeds it."""

ALIASES = {"swish": "silu", "hard_swish": "hard_silu", "ReLU": "relu"}


def activation_of(operation: Any) -> str | None:
    """The name of the activation that a layer or operation applies last, or None where it applies none."""
    if not isinstance(operation, keras.layers.Layer):
        return OPERATIONS.get(type(operation).__name__)
    if type(operation) in ACTIVATION_LAYERS:
        return ACTIVATION_LAYERS[type(operation)]
    function = getattr(operation, "activation", None)
    if function is None or function is keras.activations.linear or not callable(function):
        return None
    if isinstance(function, keras.layers.Layer):
        return ACTIVATION_LAYERS.get(type(function), type(function).__name__)
    name = getattr(function, "__name__", type(function).__name__)
    return ALIASES.get(name, name)


def is_only_activation(operation: Any) -> bool:
    """True for layers and operations that are an activation and nothing else."""
    if not isinstance(operation, keras.layers.Layer):
        return type(operation).__name__ in OPERATIONS
    return type(operation) in ACTIVATION_LAYERS or type(operation) is keras.layers.Activation


def is_model(operation: Any) -> bool:
    """True for functional and sequential models, whose layers can be seen."""
    return isinstance(operation, keras.Sequential) or hasattr(operation, "operations")


def members(model: Any, prefix: str = "", *, sums: bool = True) -> Iterator[Member]:
    """Each layer or operation of a model and of the models in it: its name, itself, and what feeds it.

    What feeds it are the layers that are called once and whose output goes nowhere else: one at most, or for a sum of
    several tensors one for each. Sums inside of a sequential model are left out, for cloning it hides their calls.
    """
    feeds = feeders(model)
    sums = sums and not isinstance(model, keras.Sequential)
    for operation in operations(model):
        name = prefix + operation.name
        if is_model(operation):
            yield from members(operation, name + "/", sums=sums)
        elif sums or not is_sum(operation):
            yield name, operation, feeds.get(id(operation), ())


def operations(model: Any) -> list[Any]:
    """The layers of a sequential model, or the layers and operations of a functional one, inputs left out."""
    found = model.layers if isinstance(model, keras.Sequential) else model.operations
    return [operation for operation in found if not isinstance(operation, keras.layers.InputLayer)]


def is_sum(operation: Any) -> bool:
    """True for layers and operations that add tensors, as a residual connection does."""
    return type(operation).__name__ == "Add"


def feeders(model: Any) -> dict[int, tuple[Any, ...]]:
    """By the id of a layer: the layers that feed it and nothing else."""
    if isinstance(model, keras.Sequential):
        return {id(after): (before,) for before, after in zip(model.layers, model.layers[1:], strict=False)}
    nodes = [node for level in model._nodes_by_depth.values() for node in level if not node.is_input]
    calls = Counter(id(node.operation) for node in nodes)
    uses = Counter(id(tensor) for node in nodes for tensor in node.input_tensors)
    uses.update(id(tensor) for tensor in model.outputs)
    found = {}
    for node in nodes:
        if calls[id(node.operation)] == 1 and (len(node.input_tensors) == 1 or is_sum(node.operation)):
            before = [(tensor._keras_history.operation, tensor) for tensor in node.input_tensors]
            found[id(node.operation)] = tuple(op for op, t in before if uses[id(t)] == 1 and calls[id(op)] == 1)
    return found


def channels(layer: Any) -> int | None:
    """The size of the last axis of what a layer of a built model gives, where it is known."""
    try:
        return layer.output.shape[-1]  # type: ignore[no-any-return]
    except (AttributeError, ValueError):  # never called, or called several times
        return None
