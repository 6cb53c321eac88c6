"""Layers of apical between its two halves: `to_keras(torch module)` and `from_keras(Keras layer)`.

The one part of `apical.keras` that meets torch, which is imported when one of the two is called.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from apical import imports
from apical.errors import ConversionError
from apical.keras import activations as ours
from apical.keras.branches import indices
from apical.keras.pyramidal import Pyramidal, PyramidalConv1D, PyramidalConv2D, PyramidalDense

KERAS_NEURONS = {
    "PyramidalLinear": PyramidalDense,
    "PyramidalConv1d": PyramidalConv1D,
    "PyramidalConv2d": PyramidalConv2D,
}
TORCH_NEURONS = {value: key for key, value in KERAS_NEURONS.items()}


def to_keras(module: Any) -> Any:
    """The Keras layer that computes what a torch module of apical does, with its weights.

    Takes ADA, LeakyADA, RBF, Swish, PyramidalLinear, PyramidalConv1d and PyramidalConv2d. The Keras layer has the data
    format that Keras is set to, by default channels last, where torch has channels first.
    """
    if type(module).__name__ not in KERAS_NEURONS:
        return _activation_to_keras(module)
    layer = KERAS_NEURONS[type(module).__name__](**_settings_to_keras(module))
    layer.build(*_input_shapes(module))
    _assign(layer.affine, module)
    if module.apical_affine is not None:
        _assign(layer.apical_affine, module.apical_affine)
    if module.norm is not None:
        for norm, values in zip((layer.basal_norm, layer.apical_norm), _norm_values(module), strict=True):
            norm.set_weights(values)
    return layer


def from_keras(layer: Any) -> Any:
    """The torch module that computes what a Keras layer of apical does, with its weights; the inverse of `to_keras`."""
    if not isinstance(layer, Pyramidal):
        return _activation_from_keras(layer)
    if not layer.built:
        raise ConversionError(f"the layer {layer.name!r} has no weights yet: call it once, then transfer it")
    torch, nn = _torch(), _nn()
    module = getattr(nn, TORCH_NEURONS[type(layer)])(**_settings_from_keras(layer))
    with torch.no_grad():
        _copy(module, layer.affine)
        if layer.apical_affine is not None:
            _copy(module.apical_affine, layer.apical_affine)
        if layer.basal_norm is not None:
            _copy_norms(module, layer)
    return module


def _torch() -> Any:
    return imports.optional("torch", extra="keras")


def _nn() -> Any:
    _torch()
    from apical import nn  # noqa: PLC0415

    return nn


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()


def _numpy(variable: Any) -> Any:
    return np.array(ops.convert_to_numpy(variable))


# Activations


def _activation_to_keras(module: Any) -> Any:
    nn, torch_nn = _nn(), _torch().nn
    module = getattr(module, "owner", module)  # a shared alpha is copied
    axis = 1 if keras.config.image_data_format() == "channels_first" else -1
    if type(module) in (nn.ADA, nn.LeakyADA, nn.Swish):
        settings = {key: value for key, value in module._settings.items() if key != "dim"}
        layer = getattr(ours, type(module).__name__)(**settings, axis=axis)
        if layer.learnable:
            layer.learned.assign(_array(getattr(module, module.learned)))
        return layer
    if type(module) is nn.RBF:
        if module.learned in module._parameters:
            raise ConversionError("to_keras cannot transfer an RBF that learns s: in Keras, s of RBF is fixed")
        return ours.RBF(s=module.s)
    if type(module) is torch_nn.LeakyReLU:
        return keras.layers.LeakyReLU(negative_slope=module.negative_slope)
    names = {torch_nn.ReLU: "relu", torch_nn.Tanh: "tanh"}
    if type(module) in names:
        return keras.layers.Activation(names[type(module)])
    raise ConversionError(
        f"to_keras does not know {type(module).__name__}: it takes {', '.join(KERAS_NEURONS)}, "
        "ADA, LeakyADA, RBF, Swish, ReLU, LeakyReLU and Tanh"
    )


def _activation_from_keras(layer: Any, *, dim: int = 1) -> Any:
    nn, torch = _nn(), _torch()
    if isinstance(layer, keras.layers.Activation):
        layer = layer.activation
    if isinstance(layer, ours.Activation):
        names = ("alpha", "c", "leak", "beta", "learnable", "num_parameters")
        settings = {key: value for key, value in layer.get_config().items() if key in names}
        module = getattr(nn, type(layer).__name__)(**settings, dim=dim)
        if layer.learnable:
            with torch.no_grad():
                getattr(module, module.learned).copy_(torch.from_numpy(_numpy(layer.learned)))
        return module
    if isinstance(layer, ours.RBF):
        return nn.RBF(s=layer.s)
    if isinstance(layer, keras.layers.LeakyReLU):
        return torch.nn.LeakyReLU(layer.negative_slope)
    functions = {keras.activations.relu: torch.nn.ReLU, keras.activations.tanh: torch.nn.Tanh}
    if isinstance(layer, keras.layers.ReLU) and not layer.negative_slope and layer.max_value is None:
        layer = keras.activations.relu
    if callable(layer) and layer in functions:
        return functions[layer]()
    raise ConversionError(
        f"from_keras does not know {getattr(layer, '__name__', type(layer).__name__)}: "
        "it takes the layers of apical.keras, relu, LeakyReLU and tanh"
    )


# Affine layers: torch keeps (outputs, inputs, *kernel), Keras (*kernel, inputs, outputs), in the same order.


def _assign(layer: Any, module: Any) -> None:
    weight = _array(module.weight)
    layer.kernel.assign(np.moveaxis(weight, (0, 1), (-1, -2)))
    if module.bias is not None:
        layer.bias.assign(_array(module.bias))


def _copy(module: Any, layer: Any) -> None:
    torch = _torch()
    weight = np.moveaxis(_numpy(layer.kernel), (-1, -2), (0, 1))
    module.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
    if layer.use_bias:
        module.bias.copy_(torch.from_numpy(_numpy(layer.bias)))


def _settings_to_keras(module: Any) -> dict[str, Any]:
    shared = {
        "basal": _activation_to_keras(module.basal),
        "apical": _activation_to_keras(module.apical),
        "norm": _norm_to_keras(module),
        "use_bias": module.bias is not None,
    }
    if type(module).__name__ == "PyramidalLinear":
        return {"units": module.outputs, **shared}
    longer = module.apical_affine
    if longer is not None:
        shared |= {
            "apical_kernel_size": longer.kernel_size,
            "apical_strides": longer.stride,
            "apical_padding": _padding_to_keras(longer),
        }
    return {
        "filters": module.outputs,
        "kernel_size": module.kernel_size,
        "strides": module.stride,
        "padding": _padding_to_keras(module),
        "dilation_rate": module.dilation,
        "groups": module.groups,
        **shared,
    }


def _settings_from_keras(layer: Any) -> dict[str, Any]:
    s = layer.settings
    dim = -1 if isinstance(layer, PyramidalDense) else -1 - layer.affine.rank
    shared = {
        "basal": _activation_from_keras(layer.basal, dim=dim),
        "apical": _activation_from_keras(layer.apical, dim=dim),
        "norm": _norm_from_keras(layer),
        "bias": s["use_bias"],
    }
    longer = layer.apical_affine
    inputs = layer.affine.kernel.shape[-2] * layer.groups
    second = None if longer is None else longer.kernel.shape[-2]
    if isinstance(layer, PyramidalDense):
        return {"in_features": inputs, "out_features": layer.outputs, "apical_in_features": second, **shared}
    if longer is not None:
        shared |= {
            "apical_in_channels": second,
            "apical_kernel_size": longer.kernel_size,
            "apical_stride": longer.strides,
            "apical_padding": _padding_from_keras(layer.name, longer),
        }
    return {
        "in_channels": inputs,
        "out_channels": layer.outputs,
        "kernel_size": tuple(s["kernel_size"]),
        "stride": tuple(s["strides"]),
        "padding": _padding_from_keras(layer.name, layer.affine),
        "dilation": tuple(s["dilation_rate"]),
        "groups": layer.groups,
        **shared,
    }


def _padding_to_keras(conv: Any) -> str:
    """Keras pads nothing, or as much as keeps the size."""
    same = tuple((k - 1) * d // 2 for k, d in zip(conv.kernel_size, conv.dilation, strict=True))
    odd = all((k - 1) * d % 2 == 0 for k, d in zip(conv.kernel_size, conv.dilation, strict=True))
    if conv.padding == "valid" or not any(p != 0 for p in conv.padding):
        return "valid"
    if conv.padding_mode == "zeros" and (
        conv.padding == "same" or (odd and max(conv.stride) == 1 and conv.padding == same)
    ):
        return "same"
    raise ConversionError(
        f"Keras cannot pad by {conv.padding} ({conv.padding_mode}) at stride {conv.stride}: "
        "build the layer with padding=0 and pad before it, e.g. with keras.layers.ZeroPadding2D"
    )


def _padding_from_keras(name: str, conv: Any) -> str:
    if conv.padding == "valid" or (conv.padding == "same" and max(conv.strides) == 1):
        return str(conv.padding)
    raise ConversionError(
        f"torch cannot pad {conv.padding!r} at strides {conv.strides} as the layer {name!r} does: "
        "use padding='valid' and a layer that pads before it"
    )


def _input_shapes(module: Any) -> list[tuple[int | None, ...]]:
    """The shapes to build the Keras layer for, sizes left open."""
    if type(module).__name__ == "PyramidalLinear":
        longer = module.apical_affine
        return [(None, module.in_features), *([] if longer is None else [(None, longer.in_features)])]
    convolutions = [module, *([] if module.apical_affine is None else [module.apical_affine])]
    open_sizes = (None,) * len(module.kernel_size)
    first = keras.config.image_data_format() == "channels_first"
    return [(None, *((c.in_channels, *open_sizes) if first else (*open_sizes, c.in_channels))) for c in convolutions]


# Batch norms: torch has one over both branches, or one each; Keras has one each.


def _batch_norms(module: Any) -> list[Any]:
    norms = [module.norm.basal, module.norm.apical] if hasattr(module.norm, "basal") else [module.norm]
    if not all(isinstance(norm, _torch().nn.modules.batchnorm._BatchNorm) for norm in norms):
        raise ConversionError(f"only batch norm is transferred between torch and Keras, not {type(norms[0]).__name__}")
    return norms


def _norm_to_keras(module: Any) -> Any:
    if module.norm is None:
        return None
    norm = _batch_norms(module)[0]
    axis = 1 if keras.config.image_data_format() == "channels_first" and hasattr(module, "kernel_size") else -1
    return keras.layers.BatchNormalization(
        axis=axis, momentum=1 - norm.momentum, epsilon=norm.eps, center=norm.affine, scale=norm.affine
    )


def _norm_values(module: Any) -> list[list[Any]]:
    """For each branch the weights of its norm, in Keras' order: gamma, beta, mean, variance."""
    norms = _batch_norms(module)
    values = [[_array(t) for t in (n.weight, n.bias, n.running_mean, n.running_var) if t is not None] for n in norms]
    if len(norms) == 2:
        return values
    return [[v[rows] for v in values[0]] for rows in indices(module.outputs, module.groups)]


def _norm_from_keras(layer: Any) -> Any:
    norm, torch_nn = layer.basal_norm, _torch().nn
    if norm is None:
        return None
    if not isinstance(norm, keras.layers.BatchNormalization) or norm.center != norm.scale:
        raise ConversionError(f"only batch norm with both weights or none is transferred, not {type(norm).__name__}")
    kind = torch_nn.BatchNorm2d if isinstance(layer, PyramidalConv2D) else torch_nn.BatchNorm1d
    return lambda n: kind(n, eps=norm.epsilon, momentum=1 - norm.momentum, affine=norm.scale)


def _copy_norms(module: Any, layer: Any) -> None:
    torch, norms = _torch(), _batch_norms(module)
    rows = indices(module.outputs, module.groups) if len(norms) == 1 else (slice(None), slice(None))
    for norm, where, source in zip((norms * 2)[:2], rows, (layer.basal_norm, layer.apical_norm), strict=True):
        targets = [t for t in (norm.weight, norm.bias, norm.running_mean, norm.running_var) if t is not None]
        for target, value in zip(targets, source.get_weights(), strict=True):
            target[where] = torch.from_numpy(np.array(value))
