"""Tables in LaTeX: `tabular`, no wider than a line, or `longtable`, which breaks across pages."""

import re
from collections.abc import Sequence
from typing import Final

from merge_metric.tables.cells import Column, Row

PACKAGES: Final = (
    r"\usepackage[T1]{fontenc}",
    r"\usepackage{adjustbox,array,booktabs,longtable}",
)
"""Preamble lines that load the LaTeX packages of the tables."""

_STYLE: Final = r"\footnotesize\setlength{\tabcolsep}{3pt}"


def to_latex(
    name: str, caption: Sequence[str], columns: Sequence[Column], rows: Sequence[Row], *, long: bool
) -> str:
    """Render a table with intervals below values, and passages in the first column."""
    shown = [column for column in columns if column.kind != "passage"]
    passages = [column for column in columns if column.kind == "passage"]
    blocks = []
    for row in rows:
        first, *others = (escape(column.show(row)) for column in shown)
        for passage in passages:
            text = escape(passage.show(row))
            first += rf"\newline \textit{{{escape(passage.heading)}:}} {text}"
        block = _line([first, *others])
        intervals = [column.show_interval(row) for column in shown]
        if any(intervals):  # on the same page
            below = [text and rf"{{\scriptsize {escape(text)}}}" for text in intervals]
            block += f"{'*' * long}\n{_line(below)}"
        blocks.append(block)
    letters = ["l" if column.is_text else "r" for column in shown]
    if passages:
        letters[0] = r">{\raggedright\arraybackslash}p{0.45\linewidth}"
    layout = rf"{{@{{}}{''.join(letters)}@{{}}}}"
    sentences = [escape(text if text.endswith((".", "!", "?")) else f"{text}.") for text in caption]
    label = rf"\caption{{{' '.join(sentences)}}}\label{{tab:{name}}}"
    head = [r"\toprule", _line([escape(column.heading) for column in shown]), r"\midrule"]
    space = "\n\\addlinespace\n" if passages or any("\n" in block for block in blocks) else "\n"
    body = [space.join(blocks)] if blocks else []
    if long:
        begin = [rf"\begingroup{_STYLE}\setlength{{\LTcapwidth}}{{\linewidth}}"]
        begin += [rf"\begin{{longtable}}{layout}", rf"{label}\\", *head, r"\endfirsthead"]
        begin += [*head, r"\endhead", r"\bottomrule", r"\endfoot"]
        end = [r"\end{longtable}", r"\endgroup"]
    else:
        begin = [rf"\begin{{table}}\centering{_STYLE}", label]
        begin += [r"\begin{adjustbox}{max width=\linewidth}", rf"\begin{{tabular}}{layout}", *head]
        end = [r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}", r"\end{table}"]
    return "\n".join([*begin, *body, *end])


def _line(cells: Sequence[str]) -> str:
    line = " & ".join(cells)
    # A bracket or asterisk after the \\ of the line above would be its argument.
    return ("{}" if line.startswith(("[", "*")) else "") + line + r" \\"


# --- Escapes ---

_MATHS: Final = {
    "⟨": r"\langle", "⟩": r"\rangle", "−": "-", "±": r"\pm", "×": r"\times", "·": r"\cdot",
    "≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "∩": r"\cap", "∪": r"\cup",
    "←": r"\leftarrow", "→": r"\rightarrow", "↔": r"\leftrightarrow", "²": "^2", "′": "'",
    "Δ": r"\Delta", "δ": r"\delta", "α": r"\alpha", "κ": r"\kappa", "λ": r"\lambda",
    "τ": r"\tau", "ρ": r"\rho", "σ": r"\sigma",
}  # fmt: skip

_COMMANDS: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"‘": "`", "’": "'", "“": "``", "”": "''", "…": r"\ldots{}", "†": r"\dag{}"},
    **{character: f"${maths}$" for character, maths in _MATHS.items()},
}

_LETTERS: Final = frozenset(map(chr, range(0xA1, 0x180))) - set("ĦħĸĿŀŉŦŧſ")
"""Non-ASCII letters that pdflatex sets with the fonts of `PACKAGES`."""

_DASHES: Final = {"–": "--", "—": "---"}


def escape(text: str) -> str:
    r"""Escape text for pdflatex, on one line; unsupported characters become their numbers.

    >>> print(escape("50 % of a_b, −3–5, --top, 猫"))
    50 \% of a\_b, $-$3--5, -{}-top, [U+732B]
    """
    escaped = "".join(
        _COMMANDS[character]
        if character in _COMMANDS
        else character
        if character.isascii() or character in _LETTERS or character in _DASHES
        else f"[U+{ord(character):04X}]"
        for character in " ".join(text.split())
    )
    escaped = escaped.replace("--", "-{}-")  # keep "--" from becoming a dash
    for dash, hyphens in _DASHES.items():
        escaped = escaped.replace(dash, hyphens)
    return re.sub(r"\br\\_([rs])\b", r"$r_\1$", escaped)  # the fooling rates
