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

pytestmark = pytest.mark.usefixtures("own_folder")
SAMPLES = Path(__file__).parents[1] / "data" / "traces"


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


def test_a_cache_is_made_used_and_made_again(tmp_path):
    path = large(tmp_path)
    others = path.with_name(path.name + CACHE_SUFFIX)

    def read(**options):
        times: dict[str, float] = {}
        rows = read_trace(path, timings=times, **options)
        assert all(seconds >= 0 for seconds in times.values())
        return set(times), rows.names, rows.gpu.start_ns.tolist()

    stages, *first = read(use_cache=False)
    assert stages == {"read"}
    assert not others.exists()
    assert read() == ({"cache", "read", "save"}, *first)
    assert read() == ({"cache"}, *first)
    # A damaged cache is made anew.
    good = others.read_bytes()
    others.write_bytes(good[: len(good) // 2])
    assert read()[1:] == (*first,)
    assert others.read_bytes() == good
    # As is that of a trace that was written again; a small one leaves none.
    path.write_text(path.read_text().replace('"ts": 0,', '"ts": 7,'))
    assert read()[2][0] == 7000
    others.unlink()
    path.write_text('{"traceEvents": []}')
    read()
    assert not others.exists()


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
    traces = ("rank10.json", "rank2.json", "b/rank0.json")
    others = ("manifest.json", ".hidden.json", "notes.txt", "damaged.json.gz", "journal.db",
              f"rank2.json{CACHE_SUFFIX}")  # fmt: skip
    samples = {
        "rank1.pt.trace.json.gz": "h200_matmul.pt.trace.json.gz",
        "rank2_et.json.gz": "h200_matmul_et_1.1.1.json.gz",
        "8_counter_collection.csv": "sdk2025_counter_collection.csv",
        "9_counter_collection.csv": "sdk2024_counter_collection.csv",
        **{f"{folder}/77_{table}.csv": f"sdk2025_{table}.csv" for folder in ("host", "pass_1")
           for table in ("kernel_trace", "counter_collection")},
    }  # fmt: skip
    contents = {
        **dict.fromkeys(traces, text), **dict.fromkeys(others, b'{"a": 1}'), "list.json": b"[1, 2]",
        "results.csv": b"", **{name: (SAMPLES / one).read_bytes() for name, one in samples.items()},
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.json").mkdir()
    found = [str(path.relative_to(tmp_path)) for path in find_traces([tmp_path])]
    assert found == [
        "8_counter_collection.csv", "b/rank0.json", "host/77_kernel_trace.csv",
        "pass_1/77_kernel_trace.csv", "rank1.pt.trace.json.gz", "rank2.json", "rank10.json",
    ]  # fmt: skip


def test_files_that_are_named_keep_their_order_and_come_once(tmp_path):
    one, two = tmp_path / "2.json", tmp_path / "1.json"
    for path in (one, two):
        path.write_text('{"traceEvents": []}')
    assert find_traces([one, tmp_path, one]) == [one, two]
    missing, empty = tmp_path / "none", tmp_path / "empty"
    empty.mkdir()
    for reader, place, reason in (
        (find_traces, [missing], "does not exist"),
        (find_traces, [empty], "no trace below"),
        (read_trace, missing, os.strerror(errno.ENOENT)),
        (read_trace, empty, "is a folder"),
    ):
        with pytest.raises(RequestError, match=reason):
            reader(place)


def test_a_full_disk_is_not_a_damaged_trace(tmp_path, monkeypatch):
    def refuse() -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(spool.Spool.__init__, "__kwdefaults__", {"most_bytes": 0})
    monkeypatch.setattr(spool.tempfile, "TemporaryFile", refuse)
    with pytest.raises(StorageError, match="No space left"):
        read_trace(large(tmp_path))


@pytest.fixture
def locked(monkeypatch):
    """Creates files and folders that no user may read, not even root."""
    closed = set()

    def refusing(really):
        def call(path=".", *args, **options):
            if Path(path) in closed:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return really(path, *args, **options)

        return call

    monkeypatch.setattr(Path, "open", refusing(Path.open))
    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    monkeypatch.setattr(Path, "iterdir", lambda self: map(Path, os.scandir(self)))
    return closed.add


TABLES = ("hk_b64_bank_test_agent_info.csv", "sdk2024_counter_collection.csv")
NO_TRACES = {
    "empty": (b"", "it is empty"),
    "binary": (b"\x00\x01\x02", "its first bytes are 00 01 02"),
    "text": (b"Traceback (most recent call last)", "begins with 'Traceback"),
    "text of one line": (b"plain\n", r"begins with 'plain\\n'"),
    "cut array": (b"[1,2", "ends before"),
    "cut long array": (b"[" + b"1, " * 50_000, "ends before"),
    "cut": (b'{"schemaVersion": 1, "deviceProp', "ends before"),
    "utf16": ('{"traceEvents": []}'.encode("utf-16"), "UTF-16"),
    "utf16le": ('{"traceEvents": []}'.encode("utf-16-le"), "UTF-16"),
    "gzip": (gzip.compress(b'{"traceEvents": []}')[:12], "cut short"),
    "gzip's head": (b"\x1f\x8b\x08\x00", "byte 0: the compressed data are cut short"),
    "zstd": (b"\x28\xb5\x2f\xfd" + b"\xff" * 50, "byte 0: the compressed data are damaged"),
    "workbook": (b"PK\x03\x04", "a workbook"),
    "other JSON": (b'{"a": [1]}', 'without "traceEvents"'),
    "Chakra": (b'{"schema": "1.1.1", "nodes": []}', "Chakra execution trace"),
    **{name: ((SAMPLES / name).read_bytes(), "has kernels with their times") for name in TABLES},
}
OTHERS = {"workbook", "other JSON", "Chakra", *TABLES}
"""Files of a folder that nobody takes for traces; of the rest, each is read or an error."""


@pytest.mark.parametrize("name", NO_TRACES)
def test_what_is_not_a_trace_is_named_with_the_reason(tmp_path, name):
    content, reason = NO_TRACES[name]
    if name == "zstd":
        pytest.importorskip("zstandard")
    path = tmp_path / "rank1.json"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=reason) as raised:
        read_trace(path)
    assert str(path) in str(raised.value)
    assert raised.value.hint
    good = tmp_path / "rank0.json.gz"
    shutil.copy(SAMPLES / "h200_matmul.pt.trace.json.gz", good)
    assert find_traces([tmp_path]) == ([good] if name in OTHERS else [good, path])


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
