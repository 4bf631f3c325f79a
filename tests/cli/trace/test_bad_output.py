"""Writing results of traces where they cannot be written: no half-written file is left, an older
one stays as it was, and the message names the file, the cause and the next step."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from gemmetry.traces.reading import CACHE_SUFFIX

DATA = Path(__file__).parents[2] / "data"
GOOD = str(DATA / "traces" / "h200_matmul.pt.trace.json.gz")
LARGE = DATA / "traces" / "h200_fsdp_rank0of4_part.pt.trace.json.gz"
PLACES = [
    ("/proc/nowhere", "|".join(map(os.strerror, (errno.ENOENT, errno.EPERM, errno.EACCES)))),
    ("a-file", os.strerror(errno.ENOTDIR)),
    ("x" * 300, os.strerror(errno.ENAMETOOLONG)),
]
"""Where no folder can be made, and why."""
WRITING = [
    ("summary", "out.csv"),
    ("gemms", "out.parquet"),
    ("collectives", "out.md"),
    ("shapes", "out.yaml"),
    ("report", "out.xlsx"),
    ("report", "out"),
]
"""Each command, and each way to write; without a suffix a folder of csv files."""

_MAIN = "from gemmetry.cli.main import main; main()"


@pytest.fixture
def run(forked):
    """Runs ``gemmetry`` as a separate process, after the Python lines `before`; no file that it
    writes may be larger than `limit` bytes."""

    def go(*words, before="", limit=None, env=None):
        if limit is not None:
            before += f"import resource as r\nr.setrlimit(r.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        return forked(before + _MAIN, *map(str, words), env=env)

    return go


def files_below(folder):
    return sorted(path for path in Path(folder).rglob("*") if path.is_file())


@pytest.mark.parametrize(("number", "what"), [*enumerate(WRITING)])
def test_a_folder_that_cannot_be_written_to_is_reported_before_reading(cli, number, what):
    (command, output), (place, cause) = what, PLACES[number % len(PLACES)]
    Path("a-file").write_text("mine")
    ended = cli("trace", command, "missing.json", "-o", f"{place}/{output}", status=3)
    (error, _) = ended.stderr.splitlines()
    assert f"{place}/out" in error and re.search(cause, error)
    assert Path("a-file").read_text() == "mine"


@pytest.mark.parametrize(("command", "output"), WRITING)
def test_a_full_disk_while_the_file_is_written(run, tmp_path, command, output):
    """A file that does not fit on the disk is not there at all, and the old file is as it was."""
    target = tmp_path / output
    first = run("trace", command, GOOD, "-o", target, "--no-cache")
    assert first.returncode == 0, first.stderr
    before = {path: path.read_bytes() for path in files_below(tmp_path)}
    ended = run("trace", command, LARGE, "-o", target, "--no-cache", limit=0)
    assert ended.returncode == 3, ended.stderr
    assert str(target) in ended.stderr and os.strerror(errno.EFBIG) in ended.stderr
    assert {path: path.read_bytes() for path in files_below(tmp_path)} == before


# Processes that are killed.

_KILLED = "import os, signal\ndef kill(*_): os.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.mark.parametrize(
    ("moment", "output"),
    [("os.fsync", "out.xlsx"), ("pathlib.Path.replace", "out.html"),
     ("pathlib.Path.replace", "out")],
)  # fmt: skip
def test_a_report_that_is_killed_leaves_the_old_one_or_none(run, tmp_path, moment, output):
    patch = f"{_KILLED}import pathlib\n{moment} = kill\n"
    target = tmp_path / output
    ended = run("trace", "report", GOOD, "-o", target, "--no-cache", before=patch)
    assert ended.returncode == -signal.SIGKILL
    assert not target.is_file()
    assert not list(target.glob("*.csv"))
    assert run("trace", "report", GOOD, "-o", target, "--no-cache").returncode == 0
    whole = {path: path.read_bytes() for path in files_below(tmp_path) if path.suffix != ".tmp"}
    ended = run("trace", "report", LARGE, "-o", target, "--no-cache", before=patch)
    assert ended.returncode == -signal.SIGKILL
    assert {path: path.read_bytes() for path in whole} == whole


def test_a_cache_whose_writing_is_killed_is_never_read(run, tmp_path):
    trace = tmp_path / "traces" / "trace.json.gz"
    trace.parent.mkdir()
    shutil.copy(LARGE, trace)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "user")}
    small = "import gemmetry.traces.reading as r; r.SMALLEST_CACHED_BYTES = 0\n"
    patch = f"{_KILLED}import pathlib\n{small}pathlib.Path.replace = kill\n"

    def summary(*words, before=small):
        return run("trace", "summary", trace, "--json", *words, before=before, env=environment)

    assert summary(before=patch).returncode == -signal.SIGKILL
    (left,) = (path for path in trace.parent.iterdir() if path != trace)
    assert left.name.startswith(".") and left.name.endswith(CACHE_SUFFIX)
    anew = summary("--no-cache")
    assert anew.returncode == 0
    assert [summary().stdout for _ in range(2)] == [anew.stdout] * 2
    assert run("cache", "clear", env=environment).stdout.startswith("removed 2 caches")
    assert list(trace.parent.iterdir()) == [trace]
