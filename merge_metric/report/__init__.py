"""The report: one page that opens offline, or its tables as Markdown, LaTeX or JSON.

`evidence` gathers what was measured, `seeds` the problems with votes and answers, which it also
packs for the page; `sections` makes tables, `wording` and `finding` sentences, `page` the HTML,
`write` the file in each format.
"""

from typing import Literal

__all__ = ["ReportFormat"]

ReportFormat = Literal["html", "markdown", "latex", "json"]
