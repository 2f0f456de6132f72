"""Tables, and their text, Markdown, HTML, LaTeX, CSV, JSON and plots.

>>> shown = Table("s", "Accuracy", (Column("model", "model"), Column("s", "S", "share")),
...               ({"model": "bert", "s": 0.875},))
>>> print(shown.to_text())
Accuracy
<BLANKLINE>
model     S
-----------
bert   87.5
"""

from merge_metric.tables.table import (
    PACKAGES,
    Column,
    Row,
    Table,
    Texts,
    figure_column,
    figure_values,
    initials,
    is_few,
    legend,
)

__all__ = [
    "PACKAGES",
    "Column",
    "Row",
    "Table",
    "Texts",
    "figure_column",
    "figure_values",
    "initials",
    "is_few",
    "legend",
]
