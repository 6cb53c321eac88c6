"""Networks that other people wrote, built small with random weights: what conversion is tried on, and its table.

`python tests/convert/test_networks.py` prints the table of docs/convert.md.
"""

import copy
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def define_operators() -> torch.library.Library:
    """torchvision loads beside the CPU build of torch once these operators exist, and as long as they do."""
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            operators.impl(name, lambda dets, scores, iou_threshold: scores.argsort(descending=True)[:5], "CPU")
    return operators


OPERATORS = define_operators()


@dataclass(frozen=True)
class Network:
    """A network and what it is called with."""

    name: str
    library: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], Any]

    def build(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make().eval()


def image(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape or (2, 3, 64, 64), generator=torch.Generator().manual_seed(1))


def _vision(name: str, size: int = 64, **options: Any) -> Network:
    def make() -> nn.Module:
        return import_module("torchvision.models").get_model(  # type: ignore[no-any-return]
            name, weights=None, **{"num_classes": 10, **options}
        )

    return Network(name, "torchvision", make, image(2, 3, size, size))


def _detector(name: str, size: int) -> Network:
    def make() -> nn.Module:
        import_module("torchvision.extension")._has_ops = lambda: True  # ours are there
        return network.make()

    network = _vision(name, size, weights_backbone=None, num_classes=5)
    return Network(name, "torchvision", make, lambda: ([image(3, size, size)()],))


def _timm(name: str, size: int = 64, **options: Any) -> Network:
    def make() -> nn.Module:
        return import_module("timm").create_model(name, num_classes=10, **options)  # type: ignore[no-any-return]

    return Network(name, "timm", make, image(2, 3, size, size))


_TEXT = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_SPECIAL = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SPEECH = {
    **_SPECIAL, "num_mel_bins": 8, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_source_positions": 20,
    "max_target_positions": 20, "decoder_start_token_id": 1,
}  # fmt: skip
_IMAGE = {**_TEXT, "image_size": 32, "patch_size": 8}


def _tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.arange(3, 11).view(1, -1)}


def _both() -> dict[str, Tensor]:
    return {**_tokens(), "decoder_input_ids": torch.arange(3, 8).view(1, -1)}


def _speech() -> dict[str, Tensor]:
    return {"input_features": image(1, 8, 40)(), "decoder_input_ids": torch.arange(3, 8).view(1, -1)}


def _pixels(size: int = 32) -> Callable[[], dict[str, Tensor]]:
    return lambda: {"pixel_values": image(1, 3, size, size)()}


def _hugging(
    name: str, config: str, inputs: Callable[[], Any] = _tokens, settings: dict[str, Any] | None = None, **more: Any
) -> Network:
    def make() -> nn.Module:
        library = import_module("transformers")
        made = getattr(library, config)(**{**(_TEXT if settings is None else settings), **more})
        return getattr(library, name)(made)  # type: ignore[no-any-return]

    return Network(name, "transformers", make, inputs)


def _clip() -> Network:
    towers = {"text_config": {**_TEXT, "max_position_embeddings": 16}, "vision_config": _IMAGE}
    inputs = lambda: {**_tokens(), **_pixels()()}  # noqa: E731
    return _hugging("CLIPModel", "CLIPConfig", inputs, {}, **towers, projection_dim=8)


@contextmanager
def undone() -> Iterator[None]:
    """What ultralytics changes when it is imported is as before: other tests run in this process."""
    image, cv2 = import_module("PIL.Image"), import_module("cv2")
    printing, threads = torch._tensor_str, cv2.getNumThreads()
    with (
        patch.object(image, "open", image.open),
        patch.object(torch, "save", torch.save),
        patch.object(printing, "PRINT_OPTS", copy.copy(printing.PRINT_OPTS)),
        patch.dict(os.environ),
        np.printoptions(),
        warnings.catch_warnings(),
    ):
        yield
    cv2.setNumThreads(threads)


def _yolo(file: str) -> Network:
    def make() -> nn.Module:
        with undone():
            tasks = import_module("ultralytics.nn.tasks")
        return tasks.DetectionModel(file, verbose=False)  # type: ignore[no-any-return]

    return Network(file.removesuffix(".yaml"), "ultralytics", make, image(1, 3, 64, 64))


def _segmenter(name: str, encoder: str) -> Network:
    def make() -> nn.Module:
        library = import_module("segmentation_models_pytorch")
        return getattr(library, name)(encoder, encoder_weights=None, classes=2)  # type: ignore[no-any-return]

    return Network(f"{name} ({encoder})", "segmentation_models_pytorch", make, image(2, 3, 64, 64))


