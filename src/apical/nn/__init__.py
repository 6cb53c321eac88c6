"""Modules: activations with fixed or learned parameters."""

from apical.nn.activations import ADA, RBF, Dendrite, LeakyADA, Swish, no_weight_decay

__all__ = ["ADA", "RBF", "Dendrite", "LeakyADA", "Swish", "no_weight_decay"]
