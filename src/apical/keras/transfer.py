"""Weights between the torch layers of apical and its Keras layers."""

from typing import Any


def to_keras(layer: Any) -> Any:
    """x."""
    raise NotImplementedError


def from_keras(layer: Any) -> Any:
    """x."""
    raise NotImplementedError
