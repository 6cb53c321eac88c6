"""Pyramidal neurons: PyramidalDense, PyramidalConv1D, PyramidalConv2D (Eq. 12 of the paper)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import keras

from apical.errors import InvalidArgumentError
from apical.keras.branches import PerBranch, split
from apical.keras.functional import PACKAGE
from apical.keras.unit import activation

Shape = Sequence[int | None]


class Pyramidal(keras.layers.Layer):
    """basal(x') + apical(x''), where x' and x'' are the two halves of one affine layer of twice the outputs.

    `basal` and `apical` are activations: the name of a unit's (`"ada(alpha=0.3,c=1)"`) or Keras', a layer, a function.
    `norm`, a Keras layer or its class, is built once for each branch. All other settings are those of the Keras layer.
    Called with a second input, `apical_input`, the apical dendrite is a longer one and has a kernel of its own.
    """

    affine_class: ClassVar[Any]
    outputs_name: ClassVar[str]

    def __init__(
        self,
        *,
        basal: Any = "relu",
        apical: Any = "ada",
        norm: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        activity_regularizer: Any = None,
        **settings: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype, trainable=trainable, activity_regularizer=activity_regularizer)
        if "activation" in settings:
            raise InvalidArgumentError(
                f"{type(self).__name__} has two activations, but activation={settings['activation']!r} is one: "
                "use basal= and apical="
            )
        self.settings = _settings(self.affine_class(**settings))
        self.outputs: int = self.settings[self.outputs_name]
        self.groups: int = self.settings.get("groups", 1)
        self.channel_axis = 1 if self.settings.get("data_format") == "channels_first" else -1
        place = {"channels": self.outputs, "axis": self.channel_axis, "dtype": self.dtype_policy}
        self.basal, self.apical = activation(basal, **place), activation(apical, **place)
        self.norm_config = _norm_config(norm)
        self.supports_masking = self._keeps_steps()
        self.affine: Any = None
        self.apical_affine: Any = None
        self.basal_norm: Any = None
        self.apical_norm: Any = None

    def _keeps_steps(self) -> bool:
        """True where each step of the output belongs to the same step of the input, so that a mask stays right."""
        raise NotImplementedError

    def _affine(self, name: str, outputs: int, **changed: Any) -> Any:
        settings = {**self.settings, self.outputs_name: outputs, **changed}
        layer = self.affine_class(name=name, dtype=self.dtype_policy, **settings)
        layer.supports_masking = True  # whether a mask passes is said by the neuron, once
        return layer

    def _longer(self) -> Any:
        """The affine layer of a longer apical dendrite."""
        return self._affine("apical_affine", self.outputs)

    def build(self, inputs_shape: Shape, apical_input_shape: Shape | None = None) -> None:
        start = self.settings["kernel_initializer"]
        shape = self.compute_output_shape(inputs_shape, apical_input_shape)
        if apical_input_shape is None:
            self.affine = self._affine("affine", 2 * self.outputs, kernel_initializer=PerBranch(start, self.groups))
        else:
            self.affine = self._affine("affine", self.outputs)
            self.apical_affine = self._longer()
            self.apical_affine.build(apical_input_shape)
        self.affine.build(inputs_shape)
        if self.norm_config is not None:
            self.basal_norm, self.apical_norm = self._norm("basal_norm"), self._norm("apical_norm")
        for layer in (self.basal_norm, self.apical_norm, self.basal, self.apical):
            if isinstance(layer, keras.layers.Layer) and not layer.built:
                layer.build(shape)
        self.input_spec = self.affine.input_spec
        self.built = True

    def _norm(self, name: str) -> Any:
        layer = keras.saving.deserialize_keras_object(self.norm_config)
        config = {**layer.get_config(), "name": name, "dtype": self.dtype_policy}
        return type(layer).from_config(config)

    def __call__(self, inputs: Any, apical_input: Any = None, **kwargs: Any) -> Any:
        if self.built and (apical_input is None) != (self.apical_affine is None):
            had, has = ("one input", "two") if self.apical_affine is None else ("two inputs", "one")
            raise InvalidArgumentError(
                f"the layer {self.name!r} was built with {had} and is now called with {has}: "
                "the longer apical dendrite has a kernel of its own, so make a new layer for it"
            )
        if self.built and apical_input is not None:
            self._check_apical_input(tuple(apical_input.shape))
        return super().__call__(inputs, **({} if apical_input is None else {"apical_input": apical_input}), **kwargs)

    def _check_apical_input(self, shape: tuple[int | None, ...]) -> None:
        channels = self.apical_affine.kernel.shape[-2]
        if shape[self.channel_axis] != channels:
            raise InvalidArgumentError(
                f"apical_input has shape {shape}, but the layer {self.name!r} was built for {channels} channels "
                f"along axis {self.channel_axis}"
            )

    def call(self, inputs: Any, apical_input: Any = None) -> Any:
        if self.apical_affine is None:
            basal, apical = split(self.affine(inputs), self.groups, axis=self.channel_axis)
        else:
            basal, apical = self.affine(inputs), self.apical_affine(apical_input)
        if self.basal_norm is not None:
            basal, apical = self.basal_norm(basal), self.apical_norm(apical)
        return self.basal(basal) + self.apical(apical)

    def compute_output_shape(self, inputs_shape: Shape, apical_input_shape: Shape | None = None) -> tuple[Any, ...]:
        affine = self._affine("shape", self.outputs)
        shape = tuple(affine.compute_output_shape(inputs_shape))
        if apical_input_shape is not None:
            second = tuple(self._longer().compute_output_shape(apical_input_shape))
            if len(second) != len(shape) or any(a != b for a, b in zip(shape, second, strict=True) if a and b):
                raise InvalidArgumentError(
                    f"the basal branch gives shape {shape} and the apical branch {second} "
                    f"from inputs of shape {tuple(inputs_shape)} and {tuple(apical_input_shape)}: they must be the same"
                )
        return shape

    @property
    def kernel(self) -> Any:
        """The kernel of both branches; with a second input, that of the basal one."""
        return self.affine.kernel

    @property
    def basal_kernel(self) -> Any:
        """The values of the basal kernel."""
        return split(self.kernel, self.groups)[0] if self.apical_affine is None else self.kernel

    @property
    def apical_kernel(self) -> Any:
        """The values of the apical kernel."""
        return split(self.kernel, self.groups)[1] if self.apical_affine is None else self.apical_affine.kernel

    def get_config(self) -> dict[str, Any]:
        own = {
            "basal": keras.saving.serialize_keras_object(self.basal),
            "apical": keras.saving.serialize_keras_object(self.apical),
            "norm": self.norm_config,
        }
        return {**super().get_config(), **self.settings, **own}


def _settings(affine: Any) -> dict[str, Any]:
    """The settings of a Keras layer, checked and completed by Keras, without what belongs to the neuron around it."""
    outer = ("name", "dtype", "trainable", "activation", "activity_regularizer", "quantization_config")
    return {key: value for key, value in affine.get_config().items() if key not in outer}


def _norm_config(norm: Any) -> Any:
    """A norm layer as Keras stores it."""
    if norm is None or isinstance(norm, dict):
        return norm
    layer = norm() if isinstance(norm, type) else norm
    if not isinstance(layer, keras.layers.Layer):
        raise InvalidArgumentError(
            f"norm is {norm!r}, but must be a Keras layer or its class, e.g. keras.layers.BatchNormalization"
        )
    return keras.saving.serialize_keras_object(layer)


@keras.saving.register_keras_serializable(PACKAGE)
class PyramidalDense(Pyramidal):
    """Pyramidal neurons on a dense layer: (batch, ..., features) to (batch, ..., units). See `Pyramidal`."""

    affine_class = keras.layers.Dense
    outputs_name = "units"

    def __init__(self, units: int, **settings: Any) -> None:
        super().__init__(units=units, **settings)

    def _keeps_steps(self) -> bool:
        return True


class PyramidalConv(Pyramidal):
    """Pyramidal neurons on a convolution; a longer dendrite's has `apical_kernel_size`, `_strides` and `_padding`."""

    outputs_name = "filters"

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, ...],
        *,
        apical_kernel_size: int | tuple[int, ...] = 1,
        apical_strides: int | tuple[int, ...] = 1,
        apical_padding: str = "valid",
        **settings: Any,
    ) -> None:
        self.longer = {"kernel_size": apical_kernel_size, "strides": apical_strides, "padding": apical_padding}
        super().__init__(filters=filters, kernel_size=kernel_size, **settings)

    def _longer(self) -> Any:
        return self._affine("apical_affine", self.outputs, groups=1, dilation_rate=1, **self.longer)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **{f"apical_{key}": value for key, value in self.longer.items()}}

    def _keeps_steps(self) -> bool:
        s = self.settings
        return bool(s["padding"] != "valid" and max(s["strides"]) == 1)


@keras.saving.register_keras_serializable(PACKAGE)
class PyramidalConv1D(PyramidalConv):
    """Pyramidal neurons on a convolution over (batch, steps, channels). See `Pyramidal`."""

    affine_class = keras.layers.Conv1D


@keras.saving.register_keras_serializable(PACKAGE)
class PyramidalConv2D(PyramidalConv):
    """Pyramidal neurons on a convolution over (batch, height, width, channels). See `Pyramidal`."""

    affine_class = keras.layers.Conv2D