class ConvolutionsThenLSTM(nn.Module):
    """A recogniser of text in images: convolutions, an LSTM along the width, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
        )  # fmt: skip
        self.rnn, self.hidden, self.out = nn.LSTM(64, 12, bidirectional=True), nn.Linear(24, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> Tensor:
        x = self.features(x).flatten(1, 2).permute(2, 0, 1)
        y, _ = self.rnn(x) if state is None else self.rnn(x, state)
        return self.out(F.relu(self.hidden(y)))  # type: ignore[no-any-return]


class GatedRecurrence(nn.Module):
    """A cell in a loop that stops early: no graph can hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.cell = nn.Linear(8, 16), nn.Linear(16, 8), nn.GRUCell(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[0])
        for step in x:
            state = self.cell(self.outer(F.gelu(self.inner(step))), state)
            if state.abs().max() > 1e6:
                break
        return state.relu()


def _own(make: Callable[[], nn.Module], *shape: int) -> Network:
    return Network(make.__name__, "torch", make, image(*shape))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 2)


NETWORKS = [
    _vision("resnet18"),
    _vision("mobilenet_v2"),
    _vision("mobilenet_v3_small"),
    _vision("densenet121"),
    _vision("shufflenet_v2_x0_5"),
    _vision("squeezenet1_1"),
    _vision("mnasnet0_5"),
    _vision("regnet_y_400mf"),
    _vision("lraspp_mobilenet_v3_large", weights_backbone=None),
    _vision("deeplabv3_mobilenet_v3_large", weights_backbone=None),
    _detector("ssdlite320_mobilenet_v3_large", 320),
    _timm("dla34"),
    _timm("hrnet_w18_small"),
    _timm("eca_nfnet_l0"),
    _timm("legacy_xception"),
    _timm("coatnet_pico_rw_224", img_size=64),
    _timm("fastvit_t8"),
    _timm("repvgg_a0"),
    _timm("mixer_s32_224", img_size=64),
    _timm("mobilevit_xxs"),
    _timm("tf_efficientnet_lite0"),
    _timm("selecsls42b"),
    _timm("crossvit_tiny_240", 240),
    _timm("efficientvit_m0", 224),
    _timm("efficientformerv2_s0", 224),
    _timm("levit_128s", 224),
    _timm("mambaout_femto"),
    _timm("convnext_atto"),
    _timm("efficientnet_b0"),
    _timm("regnety_002"),
    _timm("vit_tiny_patch16_224", img_size=64),
    _timm("edgenext_xx_small"),
    _timm("poolformer_s12"),
    _timm("ghostnet_050"),
    _timm("skresnet18"),
    _timm("xcit_nano_12_p16_224"),
    _hugging("BertModel", "BertConfig"),
    _hugging("GPT2LMHeadModel", "GPT2Config", settings={**_SPECIAL, "n_embd": 16, "n_layer": 2, "n_head": 2}),
    _clip(),
    _hugging("T5Model", "T5Config", _both, {**_SPECIAL, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2}),
    _hugging("LlamaForCausalLM", "LlamaConfig"),
    _hugging("ViTModel", "ViTConfig", _pixels(), _IMAGE),
    _hugging(
        "SwinModel",
        "SwinConfig",
        _pixels(64),
        {"image_size": 64, "embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
    ),
    _hugging("ConvNextModel", "ConvNextConfig", _pixels(64), {"hidden_sizes": [8, 12, 16, 24], "depths": [1] * 4}),
    _hugging("MobileNetV2Model", "MobileNetV2Config", _pixels(64), {"depth_multiplier": 0.35}),
    _hugging("WhisperModel", "WhisperConfig", _speech, _SPEECH),
    _hugging(
        "Wav2Vec2Model",
        "Wav2Vec2Config",
        lambda: {"input_values": image(1, 400)()},
        conv_dim=[8, 8],
        conv_kernel=[10, 3],
        conv_stride=[5, 2],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
    ),
    _hugging(
        "DistilBertModel",
        "DistilBertConfig",
        settings={"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 50},
    ),
    _hugging("BloomModel", "BloomConfig", settings={**_SPECIAL, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    _hugging("OPTModel", "OPTConfig", word_embed_proj_dim=16, ffn_dim=32, max_position_embeddings=32),
    _hugging("MistralModel", "MistralConfig", num_key_value_heads=2),
    _hugging(
        "SegformerModel",
        "SegformerConfig",
        _pixels(64),
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 1, 2]},
    ),
    _hugging("AlbertModel", "AlbertConfig", embedding_size=8),
    _yolo("yolov8n.yaml"),
    _yolo("yolo11n.yaml"),
    _segmenter("Unet", "resnet18"),
    _segmenter("FPN", "mobilenet_v2"),
    _own(ConvolutionsThenLSTM, 2, 1, 16, 20),
    _own(GatedRecurrence, 5, 3, 8),
    Network("TransformerEncoder", "torch", _encoder, image(2, 5, 16)),
]
