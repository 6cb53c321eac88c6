"""Study directories with made-up numbers, written as the store writes them, and read by it."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from apical import study as studies
from apical.report import write
from apical.study.directory import SCORES, open_for
from apical.study.model import Study
from apical.study.plan import Planned, plan
from apical.study.results import StudyResults
from apical.train import metrics

EPOCHS, CLASSES = 4, 10


def random_of(*words: object) -> np.random.Generator:
    return np.random.default_rng(int(hashlib.sha256(repr(words).encode()).hexdigest()[:12], 16))


def write_trial(
    folder: Path, trial: Planned, *, skill: float, samples: int, tested: bool, state: str = "done",
    classes: Sequence[str] = (),
) -> None:  # fmt: skip
    """One published trial: `skill` is the share of right answers, or the mean error where the metric is one."""
    from apical import files
    from apical.train import Execution, TestResult, TrialResult

    random = random_of(trial.digest)
    metric, epochs = trial.spec.metric, min(EPOCHS, trial.spec.epochs)
    noisy = float(skill + 0.004 * random.normal())
    history = [
        {
            "epoch": k + 1,
            "learning_rate": 1e-3,
            "loss": 1.0 / (k + 1),
            "validation": {metric: noisy * (k + 1) / epochs, "cross-entropy": 1.0 - noisy / 2},
            "learned": {"activation.alpha": 1.0 - 0.1 * k} if "learn" in trial.setting else {},
            "dynamics": {
                "inactive": {"hidden": 0.4 - 0.02 * k},
                "saturated": {"hidden": 0.01 * k},
                "gradient": {"hidden": 0.5 / (k + 1), "head": 0.3 / (k + 1)},
            },
        }
        for k in range(epochs)
    ]
    folder.mkdir(parents=True)
    TrialResult(
        directory=folder, spec=trial.spec, execution=Execution(threads=1), state=state,
        reason="" if state == "done" else "the loss is not finite", best_epoch=epochs,
        validation={metric: noisy, "cross-entropy": 1.0 - noisy / 2}, history=history,
        timings=[{"train": 1.0 + random.random(), "validate": 0.1} for _ in range(epochs)], parameters=79510,
        environment={"apical": "0.1.0", "processor": "an abacus"}, data={}, input={"classes": list(classes)},
    ).save()  # fmt: skip
    if tested:
        np.savez(folder / "test.npz", **answers(metric, skill, samples, random))
        files.write_json(folder / SCORES, dict(TestResult.load(folder).scores))


def answers(metric: str, skill: float, samples: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """The same samples are hard for every trial, as in life."""
    common = random_of("samples", samples)
    ids = np.array([f"test/{k:05d}" for k in range(samples)])
    if metric in ("mae", "mse"):
        truth = common.uniform(1, 90, samples)
        return {"ids": ids, "labels": truth, "outputs": (truth + random.normal(0, skill, samples)).astype(np.float32)}
    labels, hardness = common.integers(0, CLASSES, samples), common.random(samples)
    right = hardness + 0.05 * random.normal(size=samples) < skill
    said = np.where(right, labels, (labels + 1) % CLASSES)
    logits = np.eye(CLASSES)[said] * 4.0
    outputs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return {"ids": ids, "labels": labels, "outputs": outputs.astype(np.float32)}


Skill = Callable[[str], float]


def write_directory(
    study: Study, folder: Path, skill: Skill, *, samples: int = 400, keep: Callable[[Planned], bool] = lambda _: True,
    state: Callable[[Planned], str] = lambda _: "done", classes: Sequence[str] = (),
) -> StudyResults:  # fmt: skip
    """Every trial of a study that `keep` keeps; the first setting of each row is the best on validation."""
    store, planned = open_for(study, folder, None), plan(study)
    for trial, final in trials_of(study, planned):
        if keep(trial) and not store.trial(trial.digest).exists():
            penalty = 0.0 if final else 0.02
            penalty *= 1 if metrics.find(trial.spec.metric).larger_is_better else -1
            own = skill(trial.row) - penalty
            how = {"samples": samples, "tested": final, "state": state(trial), "classes": classes}
            write_trial(store.trial(trial.digest), trial, skill=own, **how)
    return studies.read(folder)


def trials_of(study: Study, planned) -> Iterator[tuple[Planned, bool]]:
    for row in study.trained:
        first, *others = planned.settings(row)
        yield from ((trial, True) for trial in planned.finals(row, first))
        yield from ((trial, False) for trial in planned.tuning if trial.row == row.key and trial.setting in others)


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indices of study directories, and no prepared data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APICAL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def make() -> Callable[..., StudyResults]:
    """`write_directory` for tests."""
    return write_directory


def fashion_skill(row: str) -> float:
    """As the paper says, but more so: ADA beats ReLU by far, leaky ADA by nothing, PyNADA is worse than PyNReLU."""
    part, _, unit = row.partition("/")
    base = {"relu": 0.80, "rbf": 0.78, "swish": 0.79, "ada": 0.90, "leaky-relu": 0.8, "leaky-ada": 0.8}
    base |= {"pynrelu": 0.85, "pynrbf": 0.80, "pynswish": 0.82, "pynada": 0.75, "leaky-pynada": 0.85}
    return base[unit] - (0.01 if part == "mlp-2" else 0.0)


@pytest.fixture(scope="session")
def fashion(tmp_path_factory: pytest.TempPathFactory) -> StudyResults:
    """The paper's Table 4, finished, with made-up numbers."""
    study = studies.load("table-fashion-mlp")
    return write_directory(study, tmp_path_factory.mktemp("fashion") / "study", fashion_skill, samples=1500)


EVIL = """
title = '''<script>alert(1)</script> & \\input{x} $x^2$ **bold** | pipe'''
source = '''<img src=x onerror=alert(1)> \\write18{ls}'''
notes = ['''[link](http://example.org) `code` </style><style>''']
trials = 2
[[parts]]
name = "digits"
title = '''"><svg onload=alert(1)> \\end{document} %'''
data = "digits"
model = "mlp-1"
corruptions = ["imbalance"]
[[rows]]
unit = "relu"
label = '''<b>ReLU</b> & _x_ {{ 7*7 }} {% raw %}'''
[[rows]]
unit = "ada(alpha=0.3)"
label = '''[9cm] *ADA $\\alpha$ \\textbf{x} # ~ ^ | "q" șț'''
"""


EVIL_CLASSES = (
    "<iframe src=x>", "![x](http://example.org/c)", r"\input{secret} $y_1$ & 50%", "a | b", "</td></table>", "`c`",
    "{{ 7*7 }}", "\"q\" 'r'", "șț 漢", "plain",
)  # fmt: skip


@pytest.fixture(scope="session")
def evil(tmp_path_factory: pytest.TempPathFactory) -> StudyResults:
    folder = tmp_path_factory.mktemp("evil")
    (folder / "own.toml").write_text(EVIL, encoding="utf-8")
    return write_directory(
        studies.load(folder / "own.toml"), folder / "study", lambda row: 0.9 if "ada" in row else 0.7,
        classes=EVIL_CLASSES,
    )  # fmt: skip


@pytest.fixture(scope="session")
def evil_folder(evil: StudyResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write([evil], tmp_path_factory.mktemp("evil-report")).parent


@pytest.fixture(scope="session")
def fashion_folder(fashion: StudyResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write([fashion], tmp_path_factory.mktemp("fashion-report")).parent
