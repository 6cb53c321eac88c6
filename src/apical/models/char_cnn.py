"""Character-level convolutional networks, with and without squeeze-and-excitation."""

import torch
from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.models.registry import built_in
from apical.nn import Layers, Unit

KERNELS = (7, 7, 3)
CHANNELS = 128
POOL = 3


class SqueezeExcite(nn.Module):
    """x * sigmoid(excite(squeeze(mean(x)))), where squeeze has channels/ratio neurons: (N, C, L) -> (N, C, L)."""

    def __init__(self, layers: Layers, channels: int, *, ratio: int) -> None:
        super().__init__()
        self.squeeze = layers.linear(channels, channels // ratio)
        self.excite = nn.Linear(channels // ratio, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.excite(self.squeeze(x.mean(-1)))).unsqueeze(-1)


class CharCNN(nn.Module):
    """An embedding, three convolutions with pools, three dense layers: (N, length) character codes -> (N, outputs).

    With `ratio`, squeeze-and-excitation follows every convolution.
    """

    input_dtype = torch.int64

    def __init__(
        self, unit: Unit, *, length: int, vocabulary: int, embedding: int, outputs: int, ratio: int | None = None
    ) -> None:
        super().__init__()
        layers = unit.layers()
        self.input_size = (length,)
        self.embedding = nn.Embedding(vocabulary, embedding)
        blocks, channels = list[nn.Module](), embedding
        for kernel in KERNELS:
            blocks.append(layers.conv(1, channels, CHANNELS, kernel))
            if ratio is not None:
                blocks.append(SqueezeExcite(layers, CHANNELS, ratio=ratio))
            blocks.append(nn.MaxPool1d(POOL))
            channels = CHANNELS
        self.features = nn.Sequential(*blocks)
        self.dense1 = layers.linear(CHANNELS * _pooled(length), 128)
        self.dense2 = layers.linear(128, 128)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(128, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(self.embedding(x).transpose(1, 2))
        x = self.dropout(self.dense2(self.dense1(x.flatten(1))))
        return self.head(x)  # type: ignore[no-any-return]


def _pooled(length: int) -> int:
    """The length of the maps that the dense layers see."""
    left = length
    for kernel in KERNELS:
        left = (left - kernel + 1) // POOL
    if left < 1:
        raise InvalidArgumentError(f"length is {length}, but the three pools need texts of 69 characters or more")
    return left


@built_in("char-cnn", alpha_start=(0.5, 0.5))
def char_cnn(
    unit: Unit, *, length: int = 5000, vocabulary: int = 104, embedding: int = 256, outputs: int = 2
) -> CharCNN:
    """The character-level network without attention."""
    return CharCNN(unit, length=length, vocabulary=vocabulary, embedding=embedding, outputs=outputs)


@built_in("char-cnn-se", alpha_start=(0.5, 0.5))
def char_cnn_se(
    unit: Unit, *, length: int = 5000, vocabulary: int = 104, embedding: int = 256, outputs: int = 2, ratio: int = 64
) -> CharCNN:
    """The character-level network with squeeze-and-excitation."""
    if not 1 <= ratio <= CHANNELS:
        raise InvalidArgumentError(f"ratio is {ratio}, but must lie between 1 and the {CHANNELS} channels")
    return CharCNN(unit, length=length, vocabulary=vocabulary, embedding=embedding, outputs=outputs, ratio=ratio)
