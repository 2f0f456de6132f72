import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from merge_dataset.engine import connect, engine_errors, parquet
from merge_dataset.files import (
    RowGroupWriter,
    atomic,
    atomic_folder,
    describe_os_error,
    digest_of,
    digest_of_file,
    digests,
    exclusive,
    partial_path,
    read_json,
    read_record,
    read_row_groups,
    read_schema,
    read_table,
    read_text,
    working_in,
    write_json,
    write_record,
    write_table,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "f.txt"
    write_text(path, "old")

    def fail() -> None:
        with atomic(path) as temporary:
            temporary.write_text("half of the n")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["f.txt"]


def test_bytes_are_on_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If they cannot be synced, the old file stays."""
    write_text(tmp_path / "f.txt", "old")

    def full(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_text(tmp_path / "f.txt", "new")
    assert (tmp_path / "f.txt").read_text() == "old"
    assert names(tmp_path) == ["f.txt"]


def test_what_killed_writers_left_goes_with_the_next(tmp_path: Path) -> None:
    path, left, folder = (partial_path(tmp_path / name) for name in ("f.txt", "f.txt", "g.txt"))
    left.touch()
    folder.touch()
    with atomic(tmp_path / "f.txt") as one:
        assert not left.exists()
        write_text(tmp_path / "f.txt", "other")
        one.write_text("one")
    assert not path.exists()
    assert names(tmp_path) == [folder.name, "f.txt"]
    assert (tmp_path / "f.txt").read_text() == "one"


def test_errors_name_the_file_and_the_cure(tmp_path: Path) -> None:
    def fail(error: OSError) -> None:
        with atomic(tmp_path / "f.txt"):
            raise error

    with pytest.raises(OSError, match=r"No space left on device: '.*/f.txt'") as full:
        fail(OSError(errno.ENOSPC, "[Errno 28] Error writing bytes to file.\nDetail: 28"))
    assert describe_os_error(full.value) == (
        f"{tmp_path}/f.txt: no space left on device; make room there, then give the same command "
        "again"
    )
    with pytest.raises(OSError, match="elsewhere"):
        fail(OSError(errno.ENOSPC, "No space left on device", "elsewhere"))
    with pytest.raises(FileExistsError, match=r"^expected none$"):
        fail(FileExistsError("expected none"))
    assert names(tmp_path) == []


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for number in (1, 2):
        with atomic_folder(tmp_path / "folder") as made:
            (made / f"{number}").touch()
        assert names(tmp_path / "folder") == [f"{number}"]
        (tmp_path / ".folder.old/x").mkdir(parents=True)  # by a killed command
        partial_path(tmp_path / "folder").mkdir()
    with atomic_folder(tmp_path / "folder"):
        pass
    with suppress(KeyboardInterrupt), atomic_folder(tmp_path / "folder") as made:
        (made / "half").touch()
        raise KeyboardInterrupt
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == []


def refusal_of(lock: Path) -> str:
    """Return the message for another thread, which is that for other processes."""

    def take() -> None:
        with exclusive(lock, "taken"):
            pass

    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(take).exception(timeout=60)
    assert isinstance(error, BlockingIOError)
    return str(error)


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    for _ in range(2):
        with exclusive(lock, "taken"):
            with exclusive(lock, "taken"):
                assert refusal_of(lock) == "taken"
            assert refusal_of(lock) == "taken"
        assert names(tmp_path) == []


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = tmp_path / ".lock"
    with exclusive(lock, "taken"):
        assert names(tmp_path) == [".lock"]
        assert refusal_of(lock) == "taken"
    assert names(tmp_path) == []


def test_a_folder_is_held_by_one_thread(tmp_path: Path) -> None:
    folder, order = tmp_path / "a" / "run", []

    def work(*, wait: bool) -> None:
        with working_in(folder, wait=wait):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with working_in(folder), working_in(folder):
            refused = pool.submit(work, wait=False).exception(timeout=60)
            waiting = pool.submit(work, wait=True)
            order.append("first")
        waiting.result(timeout=60)
    assert isinstance(refused, BlockingIOError)
    assert "another command is at work in this folder" in str(refused)
    assert order == ["first", "second"]
    with working_in(tmp_path / "alone"):
        assert names(tmp_path / "alone") == [".lock"]
    assert not (tmp_path / "alone").exists()


def test_a_record_knows_when_it_is_changed(tmp_path: Path) -> None:
    path, value = tmp_path / "r.json", {"b": [1, 2.5], "a": "é"}
    write_record(path, value)
    assert read_record(path) == value
    text = path.read_text()
    write_json(path, dict(reversed(read_json(path).items())))
    assert read_record(path) == value
    path.write_text(text.replace("2.5", "2.6"))
    with pytest.raises(ValueError, match=r"r.json: .* other contents: .* restore it from"):
        read_record(path)
    assert read_record(path, verify=False)["b"] == [1, 2.6]
    write_json(path, value)
    with pytest.raises(ValueError, match="expected a record with digest, got one without digest"):
        read_record(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="expected a record with digest, got a JSON list"):
        read_record(path)


def test_texts_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"a": 1,\n "b" 2}')
    with pytest.raises(
        ValueError, match=r"broken\.json: expected JSON, got something else: .*: line 2"
    ):
        read_json(path)
    (tmp_path / "f.txt").write_bytes(b"one\ncaf\xe9")
    with pytest.raises(ValueError, match=r"f\.txt: .* UTF-8, got the byte 0xe9 at position 7"):
        read_text(tmp_path / "f.txt")
    (tmp_path / "f.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"f\.json: expected JSON, got .* maximum recursion depth"):
        read_json(tmp_path / "f.json")


def test_digests(tmp_path: Path) -> None:
    """Digests are pinned, as fingerprints and folder names depend on them; types matter, too."""
    for name, content in {"a": b"abc", "empty": b"", "large": b"x" * 3_000_000}.items():
        (tmp_path / name).write_bytes(content)
        assert digest_of_file(tmp_path / name) == hashlib.sha256(content).hexdigest()
    assert digests({"one": tmp_path / "a", "two": tmp_path / "empty"}) == {
        "one": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "two": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }
    assert digest_of({"a": 1, "b": {"c": [1], "d": 2}}) == digest_of(
        {"b": {"d": 2, "c": [1]}, "a": 1}
    )
    text = '{"a": [1, 2], "é": null}'
    assert digest_of({"é": None, "a": (1, 2)}) == hashlib.sha256(text.encode()).hexdigest()


def _write_row_groups(path: Path, table: pa.Table) -> None:
    with RowGroupWriter(path, table.schema) as writer:
        writer.write(table)


def test_a_flipped_bit_is_noticed_on_reading(tmp_path: Path) -> None:
    import pandas as pd

    table = pa.table({"a": [0.1 * n for n in range(5000)], "b": [str(n) for n in range(5000)]})
    path, damaged = tmp_path / "f.parquet", tmp_path / "d.parquet"
    for write in (write_table, _write_row_groups):
        write(path, table)
        assert read_table(path).equals(table)
        assert pd.read_parquet(path)["a"].tolist() == table["a"].to_pylist()
        content = bytearray(path.read_bytes())
        content[2000] ^= 1  # among the numbers, where decompression alone misses most errors
        damaged.write_bytes(content)
        for read in (read_table, lambda path: list(read_row_groups(path))):
            with pytest.raises(ValueError, match=r"d\.parquet: expected a whole Parquet file, got"):
                read(damaged)
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.parquet")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such names")
def test_names_that_are_not_utf8_are_no_damage(tmp_path: Path) -> None:
    """Pyarrow cannot open them: the remedy is a new name, not a copy."""
    folder = tmp_path / os.fsdecode(b"d\xe4ta")
    folder.mkdir()
    write_table(tmp_path / "good.parquet", pa.table({"a": [1]}))
    shutil.copy(tmp_path / "good.parquet", folder / "x.parquet")
    for read in (read_table, read_schema, lambda path: read_table(path, where=[("a", "==", 1)])):
        with pytest.raises(ValueError, match=r"; rename it, as pyarrow opens only names in UTF-8$"):
            read(folder / "x.parquet")
    umlaut = tmp_path / "d\u00e4ta.parquet"
    write_table(umlaut, pa.table({"a": [1]}))
    assert read_table(umlaut)["a"].to_pylist() == [1]
    umlaut.write_bytes(b"PAR1 cut PAR")
    with pytest.raises(ValueError, match=r"agic bytes not found .*; restore it from a copy"):
        read_table(umlaut)


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
