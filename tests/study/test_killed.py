"""kill -9 of the driver or a worker at random moments: nothing finished is lost or run again, and the same results."""

import contextlib
import json
import os
import random
import signal
import time

import pytest

from apical import study
from apical.study import driver, leases

RUN = """
    import sys
    from apical import study
    from apical.study import driver
    driver.MAX_DEATHS, driver.REFRESH = 10**6, 0.3

    if __name__ == "__main__":
        done = study.run(study.frozen(sys.argv[1]), sys.argv[1], options=study.Options(workers=2))
        print(done.finished, sum(done.states.values()))
"""
MOMENTS = 20


def workers(folder):
    """The living processes that hold claims."""
    found = set()
    for path in (folder / "claims").glob("[0-9a-f]*.json"):
        said = json.loads(path.read_text())
        if leases.started(said["pid"]) == said["started"]:
            found.add(said["pid"])
    return sorted(found)


def published(folder):
    """Every published trial, with all that may not change."""
    found = {}
    for trial in (folder / "trials").iterdir():
        if not trial.name.startswith("."):
            stat = (trial / "result.json").stat()
            found[trial.name] = (trial.stat().st_ino, stat.st_ino, stat.st_mtime_ns)
    return found


def wait(process, seconds):
    """True where the process ended by itself."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            return True
        time.sleep(0.02)
    return False


def begun(process, folder):
    """Wait until a worker has begun; False where the process ends before."""
    while not workers(folder):
        if wait(process, 0.1):
            return False
    return True


def kill(process, folder, victim, draws):
    """kill -9 of a worker that has begun, or of the driver, also where no worker is left; says which it was."""
    while victim == "worker" and begun(process, folder):
        with contextlib.suppress(ProcessLookupError, IndexError):  # it ended by itself just now
            os.kill(draws.choice(workers(folder)), signal.SIGKILL)
            return "worker"
    process.kill()
    return "driver"


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("stack", [1, 4])
def test_a_study_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(
    make_tiny, tmp_path, python, numbers, stack
):
    tiny = make_tiny(epochs=150, trials=4, alphas=(0.1, 0.2, 0.3, 0.5, 0.7, 1.0), stack=stack)
    driver.open_for(tiny, tmp_path / "whole", None)
    assert python(RUN, tmp_path / "whole").communicate() == ("True 13\n", "")

    folder = tmp_path / "s"
    driver.open_for(tiny, folder, None)
    draws = random.Random(stack)
    killed = {"driver": 0, "worker": 0}
    seen: dict = {}
    process = python(RUN, folder)
    for _ in range(MOMENTS // 2):
        victim = None
        if draws.random() < 0.8:  # else while it starts, perhaps
            begun(process, folder)
        if not wait(process, draws.uniform(0.0, 3.0)):
            victim = kill(process, folder, "driver" if draws.random() < 0.4 else "worker", draws)
            killed[victim] += 1
        if process.poll() is not None or victim == "driver":
            process.communicate()
            process = python(RUN, folder)
        now = published(folder)
        assert seen.items() <= now.items(), "a finished trial was lost or run again"
        seen = now
    process.communicate()
    assert min(killed.values()) > 0, killed
    assert study.run(tiny, folder, options=study.Options(workers=2)).finished
    assert seen.items() <= published(folder).items()
    assert numbers(folder) == numbers(tmp_path / "whole")
    assert list((folder / "attempts").iterdir()) == []
