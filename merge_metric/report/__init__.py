"""The report: one page that opens offline, or its tables as Markdown, LaTeX or JSON."""

from typing import Literal

__all__ = ["ReportFormat"]

ReportFormat = Literal["html", "markdown", "latex", "json"]
