"""The papers' tables and figures, one by one: `merge-nli analyse`.

`analyses.toml` lists the analyses, and `catalogue` makes one; the other modules hold their
functions, each of which turns a `Request` of `registry` into a table, and draws that.
"""

from merge_metric.analyses.catalogue import analyse
from merge_metric.analyses.registry import ANALYSES, Analysis, Request

__all__ = ["ANALYSES", "Analysis", "Request", "analyse"]
