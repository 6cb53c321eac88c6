"""The local engine: real processes, the same numbers, no trial twice."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from apical import study
from apical.errors import StudyError
from apical.study.directory import TEST
from apical.study.engines import local

RUN = """
    import sys
    from apical import study
    from apical.study import driver
    driver.MAX_DEATHS = 10**6

    if __name__ == "__main__":
        done = study.run(study.frozen(sys.argv[1]), sys.argv[1], options=study.Options(workers=int(sys.argv[2])))
        print(done.finished, sum(done.states.values()))
"""


def claims(folder):
    return [path.name for path in (folder / "claims").iterdir() if not path.name.startswith(".")]


@pytest.mark.usefixtures("here")
def test_two_drivers_share_a_study_and_get_what_one_alone_gets(make_tiny, tmp_path, python, numbers):
    tiny = make_tiny(epochs=8, trials=3, alphas=(0.1, 0.3, 0.5, 1.0))
    study.run(tiny, tmp_path / "alone", engine="here")
    study.driver.open_for(tiny, tmp_path / "s", None)
    drivers = [python(RUN, tmp_path / "s", 1) for _ in range(2)]
    said = [driver.communicate() for driver in drivers]
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
    study.driver.open_for(make_tiny(trials=1, alphas=(0.3,)), tmp_path / "s", None)
    process = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "a script that runs a study must do so under `if __name__ == '__main__':`" in process.stderr


def test_an_interrupted_driver_writes_checkpoints_gives_everything_back_and_goes_on(make_tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(study.driver, "REFRESH", 0.1)
    monkeypatch.setattr(study.driver, "REFRESH_FACTOR", 1.0)
    epochs = 600  # so many that a look finds it in the middle
    tiny = make_tiny(epochs=epochs, trials=1, alphas=(0.3,))

    def interrupt(now):
        if any(r.done > 0 for r in now.running):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        study.run(tiny, tmp_path / "s", options=study.Options(workers=1), progress=interrupt)
    assert study.status(tmp_path / "s").running == ()
    (attempt,) = (tmp_path / "s" / "attempts").iterdir()
    assert (attempt / "last.safetensors").exists()
    begun = time.time()
    study.run(tiny, tmp_path / "s", options=study.Options(workers=1))
    first = attempt.name.partition(".")[0]
    timings = json.loads((tmp_path / "s" / "trials" / first / "result.json").read_text())["timings"]
    assert len(timings) == epochs
    assert (tmp_path / "s" / "trials" / first / "spec.json").stat().st_mtime < begun, "it began anew"


def test_workers_that_die_at_their_start_end_the_study_with_a_sentence(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "serve", _die)
    with pytest.raises(StudyError, match="workers die at their start"):
        study.run(tiny, tmp_path / "s", options=study.Options(workers=1))


def _die(*_):
    os._exit(3)
