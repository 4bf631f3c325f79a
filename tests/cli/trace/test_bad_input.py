"""Invalid traces, given to every command that reads traces: each names the file and the byte or the
event, reports what could be read, and ends with the documented status."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import sqlite3
from pathlib import Path

import pytest

from gemmetry.domain import opening
from gemmetry.formats import readers

DATA = Path(__file__).parents[2] / "data"
GOOD = DATA / "traces" / "h200_matmul.pt.trace.json.gz"
SUFFIXES = ("xlsx", "html", "json", "md")
READING = {
    "summary": ("summary",),
    "gemms": ("gemms",),
    "shapes": ("shapes",),
    "collectives": ("collectives",),
    "report": ("report", *(word for s in SUFFIXES for word in ("-o", f"r.{s}")), "-o", "sheets"),
}
"""Command -> its words; every one reads the files that follow."""


@pytest.fixture
def read(cli):
    """Runs a command of READING on files."""

    def call(command, *words, status=None):
        first, *rest = READING[command]
        return cli("trace", first, *map(str, words), *rest, "--no-cache", status=status)

    return call


def kernel(name="my_gemm_kernel", ts=10.0, dur=5.0, **args):
    reported = {"device": 0, "stream": 7, "correlation": 1}
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
        "args": reported | args,
    }  # fmt: skip


def document(*events, **head):
    return json.dumps({**head, "traceEvents": list(events)}).encode()


MANY = document(*[kernel(f"kernel {i * 7919 % 1000}", 10 * i) for i in range(5_000)])
"""About 750 kB, several blocks of a compressor."""


# Files that cannot be read: status 2, and 1 where others can be.


def _database(path):
    with sqlite3.connect(path) as opened:
        opened.execute("CREATE TABLE x (y)")
    opened.close()


UNREADABLE = {
    "text": (lambda path: path.write_text("no trace"), "it begins with 'no trace'"),
    "a folder without traces": (lambda path: path.mkdir(), "no trace below"),
    "a pipe": (os.mkfifo, "is a pipe, not a file"),
    "a file that lies": (lambda path: path.symlink_to("/proc/self/mem"), os.strerror(errno.EIO)),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), "does not exist"),
    "another database": (_database, "SQLite database"),
    "a name too long": (None, os.strerror(errno.ENAMETOOLONG)),
}
"""What is no trace -> how it is made, and what is reported; tests/traces has other contents."""


@pytest.mark.parametrize(("number", "kind"), [*enumerate(UNREADABLE)])
def test_a_file_that_cannot_be_read_is_a_wrong_request_and_does_not_stop_others(read, number, kind):
    """Each kind of file with two of the commands, in turn."""
    alone, with_others = ([*READING][(number + one) % len(READING)] for one in (0, 2))
    make, reported = UNREADABLE[kind]
    path = Path(f"{kind}.json") if make else Path("x" * 300)
    if make:
        make(path)

    def error_of(ended):
        (error,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
        return error

    ended = read(alone, path, status=2)
    assert ended.stdout == ""
    assert str(path) in error_of(ended) and re.search(reported, error_of(ended))
    assert "hint: " in ended.stderr
    assert not list(Path().glob("r.*")) and not Path("sheets").exists()

    if with_others == "report":
        assert str(path) in error_of(read(with_others, path, GOOD, status=1))
        assert all(Path(f"r.{suffix}").stat().st_size for suffix in SUFFIXES)
        assert "could not be read" in Path("r.md").read_text()
        document = json.loads(Path("r.json").read_text())
        assert len(document["sheets"]["summary"]) == 1
    else:
        ended = read(with_others, path, GOOD, "--json", status=1)
        assert str(path) in error_of(ended)
        document = json.loads(ended.stdout)
    failed = document["errors"]  # of collectives by file
    files = [one["file"] for one in failed] if isinstance(failed, list) else [*failed]
    assert files == [str(path)]


@pytest.mark.parametrize("name", ["gone.json", "gone.db"])
def test_a_file_that_vanishes_meanwhile(read, monkeypatch, name):
    original = readers.format_of

    def format_of(path):
        found = original(path)
        path.unlink()
        return found

    Path(name).write_bytes(document(kernel()) if name.endswith("n") else b"SQLite format 3\x00")
    monkeypatch.setattr(readers, "format_of", format_of)
    assert f"error: {name}" in read("gemms", name, status=2).stderr


# Files of which a part can be read: status 0, and a warning that names the byte or the event.


def _cut(content):
    return content[: 3 * len(content) // 4]


def _bomb(events=60):
    """Events that compress better than those of any trace."""
    event = json.dumps(kernel("x" * 200_000)).encode()
    return b'{"traceEvents": [' + b",".join([event] * events) + b"]}"


NESTED = b"[" * 200_000 + b"]" * 200_000
_NAN = document(kernel("a", ts="N"), kernel("b"), kernel("c", dur="N")).replace(b'"N"', b"NaN")

DAMAGED = {
    # What -> (content, kernels that are read or None for "some", what is reported, whether
    # partial).
    "truncated JSON": (lambda: MANY[: len(MANY) // 2], None, r"byte \d{6}: ", True),
    "truncated within the head": (lambda: b'{"a": [1, 2, 3], "traceEvents"', 0, "", False),
    "truncated gzip": (lambda: _cut(gzip.compress(MANY)), None, r"byte \d+: .*cut short", True),
    "damaged gzip": (
        lambda: (c := gzip.compress(MANY))[: len(c) // 2] + b"\0" * 50 + c[len(c) // 2 + 50 :],
        None, r"byte \d+: .*damaged", True,
    ),
    "a gzip bomb": (lambda: gzip.compress(_bomb()), None, r"byte \d+: .* like a gzip bomb", True),
    "deep nesting in an event": (
        lambda: document(kernel("a"), kernel("b", x="N"), kernel("c")).replace(b'"N"', NESTED),
        2, r"byte \d+: left out", True,
    ),
    "deep nesting without an end": (
        lambda: document(kernel("a"), kernel("b", x="N"), kernel("c")).replace(
            b'"N"', b"[" * 200_000
        ), None, r"byte \d+: this event has no end", True,
    ),
    "NaN as times": (
        lambda: _NAN, 1, r"GPU 'a' \(and 1 more\): has no usable time", False
    ),
    "a million million ranks": (
        lambda: document(kernel(), distributedInfo={"rank": 0, "world_size": 10**12}),
        1, r"file: world_size 1000000000000 is impossible", False,
    ),
    "not UTF-8": (lambda: document(kernel("gemm?")).replace(b"?", b"\xff"), 1, "", False),
    "no event": (
        lambda: document(kernel(), 7, "x", kernel()), 2, r"byte \d+: left out because it is",
        True,
    ),
    "a lost quote": (
        lambda: document(*[kernel(f"k{i}") for i in range(50)]).replace(b'"k20"', b'"k20'),
        None, r"byte \d+: this event has no end: .* reading continues at byte \d+", True,
    ),
    "names of a megabyte": (
        lambda: document(kernel("x" * 1_000_000 + "_gemm"), kernel("y" * 1_000_000)), 2, "", False
    ),
    "arguments of wrong types": (
        lambda: document(kernel(correlation={}, stream=[1], grid="x", bytes=10**30)), 1, "", False
    ),
}  # fmt: skip


@pytest.mark.parametrize(("number", "what"), [*enumerate(DAMAGED)])
def test_what_can_be_read_is_shown_and_the_rest_is_reported(read, number, what, monkeypatch):
    """A report shows it, and so does one of the other commands, in turn."""
    make, kernels, reported, is_partial = DAMAGED[what]
    # Each command would unpack 64 MiB.
    monkeypatch.setattr(opening, "_BOMB_BYTES", 4 << 20)
    Path("bad.json").write_bytes(make())
    other = [*READING][number % 4]
    if kernels == 0:
        # Nothing was read before it ends.
        assert "bad.json is not a trace" in read(other, "bad.json", status=2).stderr
        return
    for command in ("report", other):
        ended = read(command, "bad.json", status=0)
        assert ("warning: bad.json is partial: events are missing" in ended.stderr) == is_partial
        warnings = [w for w in ended.stderr.splitlines() if w.startswith("warning: bad.json: ")]
        assert bool(warnings) == bool(reported), ended.stderr
        assert re.search(reported, "\n".join(warnings)), warnings
        assert "\x1b" not in ended.stdout
    sheets = json.loads(Path("r.json").read_text())["sheets"]
    (entry,) = sheets["summary"]
    assert entry["kernels"] == kernels if kernels else entry["kernels"] > 0
    assert ("problems" in sheets) == bool(reported)
    found = json.loads(read(other, "bad.json", "--json").stdout)
    if other == "collectives":
        (rank,) = found["per_rank"]
        assert rank["partial"] == is_partial
        assert bool(rank["problems"]) == bool(reported)
    else:
        assert found["partial"] == (["bad.json"] if is_partial else [])
        problems = [f"{one['where']}: {one['what']}" for one in found["problems"]]
        assert re.search(reported, "\n".join(problems)) and bool(problems) == bool(reported)


# Names.

ACTIVE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e]"
VALUES = json.loads((DATA.parent / "fuzz/hostile_values.json").read_text("utf-8"))
NAMES = [*VALUES["scripts"], *VALUES["formulas"], *VALUES["marks"], "\ud800", "\x08c\x7fd",
         "a\n\nerror: b\r\nc\rd", "[bold red]x[/][link=file:///etc/passwd]y[/link]"]  # fmt: skip


def test_names_are_shown_and_do_nothing(read):
    """All of them at once, of folders, devices, kernels, operators, groups and formats, on the
    terminal; what is written is tested in tests/fuzz and tests/results."""
    files = []
    for rank, text in enumerate(["=1+1\u202e\x1b[31m[bold]<b>", "@a\u2066\x07b"]):
        events = []
        for number, name in enumerate(NAMES):
            start = 200 * number
            collective = {
                "Collective name": "allreduce", "dtype": name, "Process Group Name": name,
                "In msg nelems": 8, "Group size": 2, "Process Group Ranks": "[0, 1]",
            }  # fmt: skip
            product = {"External id": number + 1, "Input Dims": [[8, 8], [8, 8]],
                       "Input type": ["float"] * 2}  # fmt: skip
            events += [
                kernel(f"{name}_gemm", start),
                kernel("my_gemm_kernel", start + 40, **{"External id": number + 1}),
                kernel(f"ncclDevKernel_AllReduce{name}", start + 20, **collective),
                {**kernel(name, start, 50), "cat": "cpu_op"},
                {**kernel("aten::mm", start + 100, **product), "cat": "cpu_op"},
            ]
        files.append(Path.cwd() / text / f"rank{rank}.json")
        files[-1].parent.mkdir()
        files[-1].write_bytes(document(
            *events, distributedInfo={"rank": rank, "world_size": 2}, host_name=text,
            deviceProperties=[{"id": 0, "name": text}],
        ))  # fmt: skip
    for command in READING:
        ended = read(command, *files, status=0)
        for printed in (ended.stdout, ended.stderr):
            assert not re.search(ACTIVE, printed)
            assert not re.search("^error: b", printed, re.MULTILINE)
        if command != "report":
            json.loads(read(command, *files, "--json").stdout)
