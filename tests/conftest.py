"""What all tests share: the environment that Keras reads when it is first imported, and seeds."""

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
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
