"""The blocks of apical for Keras 3: one set of layers for its TensorFlow, JAX and PyTorch backends.

Importing this imports Keras and its backend, and torch only where that is the backend.
"""

from apical.keras.loading import load_keras

load_keras()

from apical.keras.activations import ADA, RBF, LeakyADA, Swish, no_weight_decay  # noqa: E402
from apical.keras.conversion import convert  # noqa: E402
from apical.keras.functional import ada, leaky_ada, rbf, register, swish  # noqa: E402
from apical.keras.pyramidal import PyramidalConv1D, PyramidalConv2D, PyramidalDense  # noqa: E402
from apical.keras.transfer import from_keras, to_keras  # noqa: E402

__all__ = [
    "ADA",
    "RBF",
    "LeakyADA",
    "PyramidalConv1D",
    "PyramidalConv2D",
    "PyramidalDense",
    "Swish",
    "ada",
    "convert",
    "from_keras",
    "leaky_ada",
    "no_weight_decay",
    "rbf",
    "register",
    "swish",
    "to_keras",
]
