"""Parameter counts, derived here from the shapes that the paper states, not from the code under test."""

from itertools import pairwise
from typing import Any

import pytest

from apical import Unit, models
from apical.nn.kinds import PAPER

KINDS = tuple(PAPER)


def dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def conv(inputs: int, outputs: int, *kernel: int) -> int:
    size = 1
    for k in kernel:
        size *= k
    return inputs * outputs * size + outputs


def conv_norm(inputs: int, outputs: int, kernel: int) -> int:
    """No bias; the norm has a scale and a shift per channel."""
    return inputs * outputs * kernel**2 + 2 * outputs


def resnet_18() -> tuple[int, int]:
    hidden, others = conv_norm(3, 64, 7), dense(512, 1000)
    before = 64
    for width in (64, 128, 256, 512):
        hidden += conv_norm(before, width, 3) + 3 * conv_norm(width, width, 3)
        others += conv_norm(before, width, 1) if before != width else 0
        before = width
    return hidden, others


def resnet_50() -> tuple[int, int]:
    hidden, others = conv_norm(3, 64, 7), dense(2048, 1000)
    before = 64
    for width, depth in ((64, 3), (128, 4), (256, 6), (512, 3)):
        others += conv_norm(before, 4 * width, 1)
        for _ in range(depth):
            hidden += conv_norm(before, width, 1) + conv_norm(width, width, 3) + conv_norm(width, 4 * width, 1)
            before = 4 * width
    return hidden, others


def vgg_9() -> tuple[int, int]:
    channels = (1, 64, 128, 256, 256, 512, 512, 512, 512)
    return sum(conv(a, b, 3, 3) for a, b in pairwise(channels)), dense(512, 10)


def char_cnn() -> tuple[int, int]:
    """5000 characters: 4994 after 7 taps, pooled 1664; 1658, pooled 552; 550 after 3 taps, pooled 183."""
    convolutions = conv(256, 128, 7) + conv(128, 128, 7) + conv(128, 128, 3)
    return convolutions + dense(183 * 128, 128) + dense(128, 128), 104 * 256 + dense(128, 2)


def char_cnn_se() -> tuple[int, int]:
    """Ratio 64: two neurons squeeze the 128 channels; the sigmoid gate behind them is no neuron."""
    hidden, others = char_cnn()
    return hidden + 3 * dense(128, 2), others + 3 * dense(2, 128)


# What becomes twice as much with pyramidal neurons (the hidden layers), and what does not.
COUNTS = {
    "mlp-1": (dense(784, 100), dense(100, 10)),
    "mlp-2": (dense(784, 100) + dense(100, 10), dense(10, 10)),
    "mlp-approx": (dense(1, 20), dense(20, 1)),
    "mlp-deep": (dense(784, 100) + 3 * dense(100, 100), dense(100, 10)),
    "coordinates": (dense(2, 128) + 2 * dense(128, 128), dense(128, 3)),
    "lenet": (conv(1, 6, 5, 5) + conv(6, 16, 5, 5) + dense(16 * 5 * 5, 120) + dense(120, 84), dense(84, 10)),
    "vgg-9": vgg_9(),
    "resnet-18": resnet_18(),
    "resnet-50": resnet_50(),
    "char-cnn": char_cnn(),
    "char-cnn-se": char_cnn_se(),
    "neuron": (dense(2, 1), 0),
}
PUBLISHED = {"mlp-1": 79_510, "mlp-2": 79_620, "lenet": 61_706, "resnet-18": 11_689_512, "resnet-50": 25_557_032}


def count(name: str, unit: str, **dims: Any) -> int:
    import torch

    with torch.device("meta"):
        return sum(p.numel() for p in models.create(name, unit, **dims).parameters())


@pytest.mark.parametrize("name", models.list())
def test_relu_networks_have_the_published_counts(name: str) -> None:
    assert count(name, "relu") == sum(COUNTS[name])
    assert PUBLISHED.get(name, sum(COUNTS[name])) == sum(COUNTS[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", models.list())
def test_hidden_weights_double_with_pyramidal_neurons(name: str, kind: str) -> None:
    hidden, others = COUNTS[name]
    learned = "swish" in kind  # its beta
    assert count(name, kind) == hidden * (2 if Unit(kind).pyramidal else 1) + others + learned


def test_a_learned_alpha_adds_one_parameter_or_one_for_each_layer_or_channel() -> None:
    plain = count("lenet", "pynada")
    assert count("lenet", "pynada(alpha=learn)") == plain + 1
    assert count("lenet", "pynada(alpha=learn,scope=layer)") == plain + 4
    assert count("lenet", "pynada(alpha=learn,scope=channel)") == plain + 6 + 16 + 120 + 84


def test_longer_dendrites_add_a_1x1_convolution_for_each_block() -> None:
    hidden, others = resnet_18()
    projections = sum(conv_norm(a, b, 1) for a, b in ((64, 128), (128, 256), (256, 512)))
    dendrites = projections + sum(conv_norm(c, c, 1) for c in (64, 64, 128, 256, 512))
    assert count("resnet-18", "pynada", skip="apical") == hidden + others - projections + dendrites
