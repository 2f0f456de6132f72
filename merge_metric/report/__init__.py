"""The report: one page that opens offline, or its tables as Markdown, LaTeX or JSON.

`evidence` gathers what was measured, `seeds` the problems with votes and answers, `sections` and
`classes` make tables, `wording` sentences, `page` the HTML, `write` the file in each format.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ReportFormat"]


class ReportFormat(StrEnum):
    """Formats that a report is written in."""

    html = "html"
    markdown = "markdown"
    latex = "latex"
    json = "json"
