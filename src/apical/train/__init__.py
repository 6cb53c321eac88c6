"""Training one trial: fast, reproducible, resumable, on one device or many."""

from apical.train.checkpoint import Checkpoint
from apical.train.evaluation import TestResult, evaluate
from apical.train.many import run_many
from apical.train.prediction import Prediction, predict
from apical.train.reporting import Event
from apical.train.result import TrialResult
from apical.train.spec import RESULTS_VERSION, Execution, TrialSpec
from apical.train.stack import stack_bytes, stack_key, why_alone
from apical.train.stack_session import memory_of
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
