"""Paired tests, intervals, corrections, effect sizes and power: numpy and scipy alone, no torch."""

from apical.stats.bootstrap import Interval, bootstrap_difference
from apical.stats.mcnemar import METHODS, McNemar, mcnemar, mcnemar_table
from apical.stats.pairs import PairedTable, align, table
from apical.stats.power import mcnemar_power, mcnemar_sample_size, wilcoxon_sample_size
from apical.stats.summary import Summary, holm, summarise, wilson
from apical.stats.wilcoxon import Wilcoxon, wilcoxon

__all__ = [
    "METHODS",
    "Interval",
    "McNemar",
    "PairedTable",
    "Summary",
    "Wilcoxon",
    "align",
    "bootstrap_difference",
    "holm",
    "mcnemar",
    "mcnemar_power",
    "mcnemar_sample_size",
    "mcnemar_table",
    "summarise",
    "table",
    "wilcoxon",
    "wilcoxon_sample_size",
    "wilson",
]
