"""Inputs from far away: does a classifier tell them from its own? AUROC of two scores that need no training.

The largest softmax (Hendrycks and Gimpel 2017) and the norm of the logits should be smaller for inputs of another kind
than those it was trained on. AUROC is the probability that an input of its own has the larger score than one from
far away, ties counted half: 1 tells all, 0.5 is chance, below 0.5 the far-away ones look more familiar.
"""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from apical.data.randomness import bits, keys_of
from apical.errors import InvalidArgumentError


def auroc(own: Tensor, far: Tensor) -> float:
    """The probability that a score of `own` is larger than one of `far`, ties counted half (Mann and Whitney's U)."""
    if not len(own) or not len(far):
        raise InvalidArgumentError(f"there are {len(own)} and {len(far)} scores, but AUROC needs some of each")
    own, far = own.double().flatten(), far.double().flatten().sort().values
    below = torch.searchsorted(far, own, right=False)
    ties = torch.searchsorted(far, own, right=True) - below
    return float((below + 0.5 * ties).mean() / len(far))


def largest_softmax(logits: Tensor) -> Tensor:
    """-log(1 - p), p of the most probable class: in the order of p, and without ties where p rounds to 1."""
    logs = logits.double().log_softmax(1)
    return -logs.scatter(1, logs.argmax(1, keepdim=True), -torch.inf).logsumexp(1)


def logit_norm(logits: Tensor) -> Tensor:
    """The Euclidean length of the logits."""
    return logits.double().square().sum(1).sqrt()


def upscaled(images: Tensor, height: int, width: int, channels: int = 1) -> Tensor:
    """Images (n, c, h, w) at another size (bilinear) and, grey ones, with other channels."""
    if images.shape[1] not in (1, channels):
        raise InvalidArgumentError(f"images have {images.shape[1]} channels, but the network takes {channels}")
    return interpolate(images, (height, width), mode="bilinear").expand(-1, channels, -1, -1)


def noise(shape: tuple[int, ...], count: int, *, seed: int = 0) -> Tensor:
    """`count` inputs of uniform noise in [0, 1]."""
    size = torch.Size(shape).numel()
    values = bits(keys_of(range(count)), size, "far-away noise", seed) >> 11
    return torch.from_numpy(values.astype("float64") * 2.0**-53).float().view(count, *shape)
