"""`evaluate`: the test split, opened once for each trial."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apical import files
from apical.data import inputs as kinds
from apical.data.audio import decode_wav
from apical.data.images import bits, decode_image
from apical.data.text import VOCABULARY, encode
from apical.errors import AlreadyEvaluatedError, ApicalError, CheckpointError, DataError
from apical.files import read_file
from apical.limits import BOUNDS
from apical.train import assessment, checkpoint, devices, losses, metrics
from apical.train.checkpoint import copy_into
from apical.train.loop import collect
from apical.train.result import TrialResult, check_outputs, require_registered
from apical.train.session import Feed, build, evaluation_batch
from apical.train.trial import allow_spec, open_data

OUTPUTS, OPENED = "test.npz", "test.opened"


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """Outputs on the test split by sample id, float32: log-probabilities (n, classes), or predictions.

    `scores` has every metric, and what the trial's `robustness` asks for.
    """

    __test__ = False  # not one of pytest's

    directory: Path
    ids: NDArray[np.str_]
    labels: NDArray[Any]
    outputs: NDArray[np.float32]
    scores: Mapping[str, float]

    @classmethod
    def load(cls, directory: str | Path) -> "TestResult":
        """What `evaluate` stored in a trial's folder."""
        path = Path(directory) / OUTPUTS
        if not path.is_file():
            raise CheckpointError(f"the trial in {directory} was not evaluated yet: there is no {OUTPUTS}")
        try:
            arrays = files.read_npz(path, what="outputs", follow=False)
        except DataError as error:
            raise CheckpointError(str(error)) from error
        try:
            check_outputs(arrays)
        except ValueError as error:
            raise CheckpointError(f"{path} was not written by `evaluate`: {error}") from error
        scores = _scores(arrays["outputs"], arrays["labels"]) | _measured(arrays, path)
        known = {name: arrays[name] for name in ("ids", "labels", "outputs")}
        return cls(directory=Path(directory), **known, scores=scores)


def _measured(arrays: Mapping[str, NDArray[Any]], path: Path) -> dict[str, float]:
    """What the trial's `robustness` asked for, from the arrays `names` and `values`."""
    names, values = arrays.get("names", np.array([], np.str_)), arrays.get("values", np.array([], np.float64))
    if names.dtype.kind != "U" or values.dtype.kind != "f" or names.shape != values.shape or names.ndim != 1:
        raise CheckpointError(f"{path} was not written by `evaluate`: names and values do not fit each other")
    return dict(zip(names.tolist(), values.tolist(), strict=True))


def evaluate(trial: TrialResult | str | Path, *, trust: bool = False) -> TestResult:
    """Outputs of the model that a finished trial keeps, on its test split; a second time is refused.

    Where a process died while it evaluated, the same weights may be evaluated again: nobody has seen an answer. `trust`
    allows the code that the trial's folder names, see `run`.
    """
    result = _loaded(trial, trust)
    if result.state == "stopped":
        raise CheckpointError(f"the trial in {result.directory} is not finished: run it again to continue it")
    folder = result.directory
    require_registered(folder, result.spec.as_dict(), "model", "data")
    _open_once(folder, files.sha256(result.weights))
    how = replace(result.execution, devices=1, strategy="auto", compile=False)
    source = assessment.surrogate(result.spec, how)
    runtime = devices.runtime(result.spec, how)
    return runtime.launch(_evaluate, result, how, source)  # type: ignore[no-any-return]


def _loaded(trial: TrialResult | str | Path, trust: bool) -> TrialResult:
    """The trial, with the code that its folder names allowed where it is trusted."""
    result = trial if isinstance(trial, TrialResult) else TrialResult.load(trial, trust=trust)
    allow_spec(result.spec, trust)
    return result


def _evaluate(runtime: devices.SingleDevice, result: TrialResult, how: Any, source: nn.Module | None) -> TestResult:
    network = network_of(result).to(runtime.device)
    split = open_data(result.spec, how).test
    feed = Feed(split, evaluation_batch(split, result.spec.batch), device=runtime.device)
    collected = collect(network, feed, runtime)
    assert collected is not None
    answer = losses.find(result.spec.loss).answer
    outputs = answer(collected[0])
    arrays: dict[str, Any] = {"outputs": outputs.numpy().astype(np.float32)}
    if result.spec.robustness:
        source = None if source is None else source.to(runtime.device)
        identity = json.dumps([result.data, result.spec.size], sort_keys=True)
        subject = assessment.Subject(network, answer, split, identity, runtime.device, outputs, source)
        numbers = assessment.measure(subject, result.spec.robustness)
        arrays |= {"names": np.array([*numbers]), "values": np.array([*numbers.values()])}
    data = io.BytesIO()
    np.savez(data, ids=split.ids, labels=np.asarray(split.labels), **arrays)
    try:
        files.save(result.directory / OUTPUTS, data.getbuffer(), exclusive=True)
    except FileExistsError as error:
        raise _again(result.directory) from error
    return TestResult.load(result.directory)


