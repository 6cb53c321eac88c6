"""Keras reads its backend and its home from the environment when it is first imported."""

import os
import tempfile

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("KERAS_HOME", tempfile.mkdtemp(prefix="keras-home-"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
