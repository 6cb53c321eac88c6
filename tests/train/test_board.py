from dataclasses import replace

import pytest

from apical.train import Execution, run
from apical.train.loop import scalars


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # tensorboard's and protobuf's own
def test_tensorboard_files_hold_what_the_history_holds(spec, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    spec = replace(spec, unit="pynada(alpha=learn)")
    result = run(spec, Execution(threads=1, tensorboard=True), tmp_path / "t")
    events = EventAccumulator(str(tmp_path / "t" / "tensorboard"))
    events.Reload()
    wanted = [scalars(record) for record in result.history]
    assert set(events.Tags()["scalars"]) == set(wanted[0])
    for name in ("loss", "validation/accuracy", "learning_rate"):
        assert [e.value for e in events.Scalars(name)] == pytest.approx([w[name] for w in wanted])
        assert [e.step for e in events.Scalars(name)] == [1, 2, 3]


def test_scalars_are_named_by_their_path_and_skip_what_was_not_finite():
    record = {"epoch": 3, "loss": 0.5, "dynamics": {"gradient": {"hidden.0": 2.0, "head": None}}}
    assert scalars(record) == {"loss": 0.5, "dynamics/gradient/hidden.0": 2.0}
