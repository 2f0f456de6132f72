"""The papers' tables and figures, one by one: `merge-nli analyse`.

`catalogue` has and makes all analyses; the other modules hold their functions, each of which turns
a `Request` of `registry` into a table, and draws that.
"""

from merge_metric.analyses.catalogue import analyse
from merge_metric.analyses.registry import ANALYSES, Analysis, Request, analysis

__all__ = ["ANALYSES", "Analysis", "Request", "analyse", "analysis"]
