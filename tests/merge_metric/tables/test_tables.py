import ast
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.latex import PDFLATEX, compiled

import merge_metric
from merge_metric.tables import Column, Table
from merge_metric.tables.table import escape

TABLE = Table(
    name="shown",
    title="What is shown",
    columns=(
        Column("model", "model"), Column("n", "seeds", "count"),
        Column("accuracy", "S", "share", interval="accuracy_ci"), Column("gain", "MC", "gain"),
        Column("premise", "P", "passage"),
    ),
    rows=(
        {"model": "a|b_c", "n": 1234, "accuracy": 0.8125, "accuracy_ci": [0.5, 1.0],
         "gain": -0.04, "premise": "50 % of <all>\nwords", "curve": [0.5, 0.25]},
        {"model": "b", "n": 7, "accuracy": None, "accuracy_ci": None, "gain": 3, "premise": "P"},
    ),
    notes=("In percent.",),
)  # fmt: skip


def test_text_has_intervals_and_passages_below_their_row() -> None:
    assert TABLE.to_text().splitlines() == [
        "What is shown", "", "model  seeds              S    MC",
        "---------------------------------", "a|b_c  1,234           81.2  +0.0",
        "              [50.0, 100.0]", "  P: 50 % of <all> words",
        "b          7              –  +3.0", "  P: P", "", "In percent.",
    ]  # fmt: skip


def test_long_passages_are_wrapped() -> None:
    table = Table("t", "T", (Column("p", "P", "passage"), Column("m", "m")),
                  ({"p": "word " * 60, "m": "x"},))  # fmt: skip
    lines = table.to_text().splitlines()[5:]
    assert lines[0].startswith("  P: word word")
    assert len(lines) == 4
    assert all(line.startswith("     word") for line in lines[1:])
    assert max(map(len, lines)) <= 100
    assert " ".join(lines).split()[1:] == ["word"] * 60


def test_markdown_escapes_what_would_be_markup() -> None:
    """One line per row keeps it a table."""
    assert TABLE.to_markdown().splitlines() == [
        "**What is shown**", "", "| model | seeds | S | MC | P |",
        "| :-- | --: | --: | --: | :-- |",
        r"| a\|b\_c | 1,234 | 81.2 \[50.0, 100.0\] | +0.0 | 50 % of \<all> words |",
        "| b | 7 | – | +3.0 | P |", "", "In percent.",
    ]  # fmt: skip


def test_html_escapes_what_would_be_markup() -> None:
    text = TABLE._repr_html_()
    assert text == TABLE.to_html()
    caption, *rows = re.findall(r"<caption.*?>(.*?)</caption>|<tr>(.*?)</tr>", text)
    assert caption[0] == "What is shown"
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for _, row in rows]
    assert cells[0] == ["model", "seeds", "S", "MC", "P"]
    value, _, interval = cells[1][2].partition("<br>")
    assert (value, re.sub("<.*?>", "", interval)) == ("81.2", "50.0–100")
    assert cells[1][-1] == "50 % of &lt;all&gt;\nwords".replace("\n", " ")
    assert cells[2] == ["b", "7", "–", "+3.0", "P"]
    assert "In percent.</p>" in text
    assert not re.search(r"[^-]color: #|background|<script|<style", text)


def test_bounds_and_numbers() -> None:
    column = Column("d", "D", "points", interval="d_ci")
    assert column.show_interval({"d_ci": [-0.031, 0.052]}) == "[−3.1, 5.2]"
    assert column.show_interval({"d_ci": [None, 0.052]}) == column.show_interval({}) == ""
    kinds = {"points": (-0.12345, "−12.3"), "gain": (-5, "−5.0"), "p_value": (0.0004, "<0.001")}
    for kind, (value, text) in kinds.items():
        assert Column("k", "K", kind).show({"k": value}) == text  # type: ignore[arg-type]
    table = Table("t", "T", (Column("x", "X", "number"),), ({"x": 14.305}, {"x": None}))
    assert table.to_text().splitlines()[4:] == ["14.30", "    –"]


def test_csv_has_unrounded_values_and_bounds() -> None:
    rows = (
        {"model": 'a,"b"', "n": 3, "x": 1 / 3, "x_ci": [0.25, 0.5], "curve": [1], "more": None},
        {"model": "c", "n": None, "x_ci": None, "by": {}, "extra": -1},
    )
    table = Table("t", "T", (Column("model", "M"), Column("x", "X", "share", "x_ci")), rows)
    assert table.to_csv().splitlines() == [
        "model,x,n,x_ci_low,x_ci_high,more,extra",
        '"a,""b""",0.3333333333333333,3,0.25,0.5,,',
        "c,,,,,,-1",
    ]
    assert Table("t", "T", table.columns, ()).to_csv() == "model,x"


