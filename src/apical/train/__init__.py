"""Training trials: fast, reproducible, resumable, on one device or many. The public names, loaded when first used."""

from typing import TYPE_CHECKING

from apical import imports

if TYPE_CHECKING:
    from apical.train.checkpoint import Checkpoint as Checkpoint
    from apical.train.evaluation import Prediction as Prediction
    from apical.train.evaluation import TestResult as TestResult
    from apical.train.evaluation import evaluate as evaluate
    from apical.train.evaluation import predict as predict
    from apical.train.loop import Event as Event
    from apical.train.losses import Loss as Loss
    from apical.train.losses import register_loss as register_loss
    from apical.train.metrics import Metric as Metric
    from apical.train.metrics import register_metric as register_metric
    from apical.train.result import TrialResult as TrialResult
    from apical.train.spec import RESULTS_VERSION as RESULTS_VERSION
    from apical.train.spec import Execution as Execution
    from apical.train.spec import TrialSpec as TrialSpec
    from apical.train.stack import memory_of as memory_of
    from apical.train.stack import stack_bytes as stack_bytes
    from apical.train.stack import stack_key as stack_key
    from apical.train.stack import unstackable_reason as unstackable_reason
    from apical.train.stack import why_alone as why_alone
    from apical.train.stack.trials import run_many as run_many
    from apical.train.trial import run as run

_HOME = {
    "RESULTS_VERSION": "spec.RESULTS_VERSION",
    "Checkpoint": "checkpoint.Checkpoint",
    "Event": "loop.Event",
    "Execution": "spec.Execution",
    "Loss": "losses.Loss",
    "Metric": "metrics.Metric",
    "Prediction": "evaluation.Prediction",
    "TestResult": "evaluation.TestResult",
    "TrialResult": "result.TrialResult",
    "TrialSpec": "spec.TrialSpec",
    "evaluate": "evaluation.evaluate",
    "memory_of": "stack.memory_of",
    "predict": "evaluation.predict",
    "register_loss": "losses.register_loss",
    "register_metric": "metrics.register_metric",
    "run": "trial.run",
    "run_many": "stack.trials.run_many",
    "stack_bytes": "stack.stack_bytes",
    "stack_key": "stack.stack_key",
    "unstackable_reason": "stack.unstackable_reason",
    "why_alone": "stack.why_alone",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__ = imports.lazy(__name__, _HOME)
