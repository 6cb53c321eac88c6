"""Clips and spectrograms."""

import numpy as np
import pytest
import torch

from apical.data.audio import SAMPLES, decode_wav, shift, spectrogram
from apical.data.inputs import Draw, Spectrograms
from apical.errors import DataError


def test_clips_are_cut_and_padded_to_three_seconds(fabricate):
    short, long = np.arange(100), np.arange(60_000) % 1000
    assert decode_wav(fabricate.wav(short), origin="x").tolist() == [*range(100), *[0] * (SAMPLES - 100)]
    assert np.array_equal(decode_wav(fabricate.wav(long), origin="x"), long[:SAMPLES])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d[:60], "declares 2,000 bytes of sound but ends after 16"),
        (lambda d: d[:40], "without sound"),
        (lambda d: b"", "has no WAV header"),
        (lambda d: b"RIFX" + d[4:], "has no WAV header"),
        (lambda d: d[:20] + b"\xff\xff" + d[22:], "damaged WAV|channels"),
        (lambda d: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
        (lambda d: b"<html></html>", "web page"),
    ],
)
def test_broken_clips_are_one_sentence(change, match, fabricate):
    with pytest.raises(DataError, match=match) as caught:
        decode_wav(change(fabricate.wav(np.arange(1000))), origin="clip.wav")
    assert "clip.wav" in str(caught.value)


def test_other_rates_and_stereo_are_refused(fabricate):
    for data in (fabricate.wav(np.arange(100), rate=8000), fabricate.wav(np.arange(100), channels=2)):
        with pytest.raises(DataError, match="where 1 channel at 16000 Hz is expected"):
            decode_wav(data, origin="x")


def test_the_spectrogram_is_the_fourier_transform_of_windows():
    clip = torch.from_numpy(np.random.RandomState(0).standard_normal((1, SAMPLES)).astype(np.float32))
    got = spectrogram(clip)
    assert got.shape == (1, 2, 257, 376)
    frame = clip[0, 100 * 128 - 256 : 100 * 128 + 256].double().numpy() * np.hanning(513)[:-1]
    expected = np.fft.rfft(frame)
    assert np.allclose(got[0, 0, :, 100].numpy(), expected.real, atol=1e-3)
    assert np.allclose(got[0, 1, :, 100].numpy(), expected.imag, atol=1e-3)


def test_silence_is_zero_and_not_nan():
    assert torch.equal(spectrogram(torch.zeros(1, SAMPLES)), torch.zeros(1, 2, 257, 376))


def test_shifting_moves_and_fills_with_silence():
    clips = np.arange(1, 6, dtype=np.float32)[None].repeat(3, 0)
    moved = shift(clips, np.array([2, -2, 0]))
    assert moved.tolist() == [[0, 0, 1, 2, 3], [3, 4, 5, 0, 0], [1, 2, 3, 4, 5]]


def test_the_shift_depends_on_seed_epoch_and_id_alone():
    raw = np.random.RandomState(0).randint(-9000, 9000, (4, SAMPLES)).astype(np.int16)
    keys = np.array([5, 6, 7, 8], np.uint64)
    view = Spectrograms()
    together = view(raw, keys, Draw(1, 2))
    alone = torch.cat([view(raw[i : i + 1], keys[i : i + 1], Draw(1, 2)) for i in range(4)])
    assert torch.equal(together, alone)
    assert not torch.equal(together, view(raw, keys, Draw(1, 3)))
    assert not torch.equal(together, view(raw, keys, None))
    assert torch.equal(view(raw, keys, None), spectrogram(torch.from_numpy(raw.astype(np.float32) / 32768)))
