"""Training one trial: fast, reproducible, resumable, on one device or many."""

from apical.train.callbacks import Event
from apical.train.checkpoint import Checkpoint
from apical.train.evaluation import Prediction, TestResult, evaluate, predict
from apical.train.result import TrialResult
from apical.train.spec import RESULTS_VERSION, Execution, TrialSpec
from apical.train.stack.grouping import stack_bytes, stack_key, why_alone
from apical.train.stack.session import memory_of
from apical.train.stack.trials import run_many
from apical.train.trial import run

__all__ = [
    "RESULTS_VERSION",
    "Checkpoint",
    "Event",
    "Execution",
    "Prediction",
    "TestResult",
    "TrialResult",
    "TrialSpec",
    "evaluate",
    "memory_of",
    "predict",
    "run",
    "run_many",
    "stack_bytes",
    "stack_key",
    "why_alone",
]