def _open_once(folder: Path, weights: str) -> None:
    """Mark the test split as opened by these weights, or refuse."""
    marker = folder / OPENED
    try:
        files.save(marker, json.dumps({"weights": weights}).encode(), exclusive=True)
    except FileExistsError as error:
        if (folder / OUTPUTS).exists() or weights not in files.read_text(marker):
            raise _again(folder) from error


def _again(folder: Path) -> AlreadyEvaluatedError:
    return AlreadyEvaluatedError(
        f"{folder} was evaluated before, and the test split is opened once: TestResult.load reads the result"
    )


def _scores(outputs: NDArray[np.float32], labels: NDArray[Any]) -> dict[str, float]:
    task: metrics.Task = "classification" if labels.dtype.kind in "iu" else "regression"
    return metrics.scores(torch.from_numpy(outputs.copy()), torch.from_numpy(labels.copy()), task=task)


# `predict`: a trained network on new samples, treated as its own data was.

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
    _check_input(result)
    require_registered(result.directory, result.spec.as_dict(), "model")
    stored = checkpoint.load(result.weights)
    with _as_stored(result):
        network = build(result.spec, result.input["dims"])
    if stored.facts.get("spec") != result.spec.digest:
        raise CheckpointError(f"{result.weights} belongs to another trial than {result.directory}")
    tensors = {name: t for name, t in network.state_dict().items() if isinstance(t, torch.Tensor)}
    copy_into(tensors, stored.part("model"), what=str(result.weights))
    return network.eval()


def _check_input(result: TrialResult) -> None:
    """Refuse a result that does not say how samples become inputs: its file may come from elsewhere."""
    about = result.input
    try:
        how = _KINDS[about["kind"]](**about["settings"])
        shape, classes, seen = about["shape"], about["classes"], about.get("range", (0, 0))
        numbers = (*asdict(how).values(), *seen)
        sound = (
            _own_dims(result)
            and all(type(n) is int and n > 0 for n in shape)
            and len(shape) == {"Images": 3, "Numbers": len(shape)}.get(about["kind"], 1)
            and prod(shape) <= LIMIT
            and len(seen) == 2
            and all(isinstance(n, int | float) for n in numbers)
            and (about["kind"] != "Images" or about["settings"]["divisor"] > 0)
            and 0 <= getattr(how, "pad", 0) <= BOUNDS["pad"][1]
            and (classes is None or all(isinstance(name, str) for name in classes))
        )
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise CheckpointError(f"the result in {result.directory} does not say how samples become inputs: it is damaged")


def _own_dims(result: TrialResult) -> bool:
    """True where the dimensions of the network are those of the spec, and sizes that follow from the data."""
    dims, spec = result.input["dims"], result.spec.as_dict()["dims"]
    others = [dims[name] for name in dims if name not in spec]
    return {**dims, **spec} == dims and all(type(n) is int and 0 < n <= LIMIT for n in others)


