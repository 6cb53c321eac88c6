import json
import sys
from dataclasses import replace

import pytest

from apical.errors import MissingExtraError
from apical.train import Execution, run
from apical.train.loop import scalars


@pytest.fixture
def learned(spec):
    return replace(spec, unit="pynada(alpha=learn)")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # tensorboard's and protobuf's own
def test_tensorboard_files_hold_what_the_history_holds(learned, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(learned, Execution(threads=1, tensorboard=True), tmp_path / "t")
    events = EventAccumulator(str(tmp_path / "t" / "tensorboard"))
    events.Reload()
    wanted = [scalars(record) for record in result.history]
    assert set(events.Tags()["scalars"]) == set(wanted[0])
    for name in ("loss", "validation/accuracy", "learning_rate"):
        assert [e.value for e in events.Scalars(name)] == pytest.approx([w[name] for w in wanted])
        assert [e.step for e in events.Scalars(name)] == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # mlflow's own
def test_mlflow_holds_what_the_history_holds(learned, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="make test-slow installs it")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    result = run(learned, Execution(threads=1, mlflow=True), tmp_path / "t")
    client = mlflow.MlflowClient()
    (logged,) = client.search_runs([client.get_experiment_by_name("apical").experiment_id])
    assert (logged.info.run_name, logged.info.status) == (learned.name, "FINISHED")
    assert logged.data.params["unit"] == "pynada(alpha=learn)"
    assert json.loads(logged.data.params["dims"]) == {"hidden": 16}
    wanted = [scalars(record) for record in result.history]
    assert set(logged.data.metrics) == set(wanted[0])
    for name in wanted[0]:
        history = client.get_metric_history(logged.info.run_id, name)
        assert [m.value for m in history] == [w[name] for w in wanted if name in w]
        assert [m.step for m in history] == [1, 2, 3]


def leveldb(data, block=2**15, header=7):
    """The records of a LevelDB log, in which wandb keeps an offline run: blocks of chunks (checksum, length, type)."""
    at, record = header, b""  # the first seven bytes are wandb's own
    while at + header <= len(data):
        if block - at % block < header:
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + header : at + header + length]
        at += header + length
        if kind in (1, 4):  # whole, or the last chunk
            yield record
            record = b""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # wandb's own
def test_wandb_holds_what_the_history_holds(learned, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="make test-slow installs it")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    result = run(learned, Execution(threads=1, wandb=True), tmp_path / "t")
    (path,) = (tmp_path / "t" / "wandb").glob("offline-run-*/*.wandb")
    records = [Record.FromString(data) for data in leveldb(path.read_bytes())]
    (started,) = (r.run for r in records if r.WhichOneof("record_type") == "run")
    config = {item.key: json.loads(item.value_json) for item in started.config.update}
    assert (started.display_name, started.project, config["unit"]) == (learned.name, "apical", "pynada(alpha=learn)")
    epochs = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in r.history.item}
        for r in records
        if r.WhichOneof("record_type") == "history"
    ]
    assert [row["epoch"] for row in epochs] == [1, 2, 3]
    for row, record in zip(epochs, result.history, strict=True):
        assert {name: row[name] for name in scalars(record)} == scalars(record)


def test_a_logger_that_is_not_installed_is_named_with_its_extra(learned, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"apical\[wandb\]"):
        run(learned, Execution(threads=1, wandb=True), tmp_path / "t")


def test_scalars_are_named_by_their_path_and_skip_what_was_not_finite():
    record = {"epoch": 3, "loss": 0.5, "dynamics": {"gradient": {"hidden.0": 2.0, "head": None}}}
    assert scalars(record) == {"loss": 0.5, "dynamics/gradient/hidden.0": 2.0}
