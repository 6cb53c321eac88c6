"""Measuring: what `apical bench` prints and what the scripts in benchmarks/ call."""

from apical.bench import activations
from apical.bench.measure import Timing, as_csv, as_text, compare, interleaved, ratio

__all__ = ["Timing", "activations", "as_csv", "as_text", "compare", "interleaved", "ratio"]
