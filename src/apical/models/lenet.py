"""LeNet with max-pooling, as the paper uses it."""

from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.models.registry import built_in
from apical.nn import Unit


class LeNet(nn.Module):
    """Two 5x5 convolutions, each with max-pooling, and three dense layers: (N, in_channels, 32, 32) -> (N, outputs)."""

    def __init__(
        self, unit: Unit, *, in_channels: int, image_size: int, outputs: int, dense_unit: str | None = None
    ) -> None:
        super().__init__()
        layers = unit.layers()
        dense = layers if dense_unit is None else Unit.parse(dense_unit).layers()
        self.input_size = (in_channels, image_size, image_size)
        self.conv1 = layers.conv(2, in_channels, 6, 5)
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = layers.conv(2, 6, 16, 5)
        self.pool2 = nn.MaxPool2d(2)
        self.dense1 = dense.linear(16 * _side(image_size) ** 2, 120)
        self.dense2 = dense.linear(120, 84)
        self.head = nn.Linear(84, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(self.conv1(x))
        x = self.pool2(self.conv2(x))
        return self.head(self.dense2(self.dense1(x.flatten(1))))  # type: ignore[no-any-return]


def _side(image_size: int) -> int:
    """The height and width of the maps that the dense layers see."""
    side = ((image_size - 4) // 2 - 4) // 2
    if side < 1:
        raise InvalidArgumentError(f"image_size is {image_size}, but lenet needs images of 16 pixels or more")
    return side


@built_in("lenet", alpha_start=(0.1, 0.7), stacks=True)
def lenet(
    unit: Unit, *, in_channels: int = 1, image_size: int = 32, outputs: int = 10, dense_unit: str | None = None
) -> LeNet:
    """LeNet for 32x32 images.

    Its dense layers have the unit of the convolutions, or a `dense_unit` of their own.
    """
    return LeNet(unit, in_channels=in_channels, image_size=image_size, outputs=outputs, dense_unit=dense_unit)
