"""The papers' tables and figures, one by one: `merge-nli analyse`.

`catalogue` has all analyses, `registry` the decorator that registers one; the other modules make
tables from `merge_metric.frame.joined.Run`s and draw them.
"""

from merge_metric.analyses import catalogue
from merge_metric.analyses.registry import ANALYSES, Analysis, Request, analyse, analysis

__all__ = ["ANALYSES", "Analysis", "Request", "analyse", "analysis", "catalogue"]
