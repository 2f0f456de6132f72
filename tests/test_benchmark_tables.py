"""Tables of benchmarks: shares of a packed product, slower ratios, lines of the README."""

from typing import Any

import pytest
from helpers.bench.packed_product import ROWS, layer_products, products_flop
from helpers.bench.release import headline, slower, with_lines
from helpers.bench.results import Row, Side, _in_json, table


def side(name: str, *cpu: float) -> Side:
    return Side(name, cpu, cpu, 100.0, 10, {"python": "3"})


def measured(*rows: Row, section: str = "suggestions") -> list[dict[str, Any]]:
    machine = {"cpu": "x", "cores": 1, "instructions": [], "memory_gb": 1, "system": "y",
               "torch_threads": 1}  # fmt: skip
    result = [_in_json(row) for row in rows]
    return [
        {"section": section, "name": "n", "date": "2026-01-01 00:00", "commit": "c",
         "machine": machine, "load": [0, 0], "rows": result}
    ]  # fmt: skip


def test_shares_are_operations_of_a_second_over_those_of_packed_products() -> None:
    row = Row("m", side("ours", 0.5), side("peer", 1.0), unit="u", flop=1.0, packed=8.0)
    assert row.shares == [0.25, 0.125]
    assert Row("m", side("ours", 1.0)).shares == []
    assert "25%, 12%" in table(measured(row))
    assert sum(a * b for a, b in layer_products(768, 4 * 768)) == 12 * 768**2
    assert products_flop(768, 4 * 768) == 2 * ROWS * 12 * 768**2


@pytest.mark.parametrize(
    ("cpu", "is_slower"),
    [
        ((1.0, 1.0, 1.0), False),
        ((1.15, 1.15, 1.15), False),  # less than 15 %
        ((1.3, 1.4, 1.5), True),
        ((0.9, 1.4, 1.5), False),  # the ranges overlap
    ],
)
def test_slower_is_a_ratio_that_fell_beyond_noise(cpu: tuple[float, ...], is_slower: bool) -> None:
    """Kept ratios were 1.9 to 2.1; rows missing from the table are not compared."""
    theirs = side("peer", 2.0, 2.0, 2.0)
    kept = measured(Row("m", side("ours", 1.0, 2 / 2.1, 2 / 1.9), theirs, unit="u"))
    new = [Row(name, side("ours", *cpu), theirs, unit="u") for name in ("m", "other")]
    result = slower(kept, measured(*new))
    assert bool(result) is is_slower
    if result:
        assert result == ["slower: m: ours / peer: 1.43× (1.33–1.54), was 2× (1.9–2.1)"]


def test_the_readmes_lines() -> None:
    rows = [
        Row(f"suggestions, {model}", side("ours", 0.5), side("peer", 1.0), unit="u", flop=1.0,
                packed=8.0)
        for model in ("minilm-l6-mlm", "BERT-base", "BERT-base")
    ]  # fmt: skip
    lines = headline(measured(*rows))
    assert lines == [
        f"- suggestions, {model}: 2× (2–2) as fast as peer; 25% and 12% of a packed matrix product"
        for model in ("BERT-base", "minilm-l6-mlm")
    ]
    page = "a\n<!-- benchmarks -->\nold\n<!-- /benchmarks -->\nb"
    assert with_lines(page, ["- new"]) == page.replace("old", "- new")
    with pytest.raises(ValueError, match="expected <!-- benchmarks -->"):
        with_lines("a", [])
