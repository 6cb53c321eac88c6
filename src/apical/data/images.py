"""Decode images with Pillow into the mode that is asked for; a broken image raises a DataError."""

import numpy as np
from numpy.typing import NDArray

from apical.errors import DataError
from apical.files import open_image

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


def bits(data: bytes, *, origin: object) -> int:
    """How many bits a channel has in the file; deeper ones than 8 lose their scale where they are read as 8."""
    mode = open_image(data, origin=origin, mode=None).mode
    return 16 if mode.startswith("I;16") else 32 if mode in ("I", "F") else 8


def decode_image(
    data: bytes, *, origin: object, size: tuple[int, int] | None = None, resize: bool = False, mode: str = "RGB"
) -> NDArray[np.uint8]:
    """Pixels as (height, width, channels); with `size` (height, width), other sizes are refused or resized."""
    image = open_image(data, origin=origin, mode=mode)
    if size is not None and (image.height, image.width) != size:
        if not resize:
            raise DataError(
                f"{origin} has {image.height} x {image.width} pixels where {size[0]} x {size[1]} are expected"
            )
        image = image.resize((size[1], size[0]), 2)  # bilinear
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]
