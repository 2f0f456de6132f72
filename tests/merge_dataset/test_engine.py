import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from merge_dataset.engine import connect, engine_errors, parquet


def test_memory_is_half_of_the_machine_s_or_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = "SELECT current_setting('memory_limit')"
    monkeypatch.setenv("MERGE_NLI_MEMORY", "64MiB")
    assert connect().execute(setting).fetchone() == ("64.0 MiB",)
    monkeypatch.setenv("MERGE_NLI_MEMORY", "50%")
    half = connect().execute(setting).fetchone()
    monkeypatch.delenv("MERGE_NLI_MEMORY")
    assert connect().execute(setting).fetchone() == half
    assert connect(bounded=True).execute(setting).fetchone() == ("667.5 MiB",)
    for wrong in ("much", "4 apples"):
        monkeypatch.setenv("MERGE_NLI_MEMORY", wrong)
        with pytest.raises(ValueError, match=f"such as 4GB or 50%, got '{wrong}'"):
            connect()


def test_what_exceeds_memory_lies_in_a_folder_that_goes(tmp_path: Path) -> None:
    code = (
        "from merge_dataset.engine import connect\n"
        "from pathlib import Path\n"
        "connection = connect()\n"
        "connection.execute('SET threads = 1')\n"  # each thread needs separate memory
        "connection.execute('CREATE TABLE t AS "
        "SELECT i, md5(i::VARCHAR) d FROM range(1500000) r(i) ORDER BY d')\n"
        f"[folder] = Path({str(tmp_path)!r}).iterdir()\n"
        "print(folder.name[:10], any(folder.iterdir()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TMPDIR": str(tmp_path), "MERGE_NLI_MEMORY": "48MiB"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("merge-nli- True\n", "")
    assert list(tmp_path.iterdir()) == []


def test_addresses_are_not_opened() -> None:
    from duckdb import Error

    with pytest.raises(Error, match="requires the extension httpfs"):
        connect().execute("FROM 'https://example.org/rows.parquet'")


def test_ctrl_c_in_a_query_is_an_interrupt() -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        raise KeyboardInterrupt
        yield

    reader = pa.RecordBatchReader.from_batches(pa.schema({"row": pa.int64()}), rows())
    with pytest.raises(KeyboardInterrupt), engine_errors(), connect() as connection:  # noqa: PT012
        connection.register("given", reader)
        try:
            connection.sql("SELECT count(*) FROM given").to_arrow_table()
        except duckdb.Error as error:
            raise ValueError("the data are damaged") from error
    with pytest.raises(KeyboardInterrupt), engine_errors():
        raise RuntimeError("Query interrupted")  # as raised by DuckDB
    with pytest.raises(ValueError, match="KeyboardInterrupt"), engine_errors():
        raise ValueError("expected no column KeyboardInterrupt")


def test_too_little_of_anything_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MERGE_NLI_MEMORY", "100KB")
    with pytest.raises(MemoryError, match="expected more memory for this data, got 100KB"):  # noqa: SIM117
        with engine_errors(), connect() as connection:
            connection.sql("SELECT DISTINCT i FROM range(1000) r(i)").to_arrow_table()
    with pytest.raises(MemoryError, match="TMPDIR: expected room in"), engine_errors():
        raise duckdb.IOException("IO Error: Could not write: No space left on device")
    with pytest.raises(OSError, match=r"files: 'a b\.parquet'"), engine_errors():
        raise duckdb.IOException('IO Error: Cannot open file "a b.parquet": Too many open files')
    gone = f"SELECT * FROM {parquet([tmp_path / 'a [1]*.parquet'])}"
    with (
        pytest.raises(FileNotFoundError, match=r"directory: '.*a \[1\]\*\.parquet'"),
        engine_errors(),
        connect() as connection,
    ):
        connection.sql(gone)
    with pytest.raises(duckdb.CatalogException), engine_errors(), connect() as connection:
        connection.sql("FROM nowhere")
