"""Studies on Ray: a cluster of two nodes on this machine, with one core each."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from apical import study
from apical.errors import CheckpointError, InvalidArgumentError, StudyError
from apical.study import driver
from apical.study.directory import ATTEMPT, CHECKPOINT
from apical.study.leases import RELEASED
from apical.train import Execution, TrialResult, checkpoint

SMALL = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
EPOCHS = 300
"""So many that a look at the study finds its trials in the middle."""

on_ray = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",  # Ray leaves its log files and processes to the garbage collector
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::FutureWarning:ray",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Its head has one core; `grow` adds a node with another, `lose` kills one."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # whatever token lies in the home of who runs this
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **SMALL})
        yield SimpleNamespace(address=made.address, grow=lambda: made.add_node(num_cpus=1, **SMALL), lose=_killer(made))
        made.shutdown()


def _killer(made: Any) -> Callable[[Any], None]:
    return lambda node: made.remove_node(node, allow_graceful=False)


@pytest.fixture
def two_nodes(cluster: Any) -> Iterator[Any]:
    """`second` is the second node, None once it is lost."""
    cluster.second = cluster.grow()
    yield cluster
    if cluster.second is not None:
        cluster.lose(cluster.second)


@pytest.fixture(scope="module")
def small(make_tiny: Callable[..., study.Study]) -> study.Study:
    return make_tiny(epochs=EPOCHS)


@pytest.fixture(scope="module")
def undisturbed(small: study.Study, tmp_path_factory: pytest.TempPathFactory, numbers: Callable[[Path], Any]) -> Any:
    """What the local engine finds."""
    folder = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APICAL_HOME", str(folder / "home"))
        study.run(small, folder / "study", stack=False)
        return numbers(folder / "study")


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of seconds are seen in their middle."""
    monkeypatch.setattr(driver, "REFRESH", 0.1)
    monkeypatch.setattr(driver, "REFRESH_FACTOR", 1.0)


def run(what: study.Study, folder: Path, cluster: Any, progress: Callable[[Any], None] = lambda _: None) -> Any:
    places = study.Options(address=cluster.address)
    return study.run(what, folder, engine="ray", options=places, stack=False, progress=progress)


def times_in_checkpoints(folder: Path) -> dict[str, list[Any]]:
    """The seconds that each epoch took, by trial, as they stand in the checkpoints of what runs now."""
    found = {}
    for path in folder.glob(f"attempts/*/{CHECKPOINT}"):
        with suppress(CheckpointError):  # it has just been published
            found[path.parent.name.partition(".")[0]] = checkpoint.read_facts(path)["timings"]
    return found


def times(folder: Path, digest: str) -> list[Any]:
    """The seconds that each epoch took, of a finished trial."""
    return TrialResult.load(folder / "trials" / digest).timings


def claims_before(folder: Path, digest: str) -> int:
    """How often a finished trial was in hand before."""
    return int(json.loads((folder / "trials" / digest / ATTEMPT).read_text())["number"]) - 1


@on_ray
@pytest.mark.slow
def test_trials_of_a_lost_node_go_on_elsewhere_from_their_checkpoints(
    two_nodes: Any, small: study.Study, undisturbed: Any, tmp_path: Path, numbers: Callable[[Path], Any]
) -> None:
    folder, trained, workers = tmp_path / "ray", {}, []

    def lose_the_second_node(now: Any) -> None:
        workers.append(now.workers)
        if two_nodes.second and len(times_in_checkpoints(folder)) == 2:
            two_nodes.lose(two_nodes.second)
            two_nodes.second = None
            trained.update(times_in_checkpoints(folder))

    results = run(small, folder, two_nodes, lose_the_second_node)
    assert numbers(folder) == undisturbed
    assert len(trained) == 2
    assert all(0 < len(before) < EPOCHS for before in trained.values())
    # No epoch that stood in a checkpoint was trained again: its time, which never comes twice, is still there.
    assert all(times(folder, digest)[: len(before)] == before for digest, before in trained.items())
    assert sorted(claims_before(folder, digest) for digest in trained) == [0, 1]
    assert max(workers) == 2
    assert {t.execution.threads for row in results.rows for t in row.trials} == {1}


THREADED = """
title = "mine"
trials = 1
training = { epochs = 2 }
parts = [{ name = "digits", data = "digits", model = "mlp-1" }]
rows = [{ unit = "relu" }]
"""
DRIVER = """
import json, os, signal, sys
from pathlib import Path
from time import time
from apical import study
from apical.study import driver

driver.REFRESH, driver.REFRESH_FACTOR = 0.1, 1.0
folder, address, said, finished, number = sys.argv[1:]
begun = time()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts tests in the background has it ignored

def fresh(path):
    try:
        return path.stat().st_mtime > begun
    except FileNotFoundError:  # its trial has just been published
        return False

def end_in_the_middle(now):
    if now.settled >= int(finished) and any(map(fresh, Path(folder).glob("attempts/*/last.safetensors"))):
        os.kill(os.getpid(), int(number))

what, places = study.Study.from_dict(json.loads(said)), study.Options(address=address)
study.run(what, folder, engine="ray", options=places, stack=False, progress=end_in_the_middle)
"""


