import shutil
import subprocess
from pathlib import Path
from typing import Final

from merge_metric.tables import PACKAGES

PDFLATEX: Final = shutil.which("pdflatex")


def compiled(latex: str, folder: Path) -> str:
    """Compile a document of these tables with pdflatex without errors; return its log."""
    assert PDFLATEX
    lines = [r"\documentclass{article}", *PACKAGES, r"\begin{document}", latex, r"\end{document}"]
    (folder / "tables.tex").write_text("\n".join(lines), encoding="utf-8")
    for _ in range(2):  # the second run reads the columns' widths from a file
        done = subprocess.run(
            [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "tables.tex"],
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=120,
        )
        log = done.stdout.decode(errors="replace")
        assert done.returncode == 0, log
    return log
