"""Deciding what is left of a study of 10,000 trials: python benchmarks/studies.py

Fabricates a study directory with half of the trials published (a result of 30 epochs each), then measures `snapshot`
(what every driver and `apical study status` do first) with a warm index, and with none.
"""

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from apical.study import Part, Row, Study
from apical.study.directory import Store, open_for
from apical.study.plan import plan
from apical.study.state import Index, snapshot

SETTINGS, ROWS, ROUNDS = 100, 100, 7


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        measure(folder / "study")
    finally:
        shutil.rmtree(folder)


def measure(folder: Path) -> None:
    study = fabricated()
    store = open_for(study, folder, 1)
    fill(store, study)
    timings = {"plan": [], "no index": [], "warm index": []}  # type: dict[str, list[float]]
    for _ in range(ROUNDS):
        Index(folder).path.unlink(missing_ok=True)
        planned = timed(timings["plan"], lambda: full_plan(study))
        timed(timings["no index"], lambda planned=planned: decide(planned, store))
        left = timed(timings["warm index"], lambda planned=planned: decide(planned, store))
    print(f"{len(planned.tuning):,} trials, {len(store.finished()):,} published, {left:,} jobs left, n = {ROUNDS}")
    for name, found in timings.items():
        print(f"{name:<12} median {statistics.median(found):.3f} s, {min(found):.3f} to {max(found):.3f} s")
    Index(folder).path.unlink(missing_ok=True)


def fabricated() -> Study:
    """100 rows of 100 settings each."""
    part = Part(name="p", title="p", data="digits", model="mlp-1")
    alphas = tuple(round(0.01 + k / SETTINGS, 4) for k in range(SETTINGS))
    rows = tuple(
        Row(key=f"p/r{k}", part="p", label="", unit=f"ada(c={k / 100})", tune={"alpha": alphas}) for k in range(ROWS)
    )
    return Study(name="large", title="large", parts=(part,), rows=rows)


def full_plan(study: Study):  # type: ignore[no-untyped-def]
    planned = plan(study)
    assert planned.tuning
    return planned


def fill(store: Store, study: Study) -> None:
    """Publish every second trial."""
    epoch = {"epoch": 1, "loss": 0.1, "validation": dict.fromkeys("abcdef", 0.123456789), "dynamics": {"x": [0.1] * 20}}
    for trial in plan(study).tuning[::2]:
        target = store.trial(trial.digest)
        target.mkdir()
        values = {"spec": trial.spec.as_dict(), "state": "done", "validation": {"accuracy": 0.9}}
        values |= {"timings": [{"train": 1.0, "validate": 0.1}] * 30, "history": [epoch] * 30}
        (target / "result.json").write_text(json.dumps(values))
        (store.claims / f"{trial.digest}.1.json").write_text("{}")


def decide(planned, store: Store) -> int:  # type: ignore[no-untyped-def]
    study_state = snapshot(planned, store)
    running = store.leases.running(study_state.keys_left)
    return len(study_state.jobs(busy=running))


def timed(into: list[float], work):  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    found = work()
    into.append(time.perf_counter() - start)
    return found


if __name__ == "__main__":
    main()