def test_marks_of_a_table() -> None:
    columns = (Column("rank", "rank"), Column("model", "model"), Column("x", "x", "share"))
    rows = ({"rank": "1", "model": "a", "x": 0.5, "n_seeds": 29}, {"model": "b", "n_seeds": 30})
    table = Table("t", "T", columns, rows)
    assert table.to_text().splitlines()[4].split() == ["1", "a†", "50.0"]
    assert "| 1 | a† | 50.0 |" in table.to_markdown()
    assert r"a\dag{}" in table.to_latex()
    assert "†" not in table.to_csv() + table.to_json()
    cell = Table("t", "T", columns[2:], ({"x": 0.5, "x_n_seeds": 3}, {"x": 1.0, "x_n_seeds": 99}))
    assert cell.to_text().split()[3:5] == ["50.0†", "100.0"]


NAMES = (
    "s[_]#1/a.b:c", "50 % of ~^\\ & {x} $y$ <z> |", "--flag ---", "[0]", "*", "électra “l”",
)  # fmt: skip
"""Names with all special characters of LaTeX."""


def table(n_rows: int, n_numbers: int, *, names: tuple[str, ...] = NAMES, **more: Any) -> Table:
    numbers = [Column(f"n{i}", f"SV@{i}", "points", f"n{i}_ci") for i in range(n_numbers)]
    values = {c.key: -0.25 for c in numbers} | {f"{c.key}_ci": [-0.5, 0.125] for c in numbers}
    rows = tuple({"name": names[i % len(names)], **values} for i in range(n_rows))
    columns = (Column("name", "model"), *numbers)
    return Table(name="t", title="Figures", columns=columns, rows=rows, **more)


def passages(n_rows: int) -> Table:
    columns = (
        Column("seed_id", "seed"), Column("gold", "gold"),
        Column("premise", "premise", "passage"), Column("right", "right", "share"),
    )  # fmt: skip
    row = {"gold": "contradiction", "premise": "Some _words_ & more. " * 12, "right": 0.5}
    rows = tuple({"seed_id": f"snli:{n}.jpg#0r1n", **row} for n in range(n_rows))
    return Table(name="p", title="Seeds", columns=columns, rows=rows)


def test_a_longtable_breaks_between_rows() -> None:
    """Below each value stands its interval, on the same page; each page has the heading."""
    some = table(2, 1, names=("a_b", "c"))
    lines = some.to_longtable().splitlines()
    below = r" & {\scriptsize [$-$50.0, 12.5]} \\"
    assert lines.count(below) == some.to_latex().splitlines().count(below) == 2
    assert [line for line in lines if "25.0" in line] == [
        rf"{name} & $-$25.0 \\*" for name in (r"a\_b", "c")
    ]
    assert lines.count(r"model & SV@0 \\") == 2


def test_rows_and_lines() -> None:
    """A bracket after a row would be an argument of its end; an empty line, a paragraph."""
    lines = table(2, 0, names=("[x]", "*")).to_latex().splitlines()
    assert r"{}[x] \\" in lines
    assert r"{}* \\" in lines
    assert "\n\n" not in table(0, 1).to_latex()


def test_escapes() -> None:
    """Two hyphens are no dash; Latin letters stay, others become numbers; rates are formulas."""
    for character in '\\~^<>|"–—−±≥≤Δσ→↔×∩∪·…’“&%$#_{}':
        escaped = escape(f"x{character}y")
        assert escaped.isascii()
        assert (escaped[0], escaped[-1]) == ("x", "y")
        assert escaped != f"x{character}y"
        assert "U+" not in escaped
    assert escape("1–3 --top a—b") == "1--3 -{}-top a---b"
    assert escape("Zgreabăn é ß") == "Zgreabăn é ß"
    assert escape("猫 😀") == "[U+732B] [U+1F600]"
    assert escape("r_r, r_s (r_r)") == "$r_r$, $r_s$ ($r_r$)"
    assert escape("model_r_r for_sale") == r"model\_r\_r for\_sale"


def test_every_character_of_our_texts_is_known() -> None:
    folder = Path(merge_metric.__file__).parent
    rooms = ("analyses", "agreement", "report", "seed_variant_accuracy", "tables")
    files = {
        *folder.glob("*.py"),
        *(file for room in rooms for file in folder.glob(f"{room}/*.py")),
    }
    files -= {folder / "tables" / "table.py"}
    texts = [
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    texts += [
        file.read_text(encoding="utf-8") for room in rooms for file in folder.glob(f"{room}/*.toml")
    ]
    characters = {c for text in texts for c in text if not c.isascii()}
    assert {"–", "−", "σ", "↔", "→"} <= characters
    assert [c for c in sorted(characters) if "U+" in escape(c)] == []


@pytest.mark.skipif(not PDFLATEX, reason="needs pdflatex")
def test_pdflatex_sets_the_tables(tmp_path: Path) -> None:
    notes = ('Δ σ ↔ → ± × ∩ ≥ ’ “x” "y" --z 猫 😀',)
    made = [table(20, 9, notes=notes).to_latex(), table(0, 2).to_latex(), passages(2).to_latex()]
    made += [table(90, 4).to_longtable(), passages(30).to_longtable()]
    log = compiled("\n\n".join(made), tmp_path)
    assert "Overfull" not in log
    assert "too large" not in log
