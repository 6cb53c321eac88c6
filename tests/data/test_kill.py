"""kill -9 while preparing, at 20 random points: the next call completes, and the bytes are right."""

import os
import random
import signal
import subprocess
import sys
import time
from itertools import count

import pytest

from apical import data
from apical.data.store import Store


@pytest.mark.slow
def test_a_killed_preparation_is_completed_by_the_next_call(home, fabricate, monkeypatch):
    root = fabricate.tiny_imagenet(classes=4, per_class=250, val=20)
    code = f"from apical import data; data.prepare('tiny-imagenet', {str(root)!r}, partial=True, workers=2)"
    monkeypatch.setenv("APICAL_HOME", str(home / "reference"))
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    duration = time.perf_counter() - started
    expected = Store(data.prepare("tiny-imagenet", root, partial=True)).manifest["arrays"]

    draws = random.Random(0)
    killed = 0
    for trial in count():
        if killed == 20:
            break
        monkeypatch.setenv("APICAL_HOME", str(home / str(trial)))
        process = subprocess.Popen([sys.executable, "-c", code])
        moment = draws.uniform(0.1, 1.0) * duration
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        else:
            duration = moment  # the machine is faster now, and this one completed
        process.wait()
        folder = data.prepare("tiny-imagenet", root, partial=True)
        assert Store(folder).manifest["arrays"] == expected
        data.verify("tiny-imagenet", partial=True)
        left = sorted(p.name for p in folder.parent.iterdir())
        assert left == [f".{folder.name}.lock", folder.name]
