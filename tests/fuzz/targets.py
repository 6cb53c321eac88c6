"""What is fuzzed: each target takes bytes that a stranger wrote and gives a value or one of our errors, nothing else.

`test_corpus.py` runs every input that is kept, and changed copies of them; `guided.py` looks for new ones by coverage.
"""

import io
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from apical.data import corruptions
from apical.data.audio import decode_wav
from apical.data.sets import imagenet
from apical.data.sets.fashion_mnist import parse_idx, read_idx_bytes
from apical.data.store import MANIFEST
from apical.data.store import Store as Prepared
from apical.errors import ApicalError
from apical.files import parse_npz
from apical.nn import Unit
from apical.study import Study, load
from apical.study.directory import COMMANDS, STUDY, Store
from apical.study.leases import Leases
from apical.study.plan import plan
from apical.study.results import read_outputs, scores
from apical.study.state import Facts, Index, read_facts, snapshot, workers_of
from apical.train import TestResult, TrialResult, TrialSpec, checkpoint
from apical.train.evaluation import _check_input
from apical.train.result import stored_spec

CORPUS = Path(__file__).parent / "corpus"
KEY = "0" * 64
_PLACE = Path(tempfile.mkdtemp(prefix="apical-fuzz-"))
LIMITS = "array=1000000,outputs=1000000,trials=2000"
"""APICAL_LIMITS while targets run: what is larger is refused, and not what is looked for."""


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def folder(name: str, data: bytes) -> Path:
    """A folder with one file of that name; links, FIFOs and files that a call made there are gone next time."""
    here = _PLACE / "here"
    for path in sorted(here.rglob("*"), reverse=True) if here.exists() else ():
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    (here / name).parent.mkdir(parents=True, exist_ok=True)
    (here / name).write_bytes(data)
    return here


def spec(data: bytes) -> None:
    made = TrialSpec.from_json(text_of(data))
    assert TrialSpec.from_json(made.to_json()) == made
    assert TrialSpec.from_toml(made.to_toml()) == made
    stored_spec(folder("spec.json", data))


def result(data: bytes) -> None:
    here = folder("result.json", data)
    (here / KEY).mkdir()
    (here / KEY / "result.json").write_bytes(data)
    (here / "scores.json").write_bytes(data)
    scores(here)
    read_facts(here / KEY)
    made = TrialResult.load(here)
    _check_input(made)


def study_file(data: bytes) -> None:
    made = load(folder("mine.toml", data) / "mine.toml")
    assert Study.from_dict(made.to_dict()) == made
    assert plan(made).tuning


def study_directory(data: bytes) -> None:
    here = folder(STUDY, data)
    (here / COMMANDS).write_bytes(data)
    store = Store.open(here)
    store.commands()
    planned = plan(store.study, tune_trials=store.header.tune_trials)
    assert len(planned.tuning) <= planned.count
    snapshot(planned, store, trust=False)


def weights(data: bytes) -> None:
    checkpoint.load(folder("x.safetensors", data) / "x.safetensors")


def index(data: bytes) -> None:
    """As a stored fact, and as the whole file."""
    with suppress(ValueError, KeyError, TypeError):  # what the index expects of a row
        Facts.from_json(text_of(data))
    here = folder("index.sqlite", data)
    known = Index(here, here / "index.sqlite")
    assert known.facts({KEY: 1}, lambda _digest: Facts("done", 1.0, 1.0), trust=True).keys() == {KEY}


def lease(data: bytes) -> None:
    here = folder(f"{KEY}.1.json", data)
    leases = Leases(here)
    workers_of(leases.running([KEY]))
    leases.acquire(KEY)


def idx(data: bytes) -> None:
    parse_idx(read_idx_bytes(folder("x", data) / "x"))


def npz(data: bytes) -> None:
    arrays = parse_npz(io.BytesIO(data), origin="x")
    assert sum(array.nbytes for array in arrays.values()) <= 1_000_000
    here = folder("test.npz", data)
    assert read_outputs(here / "test.npz").ids.dtype.kind != "O"
    assert np.isfinite(len(TestResult.load(here).ids))


def unit(data: bytes) -> None:
    made = Unit.parse(text_of(data))
    assert Unit.parse(str(made)) == made


def corruption(data: bytes) -> None:
    made = corruptions.parse(text_of(data))
    assert corruptions.parse(str(made)) == made


def manifest(data: bytes) -> None:
    store = Prepared(folder(MANIFEST, data))
    store.parts("paper")


TARGETS: dict[str, Callable[[bytes], object]] = {
    "spec": spec,
    "result": result,
    "study-file": study_file,
    "study-directory": study_directory,
    "weights": weights,
    "index": index,
    "lease": lease,
    "idx": idx,
    "wav": lambda data: decode_wav(data, origin="x"),
    # As far as the checksum: scipy's parser, which can crash the process, gets the one file that has it, and no other.
    "mat": lambda data: imagenet.classes(data, origin="x"),
    "npz": npz,
    "unit": unit,
    "corruption": corruption,
    "manifest": manifest,
}


def attempt(name: str, data: bytes) -> str:
    """What a target says against the data, nothing where it takes them; everything but our errors is raised."""
    beside = set(_PLACE.iterdir())
    try:
        TARGETS[name](data)
    except ApicalError as error:
        said = str(error)
        assert said.strip()
        return said
    finally:
        new = {path.name for path in set(_PLACE.iterdir()) - beside}
        assert new <= {"here"}, f"{name} left {new} outside of its folder"
    return ""
