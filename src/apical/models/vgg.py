"""VGG-9: eight 3x3 convolutions and a linear layer."""

from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.models.registry import built_in
from apical.nn import Unit

# A number of channels is a convolution, "pool" halves the image, a fraction is dropout.
VGG_9 = (
    64, "pool", 0.1,
    128, "pool", 0.1,
    256, 256, "pool", 0.2,
    512, 512, "pool", 0.3,
    512, 512, "pool", 0.3,
)  # fmt: skip


class VGG(nn.Module):
    """3x3 convolutions and pools by a list of literals, then a linear layer: (N, C, H, W) -> (N, outputs)."""

    def __init__(
        self, unit: Unit, plan: tuple[int | float | str, ...], *, in_channels: int, image_size: int, outputs: int
    ) -> None:
        super().__init__()
        layers = unit.layers()
        self.input_size = (in_channels, image_size, image_size)
        channels, parts = in_channels, list[nn.Module]()
        for item in plan:
            if item == "pool":
                parts.append(nn.MaxPool2d(2))
            elif isinstance(item, int):
                parts.append(layers.conv(2, channels, item, 3, padding="same"))
                channels = item
            else:
                parts.append(nn.Dropout(float(item)))
        smallest = 2 ** plan.count("pool")
        side = image_size // smallest
        if side < 1:
            raise InvalidArgumentError(f"image_size is {image_size}, but the pools need {smallest} pixels or more")
        self.features = nn.Sequential(*parts)
        self.head = nn.Linear(channels * side**2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))  # type: ignore[no-any-return]


@built_in("vgg-9", alpha_start=(0.5, 1.0), winograd=True)
def vgg_9(unit: Unit, *, in_channels: int = 1, image_size: int = 32, outputs: int = 10) -> VGG:
    """VGG-9 for 32x32 images."""
    return VGG(unit, VGG_9, in_channels=in_channels, image_size=image_size, outputs=outputs)
