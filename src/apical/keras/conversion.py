"""`convert(model, unit)`: a Keras model with every activation replaced by a unit of apical."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import keras
import numpy as np
from keras import ops

from apical.errors import ConversionError
from apical.keras import graph
from apical.keras.branches import join
from apical.keras.pyramidal import PyramidalConv1D, PyramidalConv2D, PyramidalDense
from apical.keras.report import ConversionReport, Row
from apical.keras.unit import Unit

HIDDEN_KINDS = (
    "relu", "relu6", "leaky_relu", "prelu", "elu", "celu", "selu", "gelu", "silu", "hard_silu", "mish",
    "ada", "leaky_ada", "rbf", "swish",
)  # fmt: skip
"""What `convert` replaces unless told otherwise: the activations of hidden layers, not gates and outputs."""

NEURONS = {
    keras.layers.Dense: PyramidalDense,
    keras.layers.Conv1D: PyramidalConv1D,
    keras.layers.Conv2D: PyramidalConv2D,
}
NORMS = (keras.layers.BatchNormalization, keras.layers.LayerNormalization, keras.layers.GroupNormalization)

Filter = Callable[[str, Any], bool]


def convert(
    model: Any,
    unit: str | Unit,
    *,
    filter_fn: Filter | None = None,
    kinds: Sequence[str] = HIDDEN_KINDS,
    keep_function: bool = False,
) -> ConversionReport:
    """A copy of a functional or sequential model in which `unit` stands for every activation; weights are copied.

    A pyramidal unit also takes the Dense, Conv1D or Conv2D layer that feeds the activation, with a norm between them:
    the original weights become the basal branch. `kinds` names what is replaced, `filter_fn(name, layer)` may
    spare some. With `keep_function` the apical branch starts at zero, so that the outputs stay the same.
    """
    if not graph.is_model(model) or not (isinstance(model, keras.Sequential) or hasattr(model, "_nodes_by_depth")):
        raise ConversionError(
            f"convert needs a functional or sequential model, got {type(model).__name__}: "
            "a model written as a class hides its calls, so put layers of apical.keras into its code"
        )
    wanted = Unit.parse(unit)
    plan = _Plan(wanted, filter_fn or (lambda _name, _layer: True), tuple(kinds), keep_function)
    for name, operation, feeder in graph.members(model):
        plan.add(name, operation, feeder)
    if not any(row.converted for row in plan.rows):
        raise ConversionError(_nothing(model, wanted, plan.rows))
    copy = keras.models.clone_model(model, clone_function=plan.clone, recursive=True)
    plan.copy_weights()
    return ConversionReport(copy, str(wanted), plan.rows)


class _Plan:
    """What each layer becomes, decided for all before the first is cloned."""

    def __init__(self, unit: Unit, filter_fn: Filter, kinds: tuple[str, ...], keep_function: bool) -> None:
        self.unit, self.filter_fn, self.kinds, self.keep_function = unit, filter_fn, kinds, keep_function
        self.rows: list[Row] = []
        self.makers: dict[int, Callable[[Any], Any]] = {}
        self.pairs: list[tuple[Any, Any]] = []
        self.fed: dict[int, Any] = {}
        self.shared: dict[str, Any] = {}

    def add(self, name: str, operation: Any, feeder: Any) -> None:
        """Decide about one layer, and write the row of the report."""
        self.fed[id(operation)] = feeder
        before = graph.activation_of(operation)
        if before is None:
            return
        reason = self._why_kept(name, operation, before)
        if not reason and self.unit.branches is None:
            self.makers[id(operation)] = self._with_activation
        elif not reason:
            reason = self._plan_neuron(operation, before)
        self.rows.append(Row(name, before, before if reason else str(self.unit), reason))

    def _why_kept(self, name: str, operation: Any, before: str) -> str:
        if before not in self.kinds:
            return f"{before} is not among the kinds to convert"
        if not self.filter_fn(name, operation):
            return "filter_fn spares it"
        if hasattr(operation, "recurrent_activation") or hasattr(operation, "cell"):
            return f"the activation is part of the cell of a {type(operation).__name__}"
        return ""

    def _plan_neuron(self, operation: Any, before: str) -> str:
        """Make a pyramidal neuron of the activation and what feeds it, or say why not."""
        if type(operation) in NEURONS:
            affine, chain = operation, list[Any]()
        elif graph.is_only_activation(operation):
            affine, chain = self._chain(operation)
        else:
            return f"there is no pyramidal {type(operation).__name__}, only Dense, Conv1D and Conv2D"
        if type(affine) not in NEURONS or (chain and graph.activation_of(affine)):
            return "no Dense, Conv1D or Conv2D layer feeds this activation alone"
        if self.keep_function and not self._same_as_basal(operation, before):
            raise ConversionError(
                f"keep_function=True needs the activation of the unit's basal branch, "
                f"but {operation.name!r} applies {before}: leave keep_function out, or spare it with filter_fn"
            )
        norm = next((layer for layer in chain if isinstance(layer, NORMS)), None)
        self.makers[id(affine)] = lambda layer: self._neuron(layer, norm)
        self.makers |= {id(layer): _identity for layer in chain}
        return ""

    def _chain(self, operation: Any) -> tuple[Any, list[Any]]:
        """The layer that feeds an activation, and what stands behind it: a norm, perhaps, and the activation."""
        chain, before = [operation], self.fed[id(operation)]
        if isinstance(before, NORMS):
            chain, before = [before, operation], self.fed.get(id(before))
        return before, chain

    def _same_as_basal(self, operation: Any, before: str) -> bool:
        basal = (self.unit.branches or ("", ""))[0]
        slope = getattr(operation, "negative_slope", 0.0)
        return before == basal and slope == (self.unit.leak if basal == "leaky_relu" else 0.0)

    def clone(self, layer: Any) -> Any:
        """The layer that stands for `layer` in the new model."""
        new = self.makers.get(id(layer), _clone)(layer)
        self.pairs.append((layer, new))
        return new

    def _activation(self, kind: str, layer: Any) -> Any:
        """A new activation; with network scope, the one that all layers share."""
        if kind in self.shared:
            return self.shared[kind]
        axis = 1 if getattr(layer, "data_format", None) == "channels_first" else -1
        channels = getattr(layer, "units", getattr(layer, "filters", None)) or graph.channels(layer)
        new = self.unit.layer(kind, channels=channels, axis=axis, dtype=getattr(layer, "dtype_policy", None))
        if self.unit.scope == "network" and new.weights:
            new.shared = uuid4().hex
            self.shared[kind] = new
        return new

    def _with_activation(self, layer: Any) -> Any:
        """The same layer with the unit's activation, or an Activation layer where it was nothing else."""
        new = self._activation(self.unit.kind, layer)
        if graph.is_only_activation(layer):
            return keras.layers.Activation(new, name=layer.name, dtype=getattr(layer, "dtype_policy", None))
        return type(layer).from_config({**layer.get_config(), "activation": new})

    def _neuron(self, layer: Any, norm: Any) -> Any:
        basal, apical = self.unit.branches or ("", "")
        config = {k: v for k, v in layer.get_config().items() if k not in ("activation", "quantization_config")}
        branches = {"basal": self._activation(basal, layer), "apical": self._activation(apical, layer), "norm": norm}
        return NEURONS[type(layer)](**config, **branches)

    def copy_weights(self) -> None:
        """The weights of every old layer into the new one; where it became a neuron, into the basal branch."""
        neurons = {id(old): new for old, new in self.pairs if type(old) in NEURONS and type(new) in NEURONS.values()}
        for old, new in self.pairs:
            if not getattr(old, "built", False) or not hasattr(old, "weights"):
                continue
            if id(old) in neurons:
                self._fill(new, old)
            elif isinstance(old, NORMS) and type(new) is not type(old):
                neurons[id(self.fed[id(old)])].basal_norm.set_weights(old.get_weights())
            elif not graph.is_only_activation(old):
                _copy(old, new)

    def _fill(self, neuron: Any, layer: Any) -> None:
        scale = 0.0 if self.keep_function else 1.0
        neuron.kernel.assign(join(layer.kernel, neuron.apical_kernel * scale, neuron.groups))
        if layer.use_bias:
            neuron.affine.bias.assign(join(layer.bias, layer.bias * 0.0, neuron.groups))


