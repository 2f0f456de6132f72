"""Fixtures; plots that tests of commands save must fit a paper in width and size of text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.scored_folder import write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The dataset folder that is small enough to be scored by hand."""
    return write_folder(tmp_path / "merge-nli")


PLOTTING = {"analyses", "agreement", "report"}
PAGE, SMALLEST = 6.9, 6.5
"""Largest width in inches, smallest text in points."""


@pytest.fixture(autouse=True)
def plots_fit_a_paper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check each figure that is saved in the style of papers."""
    if request.path.parent.name not in PLOTTING:
        return
    from matplotlib import rcParams
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    savefig: Callable[..., Any] = Figure.savefig

    def checked(figure: Figure, *arguments: Any, **options: Any) -> None:
        savefig(figure, *arguments, **options)
        if rcParams["font.size"] == 8:
            texts = [
                item for item in figure.findobj(Text) if item.get_text() and item.get_visible()
            ]
            sizes = {item.get_fontsize() for item in texts}
            assert min(sizes, default=SMALLEST) >= SMALLEST
            assert figure.get_figwidth() <= PAGE + 0.001

    monkeypatch.setattr(Figure, "savefig", checked)
