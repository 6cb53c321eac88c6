"""`predict`: a trained network on new samples, treated as its own data was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apical.data import inputs as kinds
from apical.data.audio import decode_wav
from apical.data.checks import read_file
from apical.data.images import decode_image
from apical.data.own import parse_npz
from apical.data.text import encode
from apical.errors import CheckpointError, DataError
from apical.train import checkpoint
from apical.train.checkpoint import copy_into
from apical.train.losses import answers
from apical.train.network import build
from apical.train.result import TrialResult

LIMIT = 1 << 28
AT_ONCE = 64
_KINDS: dict[str, Any] = {
    "Images": kinds.Images,
    "Spectrograms": kinds.Spectrograms,
    "Codes": kinds.Codes,
    "Numbers": kinds.Numbers,
}


@dataclass(frozen=True)
class Prediction:
    """One sample: where it came from, and its probabilities by class (best first), or the predicted values."""

    source: str
    probabilities: Mapping[str, float] | None
    values: tuple[float, ...] = ()

    @property
    def best(self) -> str:
        """The most probable class, or the value."""
        if self.probabilities is None:
            return ", ".join(f"{v:.6g}" for v in self.values)
        return next(iter(self.probabilities))


def network_of(result: TrialResult) -> nn.Module:
    """The model that a trial keeps, on the CPU, in evaluation mode."""
    network = build(result.spec, result.input["dims"])
    stored = checkpoint.load(result.weights)
    if stored.facts.get("spec") != result.spec.digest:
        raise CheckpointError(f"{result.weights} belongs to another trial than {result.directory}")
    tensors = {name: t for name, t in network.state_dict().items() if isinstance(t, torch.Tensor)}
    copy_into(tensors, stored.part("model"), what=str(result.weights))
    return network.eval()


def predict(trial: TrialResult | str | Path, inputs: Sequence[str | Path]) -> list[Prediction]:
    """Predictions for files: images, .wav clips or .txt texts, as the data was, or .npz files with an array x."""
    result = trial if isinstance(trial, TrialResult) else TrialResult.load(trial)
    network = network_of(result)
    settings = result.input["settings"]
    clean = {"sigma": 0.0} if "sigma" in settings else {}  # noise was for the trial's own samples
    how = _KINDS[result.input["kind"]](**settings | clean)
    found: list[Prediction] = []
    for path in map(Path, inputs):
        raw = read_samples(path, result.input)
        names = [str(path)] if len(raw) == 1 else [f"{path}[{i}]" for i in range(len(raw))]
        for i in range(0, len(raw), AT_ONCE):
            part = np.array(raw[i : i + AT_ONCE])
            found += _predicted(network, how(part, np.zeros(len(part), np.uint64), None), names[i:], result)
    return found


def _predicted(network: nn.Module, inputs: torch.Tensor, names: list[str], result: TrialResult) -> list[Prediction]:
    classes = result.input["classes"]
    with torch.no_grad():
        outputs = answers(result.spec.loss, network(inputs).float())
    if classes is None:
        rows = outputs.reshape(len(inputs), -1).tolist()
        return [Prediction(name, None, tuple(row)) for name, row in zip(names, rows, strict=False)]
    probabilities = outputs.exp().tolist()
    return [
        Prediction(name, dict(sorted(zip(classes, row, strict=True), key=lambda pair: -pair[1])))
        for name, row in zip(names, probabilities, strict=False)
    ]


def read_samples(path: Path, about: Mapping[str, Any]) -> NDArray[Any]:
    """The stored values of the samples in a file, (n, *shape)."""
    shape = tuple(about["shape"])
    if path.suffix.lower() == ".npz":
        return _array(path, shape, about["kind"])
    if about["kind"] == "Images":
        return _image(path, shape)[None]
    if about["kind"] == "Spectrograms":
        return decode_wav(read_file(path, limit=LIMIT), origin=path, samples=shape[0])[None]
    if about["kind"] == "Codes":
        text = read_file(path, limit=LIMIT).decode("utf-8", "replace")
        return encode(text, length=shape[0])[None]
    raise DataError(f"{path} cannot be read: this network was trained on numbers and takes .npz files with an array x")


def _image(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    channels, height, width = shape
    mode = "L" if channels == 1 else "RGB"
    data = read_file(path, limit=LIMIT)
    pixels = decode_image(data, origin=path, size=(height, width), resize=True, mode=mode)
    return pixels.transpose(2, 0, 1)


def _array(path: Path, shape: tuple[int, ...], kind: str) -> NDArray[Any]:
    with path.open("rb") as file:
        arrays = parse_npz(file, origin=path)
    if "x" not in arrays:
        raise DataError(f"{path} needs an array x; it has {', '.join(arrays)}")
    x = arrays["x"]
    if x.dtype.kind not in "iufb" or prod(x.shape[1:]) != prod(shape) or x.ndim < 1:
        raise DataError(f"{path} has x of shape {x.shape} and type {x.dtype}, but samples of shape {shape} are needed")
    wanted = {"Images": np.uint8, "Spectrograms": np.int16, "Codes": np.uint8}.get(kind, np.float32)
    return x.reshape(len(x), *shape).astype(wanted)
