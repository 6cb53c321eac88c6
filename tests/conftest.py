"""What all tests share: the environment that Keras reads when it is first imported, and seeds."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("KERAS_HOME", tempfile.mkdtemp(prefix="keras-home-"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# No deadlines: a busy machine is no fault. Where a change is judged, the same examples are tried every time; elsewhere
# hypothesis looks for new ones.
hypothesis.settings.register_profile("apical", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("apical")


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """No test may depend on what ran before it."""
    import torch

    random.seed(0)
    torch.manual_seed(0)


REGISTRIES = [
    ("apical.data.registry", "RECIPES"),
    ("apical.study.engines.base", "ENGINES"),
    *(
        (f"apical.{name}", "_REGISTERED")
        for name in ("models.registry", "nn.kinds", "report.figures", "train.losses", "train.metrics")
    ),
]


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    """What a test registers or allows is gone after it, and so are modules of its own that registered it.

    Only registries that are loaded already are looked at: environments without the lab have none to load.
    """
    loaded = [getattr(sys.modules[module], name) for module, name in REGISTRIES if module in sys.modules]
    before, modules = [dict(table) for table in loaded], set(sys.modules)
    allowed = set(sys.modules["apical.trust"]._allowed) if "apical.trust" in sys.modules else set()
    yield
    if "apical.trust" in sys.modules:
        sys.modules["apical.trust"]._allowed.intersection_update(allowed)
    for table, old in zip(loaded, before, strict=True):
        if table != old:
            table.clear()
            table.update(old)
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tempfile.gettempdir()):
            del sys.modules[name]


class Here:
    """The smallest engine: it does a job when somebody waits for it."""

    workers = 1

    def __init__(self, context: Any) -> None:
        self.context, self.jobs, self.room = context, list[Any](), 1

    def submit(self, job: Any) -> None:
        self.jobs, self.room = [*self.jobs, job], 0

    def wait(self, seconds: float) -> list[Any]:
        from apical.study.engines.base import Done
        from apical.study.worker import work

        jobs, self.jobs, self.room = self.jobs, [], 1
        return [Done(job, tuple(work(job, self.context))) for job in jobs]

    def close(self, *, stop: bool) -> None:
        pass


@pytest.fixture(scope="session")
def engine_here() -> Any:
    from apical.study.engines.base import EngineDescriptor

    return EngineDescriptor("here", lambda context, options: Here(context))


@pytest.fixture
def here(engine_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are done in this process, one after the other, by a real engine without workers."""
    from apical.study.engines.base import ENGINES

    monkeypatch.setitem(ENGINES, "here", engine_here)


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs `python ARGUMENTS` in a new process that has imported torch, and nothing of apical: see forks.py."""
    printed = [tmp_path_factory.mktemp("forks") / name for name in ("stdout", "stderr")]
    servers: list[subprocess.Popen[str]] = []

    def run(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        if not servers:
            program, one_thread = Path(__file__).with_name("forks.py"), os.environ | {"OMP_NUM_THREADS": "1"}
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            command = [sys.executable, program]
            servers.append(subprocess.Popen(command, env=one_thread, start_new_session=True, **pipes))
        for file in printed:
            file.write_text("")
        request = {"arguments": [*map(str, arguments)], "folder": str(cwd), "environment": os.environ | environment}
        try:
            print(json.dumps(request | {"files": [*map(str, printed)]}), file=servers[0].stdin, flush=True)
            code = int(servers[0].stdout.readline())
        except BaseException:  # the time of a test is over: the next one has a server of its own
            stop()
            raise
        return subprocess.CompletedProcess(arguments, code, *(file.read_text() for file in printed))

    def stop() -> None:
        for server in servers:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()
        servers.clear()

    yield run
    stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, for the pages that are looked at."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
