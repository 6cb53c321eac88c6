"""Speech: 16-bit clips from WAV files, and the spectrogram that a network sees."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apical.errors import DataError
from apical.files import decode_sound, refuse_placeholder

if TYPE_CHECKING:
    import torch

RATE = 16_000
SECONDS = 3
SAMPLES = RATE * SECONDS
WINDOW, HOP = 512, 128
SHIFT_SECONDS = 0.3


def decode_wav(data: bytes, *, origin: object, rate: int = RATE, samples: int = SAMPLES) -> NDArray[np.int16]:
    """A mono 16-bit clip, cut or zero-padded at its end to `samples`."""
    refuse_placeholder(data, origin)
    refuse_truncated_wav(data, origin)
    clip, hertz, length = decode_sound(data, origin=origin, samples=samples)
    if hertz != rate or clip.shape[1] != 1 or not len(clip):
        raise DataError(
            f"{origin} has {clip.shape[1]} channels at {hertz} Hz and {length} samples where 1 channel at {rate} Hz "
            "is expected"
        )
    out = np.zeros(samples, np.int16)
    out[: len(clip)] = clip[:, 0]
    return out


def refuse_truncated_wav(data: bytes, origin: object) -> None:
    """A RIFF file says how long its chunks are; decoders play a cut one without a word."""
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise DataError(f"{origin} has no WAV header: it is damaged or another format")
    place = 12
    while place + 8 <= len(data):
        name, length = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        place += 8
        if name == b"data":
            if place + length > len(data):
                raise DataError(f"{origin} declares {length:,} bytes of sound but ends after {len(data) - place:,}")
            return
        place += length + length % 2
    raise DataError(f"{origin} is a WAV file without sound: it is truncated")


def spectrogram(clips: "torch.Tensor") -> "torch.Tensor":
    """(n, samples) in [-1, 1] to (n, 2, 257, frames): real and imaginary part of the STFT, Hann window 512, hop 128."""
    import torch  # noqa: PLC0415  decoding needs none of it

    window = torch.hann_window(WINDOW, dtype=clips.dtype, device=clips.device)
    spectrum = torch.stft(clips, WINDOW, hop_length=HOP, win_length=WINDOW, window=window, return_complex=True)
    return torch.view_as_real(spectrum).permute(0, 3, 1, 2).contiguous()


def shift(clips: NDArray[np.float32], steps: NDArray[np.int64]) -> NDArray[np.float32]:
    """Each clip moved by its number of steps (positive: later), the gap filled with silence."""
    out = np.zeros_like(clips)
    for row, step in enumerate(steps):
        n = clips.shape[1] - abs(step)
        out[row, max(step, 0) : max(step, 0) + n] = clips[row, max(-step, 0) : max(-step, 0) + n]
    return out
