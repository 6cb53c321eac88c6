"""`evaluate`: the test split, opened once for each trial."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from apical.data.checks import sha256_of_file
from apical.data.own import parse_npz
from apical.errors import AlreadyEvaluatedError, CheckpointError
from apical.train import devices, metrics
from apical.train.feed import Feed, evaluation_batch
from apical.train.files import read_text, write_whole
from apical.train.loop import collect
from apical.train.losses import answers
from apical.train.prediction import network_of
from apical.train.result import TrialResult
from apical.train.trial import open_data

OUTPUTS, OPENED = "test.npz", "test.opened"


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """Outputs on the test split by sample id, float32: log-probabilities (n, classes), or predictions."""

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
        with path.open("rb") as file:
            arrays = parse_npz(file, origin=path)
        if {"ids", "labels", "outputs"} - arrays.keys():
            raise CheckpointError(f"{path} is not what `evaluate` writes: it has {', '.join(arrays)}")
        return cls(directory=Path(directory), **{name: arrays[name] for name in ("ids", "labels", "outputs")},
                   scores=_scores(arrays["outputs"], arrays["labels"]))  # fmt: skip


def evaluate(trial: TrialResult | str | Path) -> TestResult:
    """Outputs of the model that a finished trial keeps, on its test split; a second time is refused.

    Where a process died while it evaluated, the same weights may be evaluated again: nobody has seen an answer.
    """
    result = trial if isinstance(trial, TrialResult) else TrialResult.load(trial)
    if result.state == "stopped":
        raise CheckpointError(f"the trial in {result.directory} is not finished: run it again to continue it")
    folder = result.directory
    _open_once(folder, sha256_of_file(result.weights))
    how = replace(result.execution, devices=1, strategy="auto", compile=False)
    engine = devices.engine(result.spec, how)
    return engine.launch(_evaluate, result, how)  # type: ignore[no-any-return]


def _evaluate(engine: devices.Plain, result: TrialResult, how: Any) -> TestResult:
    network = network_of(result).to(engine.device)
    split = open_data(result.spec, how).test
    feed = Feed(split, evaluation_batch(split, result.spec.batch), device=engine.device)
    found = collect(network, feed, engine)
    assert found is not None
    outputs = answers(result.spec.loss, found[0]).numpy()
    data = io.BytesIO()
    np.savez(data, ids=split.ids, labels=np.asarray(split.labels), outputs=outputs.astype(np.float32))
    try:
        write_whole(result.directory / OUTPUTS, data.getbuffer(), exclusive=True)
    except FileExistsError as error:
        raise _again(result.directory) from error
    return TestResult.load(result.directory)


def _open_once(folder: Path, weights: str) -> None:
    """Mark the test split as opened by these weights, or refuse."""
    marker = folder / OPENED
    try:
        write_whole(marker, json.dumps({"weights": weights}).encode(), exclusive=True)
    except FileExistsError as error:
        if (folder / OUTPUTS).exists() or weights not in read_text(marker):
            raise _again(folder) from error


def _again(folder: Path) -> AlreadyEvaluatedError:
    return AlreadyEvaluatedError(
        f"the test split was opened for {folder} before, and it is opened once: TestResult.load reads what was stored"
    )


def _scores(outputs: NDArray[np.float32], labels: NDArray[Any]) -> dict[str, float]:
    return metrics.scores(
        torch.from_numpy(outputs.copy()), torch.from_numpy(labels.copy()), classification=labels.dtype.kind in "iu"
    )
