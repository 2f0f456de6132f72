"""Tables in LaTeX: their form, what fits on a page, escapes, and that pdflatex sets them."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.latex import PDFLATEX, compiled

import merge_metric
from merge_metric.tables.latex import escape, floats
from merge_metric.tables.table import Column, Table

NAMES = (
    "s[_]#1/a.b:c",
    "50 % of ~^\\ & {x} $y$ <z> |",
    "--flag ---",
    "[0]",
    "*",
    "électra “l”",
)
"""Of models and seeds, with everything that means something to LaTeX."""


def table(n_rows: int, n_numbers: int, *, names: tuple[str, ...] = NAMES, **more: Any) -> Table:
    """A table of names and of numbers with intervals."""
    numbers = [Column(f"n{i}", f"SV@{i}", "points", f"n{i}_ci") for i in range(n_numbers)]
    values = {c.key: -0.25 for c in numbers} | {f"{c.key}_ci": [-0.5, 0.125] for c in numbers}
    rows = tuple({"name": names[i % len(names)], **values} for i in range(n_rows))
    columns = (Column("name", "model"), *numbers)
    return Table(name="t", title="Figures", columns=columns, rows=rows, **more)


def passages(n_rows: int) -> Table:
    """A table of long texts."""
    columns = (
        Column("seed_id", "seed"),
        Column("gold", "gold"),
        Column("premise", "premise", "passage"),
        Column("right", "right", "share"),
    )
    row = {"gold": "contradiction", "premise": "Some _words_ & more. " * 12, "right": 0.5}
    rows = tuple({"seed_id": f"snli:{n}.jpg#0r1n", **row} for n in range(n_rows))
    return Table(name="p", title="Seeds", columns=columns, rows=rows)


# --- Form ---


def test_intervals_are_below_their_values() -> None:
    """Rules, captions that end, labels."""
    some = table(2, 2, names=("a_b", "c"), notes=("In percent.", "Why?"))
    assert some.to_latex().splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\footnotesize",
        r"\setlength{\tabcolsep}{3pt}",
        r"\begin{tabular}{@{}lrr@{}}",
        r"\toprule",
        r"model & SV@0 & SV@1 \\",
        r"\midrule",
        r"a\_b & $-$25.0 & $-$25.0 \\",
        r" & {\scriptsize [$-$50.0, 12.5]} & {\scriptsize [$-$50.0, 12.5]} \\",
        r"\addlinespace",
        r"c & $-$25.0 & $-$25.0 \\",
        r" & {\scriptsize [$-$50.0, 12.5]} & {\scriptsize [$-$50.0, 12.5]} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\caption{Figures. In percent. Why?}",
        r"\label{tab:t}",
        r"\end{table}",
    ]


def test_wide_tables_are_several() -> None:
    """Names in each of them, every number in one, as many as fit."""
    parts = floats(table(1, 9, names=("a",)))
    heads = [part.splitlines()[6].removesuffix(r" \\").split(" & ") for part in parts]
    assert [head[0] for head in heads] == ["model", "model"]
    assert [name for head in heads for name in head[1:]] == [f"SV@{i}" for i in range(9)]
    for number, part in enumerate(parts, start=1):
        assert rf"\caption{{Figures ({number} of 2).}}" in part
        assert rf"\label{{tab:t-{number}}}" in part
    assert len(floats(table(1, 4, names=("a",)))) == 1


def test_high_tables_are_several() -> None:
    """Groups of the first column are cut only where one alone is too high."""
    names = tuple("aaaaaaaaaaaabbbbbbbbbbbbccccccccccccccccccccccccd")
    parts = floats(table(len(names), 1, names=names))
    rows = [re.findall(r"^(\w) & ", part, re.MULTILINE) for part in parts]
    assert ["".join(part) for part in rows] == ["a" * 12, "b" * 12 + "c" * 7, "c" * 17 + "d"]


def test_passages_stand_in_the_first_column() -> None:
    """Each on a line of its own, with its heading."""
    (part,) = floats(passages(1))
    lines = part.splitlines()
    assert re.fullmatch(
        r"\\begin\{tabular\}\{@\{\}>\{\\raggedright\\arraybackslash\}"
        r"p\{0\.\d\d\\linewidth\}lr@\{\}\}",
        lines[4],
    )
    assert lines[6] == r"seed & gold & right \\"
    assert r"0r1n\newline \textit{premise:} Some \_words\_ \& more. Some" in lines[8]
    assert lines[8].endswith(r"& contradiction & 50.0 \\")


def test_long_names_may_be_broken() -> None:
    """In a column of limited width, where a name has its marks."""
    latex = table(1, 1, names=("varun-v-rao/bert-large_cased-lora-1.58M-snli",)).to_latex()
    assert r"p{0.20\linewidth}r" in latex
    assert r"varun-v-rao/\allowbreak{}bert-large\_\allowbreak{}cased-lora" in latex


def test_rows_do_not_begin_with_an_argument() -> None:
    """A bracket or asterisk after the end of a row would be taken for one."""
    lines = table(2, 0, names=("[x]", "*")).to_latex().splitlines()
    assert r"{}[x] \\" in lines
    assert r"{}* \\" in lines


def test_a_table_without_rows_has_no_empty_line() -> None:
    """Which would be a paragraph between two rules."""
    assert "\n\n" not in table(0, 1).to_latex()


# --- Escapes ---


@pytest.mark.parametrize("character", list('\\~^<>|"–—−±≥≤Δσ→↔×∩∪·…’“&%$#_{}'))
def test_no_bare_special_character(character: str) -> None:
    """Each is replaced by what pdflatex knows."""
    escaped = escape(f"x{character}y")
    assert escaped.isascii()
    assert escaped.startswith("x")
    assert escaped.endswith("y")
    assert escaped != f"x{character}y"
    assert "U+" not in escaped


def test_hyphens_and_dashes() -> None:
    """Two hyphens are no dash, and a dash is none of theirs."""
    assert escape("1–3 --top a—b") == "1--3 -{}-top a---b"


def test_other_characters() -> None:
    """Letters of Latin stay; others become their number rather than an error."""
    assert escape("Zgreabăn é ß") == "Zgreabăn é ß"
    assert escape("猫 😀") == "[U+732B] [U+1F600]"


def test_fooling_rates_are_set_as_formulas() -> None:
    """But not what merely ends like them."""
    assert escape("r_r, r_s (r_r)") == "$r_r$, $r_s$ ($r_r$)"
    assert escape("model_r_r for_sale") == r"model\_r\_r for\_sale"


def test_every_character_of_our_texts_is_known() -> None:
    """Whatever a title, heading, note or value of a table may hold."""
    folder = Path(merge_metric.__file__).parent
    files = {*folder.glob("*.py"), *folder.glob("analyses/*.py"), *folder.glob("report/*.py")}
    files -= {folder / "analyses" / "latex.py"}
    texts = [
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    characters = {c for text in texts for c in text if not c.isascii()}
    assert {"–", "−", "σ", "↔", "→", "’"} <= characters
    assert [c for c in sorted(characters) if "U+" in escape(c)] == []


# --- pdflatex ---


@pytest.mark.skipif(not PDFLATEX, reason="needs pdflatex")
def test_pdflatex_sets_the_tables(tmp_path: Path) -> None:
    """Without errors, and nothing is wider or higher than the page."""
    many = (table(40, 7, notes=('Δ σ ↔ → ± × ∩ ≥ ’ “x” "y" --z 猫 😀',)), passages(30), table(0, 2))
    log = compiled("\n\n".join(each.to_latex() for each in many), tmp_path)
    assert "Overfull" not in log
    assert "too large" not in log


def test_numbers_of_parts_follow_each_other() -> None:
    """From one on, whether beside or below each other."""
    parts = floats(table(40, 7))
    numbers = [int(match) for match in re.findall(r"\\label\{tab:t-(\d+)\}", "".join(parts))]
    assert numbers[0] == 1
    assert all(b == a + 1 for a, b in pairwise(numbers))
    assert len(parts) == numbers[-1] > len(floats(table(1, 7))) > 1
