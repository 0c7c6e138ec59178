"""Runs and variants against each other: statistics, verdicts and gates. No torch, no I/O, no rendering."""

from mtp_bench.compare.comparison import Comparison, compare
from mtp_bench.compare.rows import Row
from mtp_bench.compare.verdicts import Difference, Threshold, Verdict

__all__ = ["Comparison", "Difference", "Row", "Threshold", "Verdict", "compare"]
