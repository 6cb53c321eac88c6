"""Keras, or the sentence that says how to get it."""

from apical import imports
from apical.errors import MissingExtraError

BACKENDS = ("tensorflow", "jax", "torch")


def load_keras() -> None:
    """Import Keras with the backend that it is set to."""
    try:
        imports.optional("keras", extra="keras")
    except ModuleNotFoundError as error:
        if error.name not in BACKENDS:
            raise
        others = " or ".join(name for name in BACKENDS if name != error.name)
        raise MissingExtraError(
            f"Keras is set to its {error.name} backend, but {error.name} is not installed: install it, "
            f"or set the environment variable KERAS_BACKEND to {others} before the first import"
        ) from error
