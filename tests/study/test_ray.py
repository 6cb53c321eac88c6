"""Studies on Ray: a cluster of two nodes on this machine, with one core each."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from apical import study
from apical.errors import CheckpointError
from apical.study import driver
from apical.study.store import ATTEMPT, CHECKPOINT
from apical.train import TrialResult, checkpoint

SMALL = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
EPOCHS = 200
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


@pytest.fixture
def small(make_tiny: Callable[..., study.Study]) -> study.Study:
    return make_tiny(epochs=EPOCHS)


@pytest.fixture
def undisturbed(small: study.Study, tmp_path: Path, numbers: Callable[[Path], Any]) -> Any:
    """What the local engine finds."""
    study.run(small, tmp_path / "local", stack=False)
    return numbers(tmp_path / "local")


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of seconds are seen in their middle."""
    monkeypatch.setattr(driver, "LOOK", 0.1)


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
    assert (max(workers), workers[-1]) == (2, 1)
    assert {t.execution.threads for row in results.rows for t in row.trials} == {1}