@on_ray
@pytest.mark.slow
def test_a_killed_and_an_interrupted_driver_can_be_started_again(
    two_nodes: Any, small: study.Study, undisturbed: Any, tmp_path: Path, numbers: Any, python: Any
) -> None:
    folder, said = tmp_path / "ray", json.dumps(small.to_dict())

    def drive(finished: int, number: int) -> tuple[int, set[str], dict[str, list[Any]]]:
        driver = python(DRIVER, folder, two_nodes.address, said, finished, number)
        driver.communicate()
        return driver.returncode, {path.name for path in folder.glob("trials/*")}, times_in_checkpoints(folder)

    code, first, killed = drive(1, signal.SIGKILL)
    assert (code, bool(first), bool(killed)) == (-signal.SIGKILL, True, True)
    before = set(folder.glob("claims/*.json"))
    code, second, interrupted = drive(0, signal.SIGINT)
    assert (code, first <= second, bool(interrupted)) == (-signal.SIGINT, True, True)
    # What the interrupted driver's workers held was given back; a trial of the killed one may still have its old lease.
    assert all(
        claim.stat().st_mtime < RELEASED
        for claim in set(folder.glob("claims/*.json")) - before
        if claim.name.split(".")[0] in interrupted
    )
    results = run(small, folder, two_nodes)
    assert numbers(folder) == undisturbed
    assert all(claims_before(folder, digest) == 0 for digest in first)
    for stopped in (killed, interrupted):
        assert all(times(folder, digest)[: len(seconds)] == seconds for digest, seconds in stopped.items())
    assert len(results.commands) == 3


@pytest.mark.slow
def test_a_ray_of_this_machine_gives_a_trial_the_threads_it_asks_for(
    write: Callable[..., Path], tmp_path: Path, numbers: Any, python: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray writes its token there
    path, folder = write(THREADED), tmp_path / "ray"
    study.run(study.load(str(path)), tmp_path / "local", options=study.Options(cpus=2), stack=False)
    options = ("-d", folder, "--engine", "ray", "--address", "local", "--cpus-per-trial", "2", "--no-stack")
    command = python("from apical.cli import main; main()", "study", "run", path, *options)
    shown, progress = command.communicate()
    assert command.returncode == 0, progress
    assert "1 of 1 trials, 1 of 1 tested" in progress
    assert f"mine: 1 done; {folder}" in shown
    assert numbers(folder) == numbers(tmp_path / "local")
    assert [t.execution.threads for row in study.read(folder).rows for t in row.trials] == [2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", r"cannot join a Ray cluster at 127.0.0.1:1 \(Connection refused\): start one with `ray start"),
        ("ray://head:10001", r"address is 'ray://head:10001', but must be auto, local or HOST:PORT"),
        ("127.0.0.1:65536", r"address is '127.0.0.1:65536', but must be"),
    ],
)
def test_a_wrong_address_is_one_sentence(tiny: study.Study, tmp_path: Path, address: str, said: str) -> None:
    with pytest.raises((StudyError, InvalidArgumentError), match=said) as error:
        study.run(tiny, tmp_path / "s", engine="ray", options=study.Options(address=address))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_auto_is_the_cluster_of_the_environment(
    tiny: study.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(StudyError, match="Connection refused"):
        study.run(tiny, tmp_path / "s", engine="ray")


@on_ray
@pytest.mark.slow
def test_what_no_node_has_is_refused(cluster: Any, tiny: study.Study, tmp_path: Path) -> None:
    for places in (study.Options(address=cluster.address, cpus=64), study.Options(address=cluster.address, gpus=0.5)):
        with pytest.raises(
            StudyError, match="fits on no node of the Ray cluster, which have 1 CPUs and 0 GPUs: lower --cpus"
        ):
            study.run(tiny, tmp_path / "s", engine="ray", options=places)


@pytest.mark.slow
def test_a_share_of_several_gpus_and_cuda_without_gpus_are_refused(tiny: study.Study, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"gpus is 1\.5, but must be a share of one GPU"):
        study.run(tiny, tmp_path / "s", engine="ray", options=study.Options(gpus=1.5))
    with pytest.raises(
        InvalidArgumentError, match="device is 'cuda', but a trial has 0 GPUs: give it --gpus-per-trial"
    ):
        study.run(tiny, tmp_path / "s", engine="ray", execution=Execution(device="cuda"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cpus", "gpus", "fit"),
    [
        (1, 0.0, 8),
        (3, 0.0, 2),
        (9, 0.0, 0),
        (1, 0.5, 4),
        (1, 0.4, 4),
        (1, 0.3, 6),
        (4, 0.5, 2),
        (1, 1.0, 2),
        (1, 2.0, 1),
    ],
)
def test_trials_that_a_node_with_8_cpus_and_2_gpus_runs_at_once(cpus: int, gpus: float, fit: int) -> None:
    from apical.study.engines.ray import places_on

    assert places_on({"CPU": 8.0, "GPU": 2.0}, study.Options(cpus=cpus, gpus=gpus)) == fit
