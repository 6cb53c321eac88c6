"""Apical dendrite activations and pyramidal neurons. The public names, loaded when first used."""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "ADA": "apical.nn",
    "LeakyADA": "apical.nn",
    "RBF": "apical.nn",
    "Swish": "apical.nn",
    "Dendrite": "apical.nn",
    "PyramidalLinear": "apical.nn",
    "PyramidalConv1d": "apical.nn",
    "PyramidalConv2d": "apical.nn",
    "PyramidalConv3d": "apical.nn",
    "Unit": "apical.nn",
    "register_unit": "apical.nn",
    "register": "apical.libraries",
    "convert_": "apical.convert",
    "no_weight_decay": "apical.nn",
}
_MODULES = (
    "bench", "convert", "data", "errors", "functional", "hub", "keras", "kernels", "models", "nn", "report",
    "robustness", "stats", "study", "train",
)  # fmt: skip

# `from apical import *` must not import Keras, which settles its backend at import.
__all__ = ["__version__", *_HOME, *(name for name in _MODULES if name != "keras")]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"apical.{name}")
    else:
        raise AttributeError(f"module 'apical' has no attribute {name!r}; it has {', '.join(sorted(__all__))}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