@contextmanager
def _as_stored(result: TrialResult) -> Iterator[None]:
    """What torch says of a network that does not fit what its result says of it, as our error."""
    try:
        yield
    except (RuntimeError, MemoryError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        if isinstance(error, ApicalError):
            raise
        raise CheckpointError(
            f"the network of {result.directory} does not match its result: {files.one_line(error)}"
        ) from error


def predict(trial: TrialResult | str | Path, inputs: Sequence[str | Path], *, trust: bool = False) -> list[Prediction]:
    """Predictions for files: images, .wav clips or .txt texts, as the data was, or .npz files with an array x.

    `trust` allows the code that the trial's folder names, see `run`.
    """
    result = _loaded(trial, trust)
    network = network_of(result)
    settings = result.input["settings"]
    clean = {"sigma": 0.0} if "sigma" in settings else {}  # noise was for the trial's own samples
    how = _KINDS[result.input["kind"]](**settings | clean)
    predictions: list[Prediction] = []
    for path in map(Path, inputs):
        raw = read_samples(path, result.input)
        names = [str(path)] if len(raw) == 1 else [f"{path}[{i}]" for i in range(len(raw))]
        for i in range(0, len(raw), AT_ONCE):
            part = np.array(raw[i : i + AT_ONCE])
            predictions += _predicted(network, how(part, np.zeros(len(part), np.uint64), None), names[i:], result)
    return predictions


def _predicted(network: nn.Module, inputs: torch.Tensor, names: list[str], result: TrialResult) -> list[Prediction]:
    classes = result.input["classes"]
    with torch.no_grad(), _as_stored(result):
        outputs = losses.find(result.spec.loss).answer(network(inputs).float())
        if classes is not None and outputs.shape != (len(inputs), len(classes)):
            raise ValueError(f"outputs of shape {tuple(outputs.shape)} for {len(classes)} classes")
    if classes is None:
        rows = outputs.reshape(len(inputs), -1).tolist()
        return [Prediction(name, None, tuple(row)) for name, row in zip(names, rows, strict=False)]
    probabilities = outputs.exp().tolist()
    return [
        Prediction(name, dict(sorted(zip(classes, row, strict=True), key=lambda pair: -pair[1])))
        for name, row in zip(names, probabilities, strict=False)
    ]


def read_samples(path: Path, about: Mapping[str, Any]) -> NDArray[Any]:
    """The stored values of the samples in a file, (n, *shape), in the range and size of the trial's own."""
    shape = tuple(about["shape"])
    if path.suffix.lower() == ".npz":
        return _array(path, shape, about)
    if about["kind"] == "Images":
        return _image(path, shape, about)[None]
    if about["kind"] == "Spectrograms":
        return decode_wav(read_file(path, limit=LIMIT), origin=path, samples=shape[0])[None]
    if about["kind"] == "Codes":
        text = read_file(path, limit=LIMIT).decode("utf-8", "replace")
        return encode(text, length=shape[0])[None]
    raise DataError(f"{path} cannot be read: this network was trained on numbers and takes .npz files with an array x")


def _image(path: Path, shape: tuple[int, ...], about: Mapping[str, Any]) -> NDArray[Any]:
    """The pixels of an 8-bit image at the size of the training images, and from black at 0 to their white."""
    channels, height, width = shape
    data = read_file(path, limit=LIMIT)
    if (depth := bits(data, origin=path)) != 8:
        raise DataError(f"{path} has {depth} bits per channel, but images of 8 bits are needed: save it as one")
    mode = "L" if channels == 1 else "RGB"
    pixels = decode_image(data, origin=path, size=(height, width), resize=True, mode=mode).transpose(2, 0, 1)
    low, high = _limits(about)
    white = about["settings"]["divisor"]
    if high < white and pixels.max() > high:
        raise DataError(
            f"{path} has pixels up to {pixels.max()}, but this network was trained on pixels from {low:g} to {high:g}, "
            "and nothing says how these are scaled: give it an .npz with an array x in that range"
        )
    return pixels if white == 255 or high < white else pixels * np.float32(white / 255)


def _array(path: Path, shape: tuple[int, ...], about: Mapping[str, Any]) -> NDArray[Any]:
    """The array x, of values as the trial's data set stores them."""
    arrays = files.read_npz(path)
    if "x" not in arrays:
        raise DataError(f"{path} needs an array x; it has {', '.join(arrays)}")
    x = arrays["x"]
    if x.dtype.kind not in "iufb" or prod(x.shape[1:]) != prod(shape) or x.ndim < 1:
        raise DataError(f"{path} has x of shape {x.shape} and type {x.dtype}, but samples of shape {shape} are needed")
    x = x.reshape(len(x), *shape)
    if about["kind"] == "Numbers" or not x.size:
        return x.astype(np.float32)
    low, high = _limits(about)
    smallest, largest = float(x.min()), float(x.max())
    shares = about["kind"] != "Codes" and 0 < max(largest, -smallest) <= 1 < high  # of white, or of full volume
    if shares or not (low <= smallest and largest <= high):
        factor = high if shares else high / 255 if about["kind"] == "Images" and 0 <= smallest < largest <= 255 else 0
        hint = f", x * {factor:.4g} perhaps" if factor else ""
        raise DataError(
            f"{path} has an array x with values from {smallest:g} to {largest:g}, but this network was trained on "
            f"values from {low:g} to {high:g}: give it an x in that range{hint}"
        )
    if about["kind"] == "Images":
        return x.astype(np.float32 if x.dtype.kind == "f" else np.uint8)
    return x.astype({"Spectrograms": np.int16, "Codes": np.uint8}[about["kind"]])


def _limits(about: Mapping[str, Any]) -> tuple[float, float]:
    """The range of stored values: from black to white, of 16-bit sound, or of the codes of characters.

    Images that use a quarter of their range or less, such as 0 to 16 in bytes, have the range that was seen in
    training; trials of earlier versions do not know it.
    """
    if about["kind"] == "Spectrograms":
        return -32768, 32767
    if about["kind"] == "Codes":
        return 0, VOCABULARY - 1
    white = about["settings"]["divisor"]
    seen = about.get("range", (0, white))[1]
    return 0, seen if 1 <= seen <= white / 4 else white
