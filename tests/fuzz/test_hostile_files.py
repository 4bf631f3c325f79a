"""Files that no reader expects, given to every command that reads a file.

A command with a new argument or option that is a path fails the first test. It has to be registered
in ``hostile_files.txt``, or here as a path that is only written.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmetry.cli.main import every_command, run

ROOT = Path(__file__).parents[2]
READERS: dict[str, list[str]] = {}
"""Command and parameter -> what to try, with the file as FILE."""
for _line in Path(__file__).with_name("hostile_files.txt").read_text().splitlines()[1:]:
    if _line.startswith("["):
        READERS[_line.strip("[]")] = []
    else:
        READERS[next(reversed(READERS))].append(_line)

ALSO = {
    "--spec", "--output", "--into", "--html", "--save-spec", "--kernel", "--experiment", "--table",
    "--generated-dir", "--iree-bin-dir", "--token-file", "--base-path", "--sweep-dir",
    "--tracelens-path", "--input-csv", "--csv-path", "--sweep1", "--sweep2",
    "--output-dir", "--tasks",
}  # fmt: skip
"""Options that several commands have and one function reads, or that are only written."""

DEEP = 20_000
FILES: dict[str, bytes | Callable[[Path], object]] = {
    "empty": b"",
    "bytes": bytes(range(256)) * 9,
    "not UTF-8": b"\xff\xfea: 1\n",
    "nested": b"[" * DEEP + b"]" * DEEP,
    "nested without end": b'{"a":' * DEEP,
    "nested in a key": b'{"version":1,"traceEvents":[],"cache":' + b"[" * DEEP,
    "blocks": b"".join(b" " * depth + b"a:\n" for depth in range(600)),
    "digits": b'{"version":' + b"9" * 5000 + b',"schema_version":' + b"9" * 5000 + b"}",
    "infinity": b'{"version":1,"parameters":{"a":{}},"operations":{"x":[[0,Infinity,1,1]]}}',
    "another value": b"null",
    "surrogate": b'{"a":"\\ud800"}',
    "aliases": b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(9)),
    "many aliases": b"jobs: [&a {pmc: [x]}" + b",*a" * 120_000 + b"]\n",
    "alias of itself": b"a: &a [*a]\n",
    "tag": b'a: !!python/object/apply:os.system ["true"]\n',
    "keys": b"".join(b"k%d: 1\n" % i for i in range(500)),
    "long field": b'"ID","Kernel Name","m","n","k"\n"1","' + b"x" * 200_000 + b'",1,1,1\n',
    "long head": b'"ID","Kernel Name","' + b"x" * 200_000 + b'"\n"1","k","1"\n',
    "open quote": b'"ID","Kernel Name","Metric Name","Metric Value"\n"1","' + b"k\n" * 70_000,
    "open quote, rocprof": b'"Kind","Agent_Id","Queue_Id","Kernel_Name","Start_Timestamp",'
                           b'"End_Timestamp"\n"K",1,1,"' + b"x\n" * 70_000,
    "lines": b"\n" * 100_000,
    "blanks": b" " * 1_000_000,
    "no lines": b"x" * 1_000_000,
    "text": b"abcdefg\n" * 25_000,
    "begun": b'{"traceEvents":[' + b'{"a":' * 100_000,
    "a string": b'{"a":"' + b"x" * 1_000_000,
    "zeros": gzip.compress(bytes(17 << 20)),
    "blanks compressed": gzip.compress(b'{"traceEvents":[' + b" " * (17 << 20)),
    "cut": gzip.compress(os.urandom(100_000))[:5000],
    "magic of gzip": b"\x1f\x8b\x08",
    "magic of zstd": b"\x28\xb5\x2f\xfd" + bytes(20),
    "magic of zip": b"PK\x03\x04" + bytes(100),
    "magic of SQLite": b"SQLite format 3\0" + bytes(200),
    "magic of ELF": b"\x7fELF" + b"\xff" * 300,
    "lines of JSON": b'{"definition":"../x","workload":{}}\n' + b"[" * DEEP,
    "a tuner's": b'{"tune_params_keys":[],"cache":{"a":{"time":' + b"9" * 5000 + b"}}}",
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "itself": lambda path: path.symlink_to("/proc/self/mem"),
    "missing": lambda _path: None,
}  # fmt: skip
MOST_SECONDS = 60
"""Of one command, for a machine that is busy; each takes less than a second otherwise."""


def test_every_path_is_registered():
    """The keys of READERS are those of all commands, but for what many have in common."""
    paths = {
        f"{words} {parameter.opts[0]}"
        for words, command in every_command()
        for parameter in getattr(command, "params", ())
        if type(parameter.type).__name__ == "TyperPath" and parameter.opts[0] not in ALSO
    }
    assert paths - {*READERS} == set()


@contextlib.contextmanager
def limited():
    def late(*_):
        raise TimeoutError("it takes too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("reader", READERS)
def test_no_file_ends_a_command_but_with_a_sentence(reader, tmp_path, monkeypatch, capfd):
    """Never a traceback, never without end, and never the status of a regression alone."""
    monkeypatch.chdir(tmp_path)
    for line in READERS[reader]:
        end = line.partition("FILE")[2].partition(" ")[0].partition(":")[0]
        for number, (name, content) in enumerate(FILES.items()):
            if not end and isinstance(content, bytes) and number > 2:
                continue  # A folder is expected, and only opened.
            path = tmp_path / f"f{number}{end}"
            if isinstance(content, bytes):
                path.write_bytes(content)
            elif not os.path.lexists(path):
                content(path)
            with limited():
                words = line.replace(f"FILE{end}", str(path)).replace("ROOT", str(ROOT)).split()
                status = run(words)
            out, err = capfd.readouterr()
            assert status in (0, 1, 2, 3), (line, name, err)
            assert "Traceback" not in out + err, (line, name)
            assert err or status == 0, (line, name)
            if path.is_file() and not path.is_symlink():
                path.unlink()