def _clone(layer: Any) -> Any:
    return type(layer).from_config(layer.get_config())


def _identity(layer: Any) -> Any:
    """What keeps the place of a layer that a neuron took in."""
    return keras.layers.Activation("linear", name=layer.name, dtype=getattr(layer, "dtype_policy", None))


def _copy(old: Any, new: Any) -> None:
    """The weights of `old` into `new`, those of their activations left out."""
    sources, targets = (
        [w for w in layer.weights if id(w) not in {id(v) for v in getattr(_activation_layer(layer), "weights", ())}]
        for layer in (old, new)
    )
    for source, target in zip(sources, targets, strict=True):
        # A copy: JAX would let both models hold one buffer, and give it away at the next step of either.
        target.assign(np.array(ops.convert_to_numpy(source)))


def _activation_layer(layer: Any) -> Any:
    return getattr(layer, "activation", None)


def _nothing(model: Any, unit: Unit, rows: list[Row]) -> str:
    """Why nothing was converted, and the call that would."""
    other = sorted({f"{row.name}: {row.reason}" for row in rows if not row.reason.endswith("to convert")})
    if rows and not other:
        names = ", ".join(repr(name) for name in sorted({row.before for row in rows}))
        return (
            f"nothing in {model.name!r} was converted, for it applies only {names}: "
            f"name what to replace, e.g. convert(model, {str(unit)!r}, kinds=[{names}])"
        )
    return (
        f"nothing in {model.name!r} was converted ({'; '.join(other) or 'it has no activations'}): "
        "give a model with hidden activations, e.g. Dense(10, activation='relu'), or a filter_fn that spares less"
    )
