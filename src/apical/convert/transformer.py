"""torch's own transformer layers: their activation is a setting, and fused code goes by a flag beside it."""

from typing import Any

from torch import nn

from apical.convert.kinds import FUNCTIONS
from apical.convert.rewrite import Surgery

_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def activation_kind(layer: nn.Module) -> str | None:
    """The kind of the function that is a transformer layer's activation; modules are found as modules."""
    function: Any = vars(layer).get("activation") if is_transformer_layer(layer) else None
    return FUNCTIONS.get(function)


def is_transformer_layer(module: nn.Module) -> bool:
    """Whether this is torch's own layer, whose feed-forward part is linear2(dropout(activation(linear1(x))))."""
    return isinstance(module, _LAYERS) and type(module)._ff_block in {kind._ff_block for kind in _LAYERS}


def set_activation(surgery: Surgery, layer: nn.Module, new: nn.Module) -> None:
    """Put in another activation, and keep torch from running fused code that knows only ReLU and GELU."""
    surgery.set(layer, "activation", new)
    if hasattr(layer, "activation_relu_or_gelu"):
        surgery.set(layer, "activation_relu_or_gelu", 0)
    for encoder in surgery.model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and any(layer is own for own in encoder.layers):
            surgery.set(encoder, "use_nested_tensor", False)
