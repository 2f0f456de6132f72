"""The papers' tables and figures, one by one: `merge-nli analyse`.

`catalogue` has all analyses, `registry` makes them; the other modules hold their functions, each of
which turns a `Request` into a table, and draws that.
"""

from merge_metric.analyses import catalogue
from merge_metric.analyses.registry import ANALYSES, Analysis, Request, analyse, analysis

__all__ = ["ANALYSES", "Analysis", "Request", "analyse", "analysis", "catalogue"]
