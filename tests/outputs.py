"""Store what every command prints and writes on the fixtures, and compare two such stores.

    python tests/outputs.py store before [--data FOLDER] [--only 'trace*']
    python tests/outputs.py store again                   # the same version: what varies by itself
    python tests/outputs.py store after                   # another version, by PYTHONPATH
    python tests/outputs.py compare before after --again again

A case is one or more command lines in an empty folder. Its exit statuses, stdout, stderr and files
are stored as lines: JSON by key, workbooks by cell, pages as text. What differs between ``before``
and ``again`` varies by itself, and is left out of the comparison. ``--data`` adds cases on larger
recordings: a folder with ``traces/``, ``sweep_h200x4/``, ``counters/`` and ``reports/``.
``cli/test_outputs.py`` keeps what the cases marked ``golden`` print.

Exit status of ``compare``: 1 if there are differences.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import gzip
import html.parser
import io
import itertools
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "data"
LIMIT_S = 300

CASES = Path(__file__).with_suffix(".txt")


def _cases(data: Path | None) -> Iterator[tuple[str, str]]:
    cases = _read_cases()
    each = cases.pop("each trace")
    yield from cases.items()
    for path in sorted((FIXTURES / "traces").glob("*.*")):
        if path.suffix != ".md":
            yield f"trace/{path.name}", each.replace("{file}", str(path))
    if data is None:
        return
    for kind, suffixes in (
        ("traces", ".gz .json .csv .db"), ("reports", ".gz .json .csv"),
    ):  # fmt: skip
        for path in sorted((data / kind).rglob("*.*")):
            if path.suffix in suffixes.split() and path.is_file():
                name = str(path.relative_to(data)).replace("/", "_")
                yield f"data_{kind}/{name}", each.replace("{file}", str(path))
    for path in sorted((data / "counters").rglob("*.*")):
        if path.suffix in {".csv", ".log", ".ncu-rep"}:
            lines = [f"diagnose {path}", f"diagnose {path} --json", f"import {path} --json"]
            yield f"data_counters/{path.name}", "\n".join(f"counters {line}" for line in lines)
    sweep = data / "sweep_h200x4"
    yield (
        "data_sweep",
        (
            f"!copy sweep {sweep}\nsweep analyze sweep\nsweep analyze sweep --json\n"
            f"!copy a/256thread {sweep}/256thread\n!copy b/256thread {sweep}/512thread\n"
            "sweep compare a b -o c.html -o c.json -o c.csv -o c.xlsx -o c.md\n"
        ),
    )


def golden_cases() -> dict[str, set[str]]:
    """Case that the suite runs -> what its heading says after the name."""
    heads = re.findall(r"^\[(\w+): (.*)\]$", CASES.read_text("utf-8"), re.M)
    return {name: set(words.split()) for name, words in heads}


def _read_cases() -> dict[str, str]:
    words = {"traces": FIXTURES / "traces", "counters": FIXTURES / "counters", "data": FIXTURES}
    found: dict[str, list[str]] = {}
    for line in CASES.read_text("utf-8").splitlines():
        line = re.sub(r"{(\w+)}", lambda match: str(words.get(match[1], match[0])), line)
        if line.startswith("["):
            name = line.strip("[]").partition(":")[0]
            found[name] = []
        elif found and line:
            found[name].append(line)
        elif " = " in line and not line.startswith("#"):
            key, _, text = line.partition(" = ")
            words[key] = text
    return {name: "\n".join(lines) for name, lines in found.items()}


def _helps() -> Iterator[tuple[str, str]]:
    """Help texts of all commands, found in the program itself."""
    from gemmetry.cli.main import every_command

    yield "help/gemmetry", "--help"
    for name, _ in every_command():
        yield f"help/{name.replace(' ', '_')}", f"{name} --help"


def store(folder: Path, data: Path | None, only: str) -> None:
    """Run the cases, each command in a process forked from this one, and store what came out."""
    import warnings

    import gemmetry.cli.main  # noqa: F401 - imported before the forks

    warnings.filterwarnings("ignore", module="openpyxl")

    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "GEMMETRY_SEED": "1"}
    for name, lines in [*_cases(data), *_helps()]:
        if not fnmatch.fnmatch(name, only):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch, "run")
            place.mkdir()
            found: dict[str, list[str]] = {}
            for number, line in enumerate(lines.strip().splitlines(), 1):
                if prepare(line, place):
                    continue
                status, out, err = _run(arguments(line), place, Path(scratch))
                head = f"{number} gemmetry {line}"
                found[f"{head} status"] = [str(status)]
                found[f"{head} stdout"] = _text(out)
                found[f"{head} stderr"] = _text(err)
            for path in sorted(place.rglob("*")):
                if path.is_file():
                    found[f"file {path.relative_to(place)}"] = list(content(path))
            text = json.dumps(found, indent=1, ensure_ascii=False)
            text = text.replace(str(place), "{here}").replace(str(ROOT), "{root}")
        target = folder / f"{name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
        print(name, flush=True)


def arguments(line: str) -> list[str]:
    """The words of a command line, patterns of paths expanded."""
    words = shlex.split(line)
    return [
        name
        for word in words
        for name in ("*" in word and "/" in word and sorted(map(str, _matching(word)))) or [word]
    ]


def _matching(pattern: str) -> Iterator[Path]:
    root = Path(pattern[0]) if pattern.startswith("/") else Path()
    return root.glob(pattern.lstrip("/"))


def prepare(line: str, place: Path) -> bool:
    """Make what a line requests that begins with ``!``, below `place`; whether it is one."""
    if not line.startswith("!"):
        return False
    action, target, given = (*line.split(" ", 2), "")[:3]
    path = place / target
    path.parent.mkdir(parents=True, exist_ok=True)
    match action:
        case "!write":
            path.write_bytes(given.encode("latin-1").decode("unicode_escape").encode("latin-1"))
        case "!copy" if Path(given).is_dir():
            shutil.copytree(given, path)
        case "!copy":
            shutil.copy(given, path)
        case "!unpack":
            source, _, count = given.partition(" ")
            path.write_bytes(gzip.decompress(Path(source).read_bytes())[: int(count or 1 << 40)])
        case "!folder":
            path.mkdir()
        case "!sweep":
            from tests import synthetic_sweeps

            names, values = zip(*json.loads(given).items(), strict=True)
            synthetic_sweeps.write_sweep(path, [
                synthetic_sweeps.MadePoint(**_slowed(dict(zip(names, one, strict=True))))
                for one in itertools.product(*(v if isinstance(v, list) else [v] for v in values))
            ])  # fmt: skip
        case "!history":
            from tests import histories

            values = json.loads(given)
            slow, lost = values.pop("slow", ()), values.pop("lost", ())
            made = histories.SyntheticHistory(**values, lost={tuple(one) for one in lost})
            for factor, first, provider, shape in slow:
                made.slow(factor, first, provider=provider, shape=shape)
            from gemmetry.history.folder import append

            append(path, made.entries())
        case _:
            raise ValueError(line)
    return True


def _slowed(values: dict[str, Any]) -> dict[str, Any]:
    from tests.synthetic_sweeps import UP

    factor = values.pop("slow", None)
    return values if factor is None else {**values, "slowdown": {UP.kernel: factor}}


def _run(arguments: list[str], place: Path, scratch: Path) -> tuple[int, str, str]:
    out, err = scratch / "out", scratch / "err"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.chdir(place)
            for path, number in ((out, 1), (err, 2)):
                target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(target, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            import signal

            signal.alarm(LIMIT_S)
            from gemmetry.cli.main import main

            sys.argv = ["gemmetry", *arguments]
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(ended)
    return code, out.read_text("utf-8", "replace"), err.read_text("utf-8", "replace")


def _text(text: str) -> list[str]:
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        try:
            return list(_flat(json.loads(stripped)))
        except ValueError:
            pass
    return [line.rstrip() for line in text.splitlines()]


def _flat(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}")
        if not value:
            yield f"{path} = {{}}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _flat(item, f"{path}[{number}]")
        if not value:
            yield f"{path} = []"
    else:
        yield f"{path} = {json.dumps(value, ensure_ascii=False)}"


_ASSIGNED = re.compile(r"^\s*(?:const|var|let)?\s*\w*\s*=?\s*([\[{].*[\]}]);?\s*$", re.M)
"""JSON on one line of a script."""
_TEXTS = {".md", ".txt", ".xml", ".yaml", ".yml", ".log", ".mlir", ".conf", ".sh", ".py"}


class _PageText(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            return
        if self._inside == "script":
            for found in _ASSIGNED.finditer(data):
                try:
                    self.lines += _flat(json.loads(found[1]))
                except ValueError:
                    continue
            return
        self.lines += [line.strip() for line in data.splitlines() if line.strip()]


def content(path: Path) -> Iterator[str]:
    """The comparable lines of a file: of binary formats without a reader only that they exist."""
    match path.suffix:
        case ".json":
            yield from _text(path.read_text("utf-8", "replace"))
        case ".jsonl":
            for line in path.read_text("utf-8", "replace").splitlines():
                yield from _text(line)
        case ".csv":
            for row in csv.reader(io.StringIO(path.read_text("utf-8", "replace"))):
                yield "|".join(row)
        case ".html":
            page = _PageText()
            page.feed(path.read_text("utf-8", "replace"))
            yield from page.lines
        case ".xlsx":
            import openpyxl

            for sheet in openpyxl.load_workbook(path).worksheets:
                for row in sheet.iter_rows():
                    for cell in row:
                        if cell.value is not None:
                            yield f"{sheet.title}!{cell.coordinate} = {cell.value!r}"
        case ".parquet":
            import polars

            frame = polars.read_parquet(path)
            yield str(frame.schema)
            yield from (repr(row) for row in frame.iter_rows())
        case (
            ".md" | ".txt" | ".xml" | ".yaml" | ".yml" | ".log" | ".mlir" | ".conf" | ".sh" | ".py"
        ):
            yield from path.read_text("utf-8", "replace").splitlines()
        case _:
            yield "exists" if path.stat().st_size else "is empty"


_VARIES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?([+-]\d\d:\d\d|Z)?|\b[0-9a-f]{8,64}\b|/tmp/\S*"
)


def compare(before: Path, after: Path, again: Path | None) -> int:
    """Print what differs, case by case and line by line; the number of differing parts."""
    import difflib

    differing = 0
    names = {path.relative_to(root) for root in (before, after) for path in root.rglob("*.json")}
    for name in sorted(names):
        if not (before / name).exists() or not (after / name).exists():
            print(f"=== {name}: only {'after' if (after / name).exists() else 'before'}")
            differing += 1
            continue
        old, new = (json.loads((root / name).read_text("utf-8")) for root in (before, after))
        repeat = {}
        if again is not None and (again / name).exists():
            repeat = json.loads((again / name).read_text("utf-8"))
        for part in dict.fromkeys([*old, *new]):
            varying = (
                {*old.get(part, ()), *repeat.get(part, ())}
                - ({*old.get(part, ())} & {*repeat.get(part, ())})
                if repeat
                else set()
            )
            keys = {line.split(" = ")[0] for line in varying}
            left, right = (
                [
                    _VARIES.sub("*", line)
                    for line in found.get(part, ())
                    if line not in varying and line.split(" = ")[0] not in keys
                ]
                for found in (old, new)
            )
            if part not in old or part not in new:
                print(f"=== {name}: {part}: only {'after' if part in new else 'before'}")
                differing += 1
            elif left != right:
                lines = [
                    line
                    for line in difflib.unified_diff(left, right, n=0, lineterm="")
                    if not line.startswith(("---", "+++", "@@"))
                ]
                if varying and not any(line[1:].strip() for line in lines):
                    continue
                print(f"=== {name}: {part}")
                print("\n".join(line[:200] for line in lines[:40]))
                differing += 1
    print(f"{differing} parts differ" if differing else "no difference")
    return differing


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    storing = actions.add_parser("store")
    storing.add_argument("folder", type=Path)
    storing.add_argument("--data", type=Path)
    storing.add_argument("--only", default="*")
    comparing = actions.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--again", type=Path)
    given = parser.parse_args()
    if given.action == "store":
        if given.folder.exists():
            shutil.rmtree(given.folder)
        store(given.folder.resolve(), given.data.resolve() if given.data else None, given.only)
    else:
        sys.exit(1 if compare(given.before, given.after, given.again) else 0)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # In place of this folder: its modules belong to ``tests``.
    main()
