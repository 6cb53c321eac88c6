"""The local engine: real processes, the same numbers, no trial twice."""

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from multiprocessing.connection import Listener

import pytest

from apical import study, trust
from apical.errors import StudyError
from apical.study import driver
from apical.study.directory import TEST
from apical.study.engines import local

RUN = """
    import sys
    from apical import study
    from apical.study import driver
    driver.MAX_DEATHS = 10**6

    if __name__ == "__main__":
        options = study.Options(workers=int(sys.argv[2]))
        done = study.run(study.frozen(sys.argv[1]), sys.argv[1], options=options, trust=True)
        print(done.finished, sum(done.states.values()))
"""


# A network whose first build in a worker waits for the test, which lets all go on at once.
MEETING = """
    import multiprocessing, os
    from multiprocessing.connection import Client
    from apical import models

    waited = []

    def network(unit, inputs, outputs):
        if multiprocessing.parent_process() and not waited:
            with Client(os.environ["MEETING"]) as test:
                waited.append(test.recv())
        return models.create("mlp-1", unit, inputs=inputs, outputs=outputs, hidden=8)
"""

# A network that waits in its second epoch for SIGTERM, which then arrives; it does so once.
HELD = """
    import os, signal
    from pathlib import Path
    from apical import models

    def network(unit, inputs, outputs):
        made, calls = models.create("mlp-1", unit, inputs=inputs, outputs=outputs, hidden=8), []

        def hold(module, _):
            calls.extend([1] * module.training)
            if len(calls) == 7 and not HELD.exists():
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                HELD.touch()
                signal.sigwait({signal.SIGTERM})
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                os.kill(os.getpid(), signal.SIGTERM)

        made.register_forward_pre_hook(hold)
        return made
"""


@pytest.fixture
def with_network(tmp_path, monkeypatch):
    """A study whose network is that of a module with this text."""

    def change(what, name, text):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        trust.allow(name)
        part = what.parts[0].model_copy(update={"model": f"{name}:network", "dims": {}})
        return what.model_copy(update={"parts": (part,)})

    return change


def claims(folder):
    return [path.name for path in (folder / "claims").iterdir() if not path.name.startswith(".")]


@pytest.mark.usefixtures("here")
def test_two_drivers_share_a_study_and_get_what_one_alone_gets(
    make_tiny, with_network, tmp_path, python, numbers, monkeypatch
):
    tiny = with_network(make_tiny(trials=3, alphas=(0.1, 0.3, 0.5, 1.0)), "meeting", MEETING)
    study.run(tiny, tmp_path / "alone", engine="here")
    driver.open_for(tiny, tmp_path / "s", None)
    monkeypatch.setenv("MEETING", str(tmp_path / "socket"))
    with Listener(str(tmp_path / "socket")) as meeting:
        drivers = [python(RUN, tmp_path / "s", 1) for _ in range(2)]
        for worker in [meeting.accept() for _ in drivers]:  # both have a trial now
            worker.send("go on")
            worker.close()
    said = [process.communicate() for process in drivers]
    assert said == [("True 9\n", "")] * 2
    assert numbers(tmp_path / "s") == numbers(tmp_path / "alone")
    names = claims(tmp_path / "s")
    assert all(name.endswith(".1.json") for name in names), "a trial was claimed twice"
    assert len([name for name in names if TEST not in name]) == 9
    workers = {json.loads((tmp_path / "s" / "claims" / name).read_text())["pid"] for name in names}
    assert len(workers) == 2, "one driver did everything"


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told_so(make_tiny, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from apical import study\n"
        f"study.run(study.frozen({str(tmp_path / 's')!r}), {str(tmp_path / 's')!r}, options=study.Options(workers=1))\n"
    )
    driver.open_for(make_tiny(trials=1, alphas=(0.3,)), tmp_path / "s", None)
    process = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "a script that runs a study must do so under `if __name__ == '__main__':`" in process.stderr


def test_an_interrupted_driver_writes_checkpoints_gives_everything_back_and_goes_on(
    make_tiny, with_network, tmp_path, monkeypatch
):
    monkeypatch.setattr(driver, "REFRESH", 0.1)
    monkeypatch.setattr(driver, "REFRESH_FACTOR", 1.0)
    held, epochs = tmp_path / "held", 3
    tiny = make_tiny(epochs=epochs, trials=1, alphas=(0.3,))
    tiny = with_network(tiny, "holding", f"{HELD}\n    HELD = Path({str(held)!r})\n")

    def interrupt(now):
        if held.exists() and any(r.done > 0 for r in now.running):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        study.run(tiny, tmp_path / "s", options=study.Options(workers=1), progress=interrupt)
    assert study.status(tmp_path / "s").running == ()
    (attempt,) = (tmp_path / "s" / "attempts").iterdir()
    assert (attempt / "last.safetensors").exists()
    begun = (attempt / "spec.json").stat().st_mtime_ns
    study.run(tiny, tmp_path / "s", options=study.Options(workers=1))
    finished = tmp_path / "s" / "trials" / attempt.name.partition(".")[0]
    timings = json.loads((finished / "result.json").read_text())["timings"]
    assert len(timings) == epochs
    assert (finished / "spec.json").stat().st_mtime_ns == begun, "it began anew"


def test_workers_that_die_at_their_start_end_the_study_with_a_sentence(tiny, tmp_path, monkeypatch):
    # a module of its own: each worker imports it, and this one would bring torch
    (tmp_path / "dying.py").write_text("import os\ndef die(*_): os._exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(local, "serve", importlib.import_module("dying").die)
    with pytest.raises(StudyError, match=r"workers die at their start \(exit code 3\)"):
        study.run(tiny, tmp_path / "s", options=study.Options(workers=1))
