"""How a network stands what it was not trained for: corrupted, far-away and adversarial inputs. Any torch model."""

from apical.robustness.attacks import AttackResult, Threat, attack, fgsm, margin, pgd, square, transfer
from apical.robustness.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from apical.robustness.detection import auroc, largest_softmax, logit_norm

__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "AttackResult",
    "Threat",
    "attack",
    "auroc",
    "corrupt",
    "fgsm",
    "largest_softmax",
    "logit_norm",
    "margin",
    "pgd",
    "square",
    "transfer",
]
