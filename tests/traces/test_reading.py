from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.formats import events as spool
from gemmetry.traces import reading
from gemmetry.traces.reading import CACHE_SUFFIX, find_traces, read_trace

SAMPLES = Path(__file__).parents[1] / "data" / "traces"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))


def large(folder: Path) -> Path:
    """A trace of the size from which on a cache is made."""
    events = [
        {"ph": "X", "cat": "kernel", "name": f"k{i % 9}", "ts": i, "dur": 1, "args": {"device": 0}}
        for i in range(3000)
    ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_a_rocpd_database(tmp_path):
    path = tmp_path / "1_results.db"
    with closing(sqlite3.connect(path)) as opened:
        opened.executescript(
            """CREATE TABLE rocpd_kernel_dispatch_a (id INTEGER PRIMARY KEY, kernel_id, start,
                "end", workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x,
                grid_size_y, grid_size_z, event_id);
            CREATE TABLE rocpd_event_a (id INTEGER PRIMARY KEY, stack_id);
            INSERT INTO rocpd_kernel_dispatch_a VALUES (1, 1, 5, 8, 64, 1, 1, 128, 1, 1, 1);"""
        )
    assert read_trace(path).gpu.duration_ns.tolist() == [3]
    assert find_traces([tmp_path]) == [path]


def test_zstd(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    text = gzip.decompress((SAMPLES / "h200_matmul.pt.trace.json.gz").read_bytes())
    path = tmp_path / "trace.json.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(text))
    assert len(read_trace(path).gpu.start_ns) == 2
    events = [{"ph": "X", "cat": "kernel", "name": f"{i * 7919}", "ts": i} for i in range(30_000)]
    packed = zstandard.ZstdCompressor().compress(json.dumps({"traceEvents": events}).encode())
    path.write_bytes(packed[: len(packed) // 2])
    rows = read_trace(path)
    assert rows.partial
    assert any("cut short" in problem.what for problem in rows.problems)
    path.write_bytes(packed[:100])
    with pytest.raises(RequestError, match="byte 0: the compressed data are cut short"):
        read_trace(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"\x00\x01\x02", "it is neither text nor a known format; its first bytes are 00 01 02"),
        (b'{"a": [1]}', 'without "traceEvents"'),
        (b'{"schema": "1.1.1", "nodes": []}', "Chakra execution trace"),
        (b"PK\x03\x04", "a workbook"),
        (b"\x1f\x8b\x08\x00", "byte 0: the compressed data are cut short"),
        (b"\x28\xb5\x2f\xfd" + b"\xff" * 50, "byte 0: the compressed data are damaged"),
        (b'"Correlation_Id","Start_Timestamp"\n1,2\n', "has kernels with their times"),
        ('{"traceEvents": []}'.encode("utf-16"), "it is text in UTF-16"),
    ],
)
def test_what_is_not_a_trace_is_named_with_the_reason(tmp_path, content, message):
    if content.startswith(b"\x28"):
        pytest.importorskip("zstandard")
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=message) as raised:
        read_trace(path)
    assert str(path) in str(raised.value)
    assert raised.value.hint


def test_folders_and_files_that_are_missing(tmp_path):
    with pytest.raises(RequestError, match="is a folder"):
        read_trace(tmp_path)
    with pytest.raises(RequestError, match=os.strerror(errno.ENOENT)):
        read_trace(tmp_path / "none.json")


def test_a_cache_is_made_used_and_made_again(tmp_path):
    path = large(tmp_path)
    others = path.with_name(path.name + CACHE_SUFFIX)
    times: dict[str, float] = {}
    first = read_trace(path, use_cache=False, timings=times)
    assert not others.exists()
    assert set(times) == {"read"}
    times.clear()
    read_trace(path, timings=times)
    assert set(times) == {"cache", "read", "save"}
    assert all(seconds >= 0 for seconds in times.values())
    times.clear()
    again = read_trace(path, timings=times)
    assert set(times) == {"cache"}
    assert again.names == first.names
    assert again.gpu.start_ns.tolist() == first.gpu.start_ns.tolist()
    # A damaged cache is made anew.
    good = others.read_bytes()
    others.write_bytes(good[: len(good) // 2])
    assert read_trace(path).gpu.start_ns.tolist() == first.gpu.start_ns.tolist()
    assert others.read_bytes() == good
    # As is that of a trace that was written again.
    path.write_text(path.read_text().replace('"ts": 0,', '"ts": 7,'))
    assert read_trace(path).gpu.start_ns[0] == 7000


def test_small_traces_leave_no_cache(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}')
    read_trace(path)
    assert list(tmp_path.iterdir()) == [path]


def test_the_cache_of_a_table_depends_on_the_tables_next_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "SMALLEST_CACHED_BYTES", 0)
    for table in ("agent_info", "counter_collection"):
        shutil.copy(SAMPLES / f"hk_b64_bank_test_{table}.csv", tmp_path / f"1_{table}.csv")
    path = tmp_path / "1_counter_collection.csv"
    assert read_trace(path).gpu.device.tolist() == [0, 0, 0]
    (tmp_path / "1_agent_info.csv").unlink()
    assert read_trace(path).gpu.device.tolist() == [2, 2, 2]


def test_traces_of_a_folder_in_natural_order(tmp_path):
    text = gzip.decompress((SAMPLES / "h200_matmul.pt.trace.json.gz").read_bytes())
    for name in ("rank10.json", "rank2.json", "rank1.pt.trace.json.gz", "b/rank0.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    for table in ("kernel_trace", "counter_collection"):
        for folder in ("host", "pass_1"):
            (tmp_path / folder).mkdir(exist_ok=True)
            target = tmp_path / folder / f"77_{table}.csv"
            shutil.copy(SAMPLES / f"sdk2025_{table}.csv", target)
    shutil.copy(SAMPLES / "sdk2025_counter_collection.csv", tmp_path / "8_counter_collection.csv")
    shutil.copy(SAMPLES / "sdk2024_counter_collection.csv", tmp_path / "9_counter_collection.csv")
    shutil.copy(SAMPLES / "h200_matmul_et_1.1.1.json.gz", tmp_path / "rank2_et.json.gz")
    for name in ("manifest.json", ".hidden.json", "notes.txt", "damaged.json.gz", "journal.db"):
        (tmp_path / name).write_bytes(b'{"a": 1}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "results.csv").write_text("")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / f"rank2.json{CACHE_SUFFIX}").write_bytes(b"x")
    found = [str(path.relative_to(tmp_path)) for path in find_traces([tmp_path])]
    assert found == [
        "8_counter_collection.csv",
        "b/rank0.json",
        "host/77_kernel_trace.csv",
        "pass_1/77_kernel_trace.csv",
        "rank1.pt.trace.json.gz",
        "rank2.json",
        "rank10.json",
    ]


def test_files_that_are_named_keep_their_order_and_come_once(tmp_path):
    one, two = tmp_path / "2.json", tmp_path / "1.json"
    for path in (one, two):
        path.write_text('{"traceEvents": []}')
    assert find_traces([one, tmp_path, one]) == [one, two]
    with pytest.raises(RequestError, match="does not exist"):
        find_traces([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="no trace below"):
        find_traces([tmp_path / "empty"])


def test_a_full_disk_is_not_a_damaged_trace(tmp_path, monkeypatch):
    def refuse() -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(spool.Spool.__init__, "__kwdefaults__", {"most_bytes": 0})
    monkeypatch.setattr(spool.tempfile, "TemporaryFile", refuse)
    with pytest.raises(StorageError, match="No space left"):
        read_trace(large(tmp_path))


def test_tables_without_any_times_are_refused_with_the_reason(tmp_path):
    for table in ("hk_b64_bank_test_agent_info", "sdk2024_counter_collection"):
        path = tmp_path / f"{table}.csv"
        shutil.copy(SAMPLES / path.name, path)
        with pytest.raises(RequestError, match="has kernels with their times"):
            read_trace(path)


@pytest.fixture
def locked(monkeypatch):
    """Creates files and folders that no user may read, not even root."""
    closed = set()
    really_open, really_scan = Path.open, os.scandir

    def open_(self, *args, **options):
        if self in closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return really_open(self, *args, **options)

    def scan(path="."):
        if Path(path) in closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really_scan(path)

    monkeypatch.setattr(Path, "open", open_)
    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(Path, "iterdir", lambda self: map(Path, scan(self)))
    return closed.add


BAD = {
    "empty": (b"", "it is empty"),
    "utf16": ('{"traceEvents": []}'.encode("utf-16"), "UTF-16"),
    "utf16le": ('{"traceEvents": []}'.encode("utf-16-le"), "UTF-16"),
    "text": (b"Traceback (most recent call last)", "begins with 'Traceback"),
    "text of one line": (b"plain\n", r"begins with 'plain\\n'"),
    "cut array": (b"[1,2", "ends before"),
    "cut long array": (b"[" + b"1, " * 50_000, "ends before"),
    "cut": (b'{"schemaVersion": 1, "deviceProp', "ends before"),
    "gzip": (gzip.compress(b'{"traceEvents": []}')[:12], "cut short"),
}


@pytest.mark.parametrize("bad", BAD)
def test_an_invalid_json_file_in_a_folder_is_not_skipped(tmp_path, bad):
    content, reason = BAD[bad]
    path = tmp_path / "rank1.json"
    path.write_bytes(content)
    shutil.copy(SAMPLES / "h200_matmul.pt.trace.json.gz", tmp_path / "rank0.json.gz")
    assert find_traces([tmp_path]) == [tmp_path / "rank0.json.gz", path]
    with pytest.raises(RequestError, match=reason):
        read_trace(path)


def test_files_that_may_not_be_opened_are_not_skipped(tmp_path, locked):
    good = tmp_path / "rank0.json.gz"
    shutil.copy(SAMPLES / "h200_matmul.pt.trace.json.gz", good)
    names = ("rank1.json", "9_kernel_trace.csv", "9_results.db", "rank2", "broken.json")
    file, table, database, folder, link = (tmp_path / name for name in names)
    for path in (file, table, database, tmp_path / "other.csv"):
        path.write_text("x")
        locked(path)
    folder.mkdir()
    locked(folder)
    link.symlink_to(tmp_path / "gone.json")
    assert set(find_traces([tmp_path])) == {good, file, table, database, folder, link}
    for path in (file, table, folder, link):
        with pytest.raises(RequestError, match=path.name):
            read_trace(path)
    locked(tmp_path)
    assert find_traces([tmp_path]) == [tmp_path]
    with pytest.raises(RequestError, match=os.strerror(errno.EACCES)):
        read_trace(tmp_path)
