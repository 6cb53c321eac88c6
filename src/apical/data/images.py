"""Decode images with Pillow into the mode that is asked for; a broken image raises a DataError."""

import io
import struct
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apical import imports
from apical.errors import DataError
from apical.files import one_line, refuse_placeholder

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
PIXEL_LIMIT = 100_000_000
JPEG = b"\xff\xd8\xff"
BROKEN = (OSError, SyntaxError, ValueError, EOFError, TypeError, KeyError, IndexError, struct.error, zlib.error)
"""What Pillow's decoders raise on damaged files."""
EXOTIC = (AttributeError, OverflowError, MemoryError, AssertionError, RuntimeError, NotImplementedError)
"""And what they raise on files made to break them."""


@cache
def _pillow() -> tuple[Any, Any]:
    """Pillow's module and its class of JPEG files."""
    plugin = imports.optional("PIL.JpegImagePlugin", extra="lab")
    return imports.optional("PIL.Image", extra="lab"), plugin.JpegImageFile


def open_image(data: bytes, *, origin: object, mode: str = "RGB") -> "Image":
    """The decoded image in `mode` (a greyscale JPEG becomes RGB), or a DataError that names `origin`."""
    refuse_placeholder(data, origin)
    pillow, jpeg = _pillow()
    try:
        # Asking the JPEG decoder first, and not every decoder in turn, saves a tenth of the time of a small image.
        image: Image = (jpeg if data.startswith(JPEG) else pillow.open)(io.BytesIO(data))
        if image.width * image.height > PIXEL_LIMIT:
            raise DataError(f"{origin} has {image.width} x {image.height} pixels, more than any image of a data set")
        image.load()
        return image if image.mode == mode else image.convert(mode)
    except DataError:
        raise
    except (*BROKEN, *EXOTIC, pillow.DecompressionBombError, Warning) as error:
        raise DataError(f"{origin} is a damaged image ({type(error).__name__}: {one_line(error)})") from error


def bits(data: bytes, *, origin: object) -> int:
    """How many bits a channel has in the file; deeper ones than 8 lose their scale where they are read as 8."""
    refuse_placeholder(data, origin)
    pillow, _ = _pillow()
    try:
        mode: str = pillow.open(io.BytesIO(data)).mode
    except (*BROKEN, *EXOTIC, pillow.DecompressionBombError, Warning) as error:
        raise DataError(f"{origin} is a damaged image ({type(error).__name__}: {one_line(error)})") from error
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
