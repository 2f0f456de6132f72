import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.replacement_tables import Replacement, replacements_in, table_of
from hypothesis import given
from hypothesis import strategies as st

from generation.records import (
    replacement_schema,
    sorted_replacements,
)
from merge_dataset.answer_store import slug
from merge_dataset.files import write_table


@given(st.text(max_size=30))
def test_a_slug_is_a_file_name(text: str) -> None:
    result = slug(text)
    assert re.fullmatch(r"[A-Za-z0-9.-]*", result)
    assert slug(result) == result


IDS = st.text("ab:/~1é", min_size=1, max_size=5)
TEXT = st.text(max_size=12)
MLMS = st.lists(TEXT, max_size=3).map(tuple)
CLASSES = st.sampled_from(["noun", "verb"])

REPLACED = st.builds(
    Replacement, seed_id=IDS, source=TEXT, word=TEXT, word_class=CLASSES, replacement=TEXT,
    premise_mlms=MLMS, hypothesis_mlms=MLMS, log_odds=st.floats(-50, 50, width=32),
)  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / "t.parquet"


@given(replacements=st.lists(REPLACED, max_size=5))
def test_replacements_read_back_sorted(file: Path, replacements: list[Replacement]) -> None:
    halves = table_of(replacements[:2]), table_of(replacements[2:])
    table = sorted_replacements(pa.concat_tables(halves))
    assert table.schema == replacement_schema()
    assert all(column.num_chunks <= 1 for column in table.columns)
    write_table(file, table)
    read = replacements_in(pq.read_table(file, schema=replacement_schema()))
    keys = [(r.seed_id, r.word_class, r.word, r.replacement) for r in read]
    assert keys == sorted(keys)
    assert sorted(map(repr, read)) == sorted(map(repr, replacements))
