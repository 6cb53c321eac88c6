"""Paired tests, intervals, corrections, effect sizes and power: numpy and scipy alone, no torch."""

from apical.stats import calibration
from apical.stats.decision import Decision, Pool, crossed_bootstrap, decide, pool, seeds_needed, sign_flip
from apical.stats.intervals import Interval, Summary, bootstrap_difference, holm, summarise, wilson
from apical.stats.pairs import (
    METHODS,
    McNemar,
    PairedTable,
    Wilcoxon,
    align,
    mcnemar,
    mcnemar_power,
    mcnemar_sample_size,
    mcnemar_table,
    table,
    wilcoxon,
    wilcoxon_sample_size,
)

__all__ = [
    "METHODS",
    "Decision",
    "Interval",
    "McNemar",
    "PairedTable",
    "Pool",
    "Summary",
    "Wilcoxon",
    "align",
    "bootstrap_difference",
    "calibration",
    "crossed_bootstrap",
    "decide",
    "holm",
    "mcnemar",
    "mcnemar_power",
    "mcnemar_sample_size",
    "mcnemar_table",
    "pool",
    "seeds_needed",
    "sign_flip",
    "summarise",
    "table",
    "wilcoxon",
    "wilcoxon_sample_size",
    "wilson",
]
