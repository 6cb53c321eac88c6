"""Corruptions: 15 kinds, each growing with its severity, by sample id, and as its formula says."""

import numpy as np
import pytest
import torch

from apical import data
from apical.errors import InvalidArgumentError
from apical.robustness import CORRUPTIONS, SEVERITIES, corrupt

KINDS = list(CORRUPTIONS)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    """Digits at 28 x 28, in [0, 1]."""
    split = data.load("digits").test
    pixels = torch.from_numpy(split.raw(np.arange(60)).astype(np.float32)).view(60, 1, 8, 8)
    return torch.nn.functional.interpolate(pixels / pixels.max(), (28, 28), mode="bilinear")


def test_there_are_fifteen_of_five_severities() -> None:
    assert len(CORRUPTIONS) == 15
    assert all(len(strengths) == len(SEVERITIES) == 5 for _, strengths in CORRUPTIONS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_images_change_more_with_severity_and_stay_images(kind: str, images: torch.Tensor) -> None:
    before = images.clone()
    distances = []
    for severity in SEVERITIES:
        changed = corrupt(images, kind, severity)
        assert changed.shape == images.shape
        assert changed.dtype == torch.float32
        assert changed.min() >= 0
        assert changed.max() <= 1
        torch.testing.assert_close(changed * 255, (changed * 255).round(), atol=1e-4, rtol=0)
        distances.append(float((changed - images).square().mean()))
    assert distances == sorted(distances)
    assert distances[0] > 1e-5
    assert torch.equal(images, before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_corrupted_alike_in_every_batch_and_order(kind: str, images: torch.Tensor) -> None:
    ids = [f"sample-{i}" for i in range(len(images))]
    whole = corrupt(images, kind, 4, ids=ids)
    order = torch.randperm(len(images))
    torch.testing.assert_close(
        corrupt(images[order], kind, 4, ids=[ids[i] for i in order]), whole[order], atol=5e-3, rtol=0
    )
    assert torch.equal(corrupt(images, kind, 4, ids=ids), whole)


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k not in ("gaussian-blur", "zoom-blur", "brightness", "contrast", "pixelate")]
)
def test_samples_and_seeds_have_their_own_randomness(kind: str, images: torch.Tensor) -> None:
    same = images[:1].expand(8, -1, -1, -1)
    changed = corrupt(same, kind, 3)
    assert any(not torch.equal(changed[0], other) for other in changed[1:])
    assert not torch.equal(changed, corrupt(same, kind, 3, seed=1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(2, 3, 32, 32), (1, 1, 8, 8), (2, 1, 17, 31)])
def test_sizes_and_channels(kind: str, shape: tuple[int, ...]) -> None:
    assert corrupt(torch.rand(shape), kind, 5).shape == shape
    assert corrupt(torch.rand(shape)[:0], kind, 5).shape == (0, *shape[1:])


def test_noise_has_the_spread_it_says() -> None:
    grey = torch.full((200, 1, 28, 28), 0.5)
    assert corrupt(grey, "gaussian-noise", 1).std() == pytest.approx(0.08, rel=0.02)
    assert corrupt(grey, "speckle-noise", 2).std() == pytest.approx(0.5 * 0.2, rel=0.02)
    shot = corrupt(grey, "shot-noise", 1)  # a Poisson count of mean 30, over 60
    assert shot.mean() == pytest.approx(0.5, abs=2e-3)
    assert shot.std() == pytest.approx(30**0.5 / 60, rel=0.02)
    assert (corrupt(grey, "impulse-noise", 5) != corrupt(grey, "contrast", 1)).float().mean() == pytest.approx(
        0.27, abs=0.01
    )


def test_light_follows_its_formula(images: torch.Tensor) -> None:
    torch.testing.assert_close(corrupt(images, "brightness", 2), (images + 0.2).clamp(max=1), atol=0.003, rtol=0)
    mean = images.mean((1, 2, 3), keepdim=True)
    torch.testing.assert_close(corrupt(images, "contrast", 1), mean + 0.4 * (images - mean), atol=0.003, rtol=0)


def test_blur_keeps_what_is_even_and_geometry_keeps_the_middle() -> None:
    even = torch.full((3, 1, 28, 28), 0.6)
    for kind in ("gaussian-blur", "glass-blur", "pixelate", "contrast"):
        torch.testing.assert_close(corrupt(even, kind, 5), even, atol=0.003, rtol=0)
    dot = torch.zeros(4, 1, 29, 29)
    dot[:, :, 14, 14] = 1.0
    for kind in ("rotate", "shear"):
        assert corrupt(dot, kind, 5)[:, :, 14, 14].min() > 0.99
    moved = corrupt(dot, "translate", 4)
    places = torch.stack(torch.meshgrid(torch.arange(29.0), torch.arange(29.0), indexing="ij"))
    centre = (moved * places).sum((-1, -2)) / moved.sum((-1, -2))
    torch.testing.assert_close((centre - 14).norm(dim=1), torch.full((4,), 0.2 * 29), atol=0.05, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((torch.rand(2, 1, 8, 8), "fogg", 1), "unknown corruption 'fogg'; did you mean 'fog'"),
        ((torch.rand(2, 1, 8, 8), "fog", 6), "severity is 6, but must be one of 1 to 5"),
        ((torch.rand(2, 64), "fog", 1), r"images are \(2, 64\)"),
        ((torch.zeros(2, 1, 8, 8, dtype=torch.uint8), "fog", 1), "of floats in"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: tuple, sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        corrupt(*arguments)
    with pytest.raises(InvalidArgumentError, match="there are 1 ids, but 2 images"):
        corrupt(torch.rand(2, 1, 8, 8), "fog", 1, ids=["a"])
