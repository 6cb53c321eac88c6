"""What each layer of a model becomes, decided for all of them before the first is cloned."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import keras
import numpy as np
from keras import ops

from apical.errors import ConversionError
from apical.keras import graph
from apical.keras.branches import join, reseeded
from apical.keras.pyramidal import PyramidalConv1D, PyramidalConv2D, PyramidalDense
from apical.keras.report import Change
from apical.keras.unit import layer as layer_of
from apical.nn.unit import Unit

NEURONS = {
    keras.layers.Dense: PyramidalDense,
    keras.layers.Conv1D: PyramidalConv1D,
    keras.layers.Conv2D: PyramidalConv2D,
}
NORMS = (keras.layers.BatchNormalization, keras.layers.LayerNormalization, keras.layers.GroupNormalization)

Filter = Callable[[str, Any], bool]


@dataclass
class Side:
    """An apical branch beside a residual sum: layers like those of the basal branch, on the same input."""

    affine: Any
    norm: Any
    activation: Any = None
    input: Any = None

    def output(self) -> Any:
        """What the branch adds behind the basal activation."""
        x = self.affine(self.input)
        return self.activation(x if self.norm is None else self.norm(x))


class ConversionPlan:
    """Made of the members of a model; give `clone` and `call` to Keras, then `copy_weights`; `rows` is the report."""

    def __init__(
        self, members: list[graph.Member], unit: Unit, filter_fn: Filter, kinds: tuple[str, ...], keep_function: bool
    ) -> None:
        self.unit, self.filter_fn, self.kinds, self.keep_function = unit, filter_fn, kinds, keep_function
        self.branches = {"basal": unit.basal} | ({"apical": unit.apical} if unit.pyramidal else {})
        self.rows: list[Change] = []
        self.sides: list[Side] = []
        self._makers: dict[int, Callable[[Any], Any]] = {}
        self._pairs: list[tuple[Any, Any]] = []
        self._fed = {id(operation): feeders for _, operation, feeders in members}
        self._shared: dict[str, Any] = {}
        self._starts: dict[int, Side] = {}  # by the id of the affine layer of the basal branch, old and then new
        self._ends: dict[int, Side] = {}  # by the id of the activation, old and then new
        for name, operation, _ in members:
            self._decide(name, operation)

    # Deciding

    def _decide(self, name: str, operation: Any) -> None:
        """Decide about one layer, and write the row of the report."""
        before = graph.activation_of(operation)
        if before is None:
            return
        reason = self._why_kept(name, operation, before)
        if not reason and not self.unit.pyramidal:
            self._makers[id(operation)] = self._with_activation
        elif not reason:
            reason = self._plan_neuron(operation, before)
        self.rows.append(Change(name, before, before if reason else str(self.unit), reason))

    def _why_kept(self, name: str, operation: Any, before: str) -> str:
        if before not in self.kinds:
            return f"{before} is not among the kinds to convert"
        if not self.filter_fn(name, operation):
            return "filter_fn leaves it out"
        if hasattr(operation, "recurrent_activation") or hasattr(operation, "cell"):
            return f"the activation is part of the cell of a {type(operation).__name__}"
        return ""

    def _plan_neuron(self, operation: Any, before: str) -> str:
        """Make a pyramidal neuron of the activation and what feeds it, or say why not."""
        if type(operation) in NEURONS:
            self._check_function(operation, before)
            self._makers[id(operation)] = lambda layer: self._neuron(layer, None)
            return ""
        if not graph.is_only_activation(operation):
            return f"there is no pyramidal {type(operation).__name__}, only Dense, Conv1D and Conv2D"
        feeder = self._one(operation)
        through_sum = feeder is not None and graph.is_sum(feeder)
        ends = [self._affine(end) for end in (self._fed.get(id(feeder), ()) if through_sum else (feeder,))]
        found = [(affine, norm) for affine, norm in ends if type(affine) in NEURONS and not graph.activation_of(affine)]
        if len(found) != 1:
            return "no Dense, Conv1D or Conv2D layer feeds this activation alone"
        self._check_function(operation, before)
        affine, norm = found[0]
        if through_sum:
            self._plan_side(operation, affine, norm)
        else:
            self._makers[id(affine)] = lambda layer: self._neuron(layer, norm)
            self._makers |= {id(layer): _identity for layer in (norm, operation) if layer is not None}
        return ""

    def _one(self, operation: Any) -> Any:
        feeders = self._fed.get(id(operation), ())
        return feeders[0] if len(feeders) == 1 else None

    def _affine(self, end: Any) -> tuple[Any, Any]:
        """A layer, or the one before it where it is a norm, and that norm."""
        return (self._one(end), end) if isinstance(end, NORMS) else (end, None)

    def _check_function(self, operation: Any, before: str) -> None:
        slope = getattr(operation, "negative_slope", 0.0)
        basal = self.branches["basal"]
        same = before == basal.kind and slope == (basal.leak if basal.kind == "leaky_relu" else 0.0)
        if self.keep_function and not same:
            raise ConversionError(
                f"keep_function=True needs the activation of the unit's basal branch, "
                f"but {operation.name!r} applies {before}: leave keep_function out, or exclude it with filter_fn"
            )

    def _plan_side(self, operation: Any, affine: Any, norm: Any) -> None:
        config = {**affine.get_config(), "name": f"{affine.name}_apical"}
        config["kernel_initializer"] = reseeded(affine.kernel_initializer)
        second = None if norm is None else type(norm).from_config({**norm.get_config(), "name": f"{norm.name}_apical"})
        side = Side(type(affine).from_config(config), second)
        self.sides.append(side)
        self._starts[id(affine)] = self._ends[id(operation)] = side
        self._makers[id(operation)] = self._with_activation

    # Cloning

    def clone(self, layer: Any) -> Any:
        """The layer that stands for `layer` in the new model."""
        new = self._makers.get(id(layer), _clone)(layer)
        self._pairs.append((layer, new))
        if id(layer) in self._starts:
            self._starts[id(new)] = self._starts[id(layer)]
        if id(layer) in self._ends:
            self._ends[id(new)] = side = self._ends[id(layer)]
            side.activation = self._activation("apical", layer)
        return new

    def call(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        """What a new layer gives in the new model, with the apical branch that ends there."""
        output = layer(*args, **kwargs)
        if id(layer) in self._starts:
            self._starts[id(layer)].input = args[0]
        if id(layer) in self._ends:
            output = keras.layers.Add()([output, self._ends[id(layer)].output()])
        return output

    def _activation(self, branch: str, layer: Any) -> Any:
        """A new activation; with network scope, the one that all layers share."""
        if branch in self._shared:
            return self._shared[branch]
        axis = 1 if getattr(layer, "data_format", None) == "channels_first" else -1
        channels = getattr(layer, "units", getattr(layer, "filters", None)) or graph.channels(layer)
        unit = self.branches[branch]
        new = layer_of(unit, channels=channels, axis=axis, dtype=getattr(layer, "dtype_policy", None))
        if unit.scope == "network" and new.weights:
            new.shared = uuid4().hex
            self._shared[branch] = new
        return new

    def _with_activation(self, layer: Any) -> Any:
        """The same layer with the unit's (basal) activation, or an Activation layer where it was nothing else."""
        new = self._activation("basal", layer)
        if graph.is_only_activation(layer):
            return keras.layers.Activation(new, name=layer.name, dtype=getattr(layer, "dtype_policy", None))
        return type(layer).from_config({**layer.get_config(), "activation": new})

    def _neuron(self, layer: Any, norm: Any) -> Any:
        config = {k: v for k, v in layer.get_config().items() if k not in ("activation", "quantization_config")}
        basal, apical = self._activation("basal", layer), self._activation("apical", layer)
        return NEURONS[type(layer)](**config, basal=basal, apical=apical, norm=norm)

    # Weights

    def copy_weights(self) -> None:
        """The weights of every old layer into the new one; where it became a neuron, into the basal branch."""
        neurons = {id(old): new for old, new in self._pairs if type(old) in NEURONS and type(new) in NEURONS.values()}
        for old, new in self._pairs:
            if not getattr(old, "built", False) or not hasattr(old, "weights"):
                continue
            if id(old) in neurons:
                self._fill(new, old)
            elif isinstance(old, NORMS) and type(new) is not type(old):
                neurons[id(self._one(old))].basal_norm.set_weights(old.get_weights())
            elif not graph.is_only_activation(old):
                _copy(old, new)
        for side in self.sides if self.keep_function else ():
            _silence(side.affine if side.norm is None else side.norm)

    def _fill(self, neuron: Any, layer: Any) -> None:
        neuron.kernel.assign(join(layer.kernel, neuron.apical_kernel, neuron.groups))
        if layer.use_bias:
            neuron.affine.bias.assign(join(layer.bias, layer.bias * 0.0, neuron.groups))
        if self.keep_function and neuron.apical_norm is not None:
            _silence(neuron.apical_norm)
        elif self.keep_function:
            neuron.kernel.assign(join(layer.kernel, neuron.apical_kernel * 0.0, neuron.groups))


def _silence(layer: Any) -> None:
    """Let a layer give 0 and learn from there: its trainable weights are put to 0."""
    for weight in layer.trainable_weights:
        weight.assign(np.zeros(weight.shape))


def _clone(layer: Any) -> Any:
    return type(layer).from_config(layer.get_config())


def _identity(layer: Any) -> Any:
    """What keeps the place of a layer that a neuron took in."""
    return keras.layers.Activation("linear", name=layer.name, dtype=getattr(layer, "dtype_policy", None))


def _copy(old: Any, new: Any) -> None:
    """The weights of `old` into `new`, those of their activations left out."""
    sources, targets = ([w for w in layer.weights if id(w) not in _of_activation(layer)] for layer in (old, new))
    for source, target in zip(sources, targets, strict=True):
        # A copy: JAX would let both models hold one buffer, and give it away at the next step of either.
        target.assign(np.array(ops.convert_to_numpy(source)))


def _of_activation(layer: Any) -> set[int]:
    return {id(weight) for weight in getattr(getattr(layer, "activation", None), "weights", ())}
