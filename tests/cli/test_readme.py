"""The README and the pages show only what the command line can do."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import io
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gemmetry.cli.main import COMMANDS, PARSER_ERROR, load_command, run
from gemmetry.providers.base import builtin_names

ROOT = Path(__file__).parents[2]
SKILLS = sorted((ROOT / "skills").glob("*/SKILL.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *SKILLS]
ONLY_READ = ("examples.md",)
"""Examples of help; the reference of the command line, whose lines run, has them too."""

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
_INDENTED = re.compile(r"(?:^(?: {4}|\t)[^\n]*\n)+", re.M)
_INLINE = re.compile(r"`([^`]+)`")
_SHELL = ("", "sh", "bash", "console", "shell")
_PLANNING = ("profile", "generate", "compile", "verify")
_NEEDS_FILES = {"DIR", "--spec", "--generated-dir", "self-test"}
_BETWEEN = ("|", "||", "&&", ";", "&")
_PLACEHOLDER = re.compile(r"^[\[<]|^…$|^\.\.\.$")
_OUTPUT_COMMAND = re.compile(r"^ *\$ (gemmetry .*)$", re.M)


@dataclass(frozen=True)
class Line:
    """A command line of a page."""

    page: str
    words: tuple[str, ...]
    in_prose: bool
    """Named within a sentence, where required arguments may be left out."""

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


@cache
def lines(page: Path) -> list[Line]:
    """Every command line of a page: in its blocks of shell commands, and between backticks."""
    text = page.read_text()
    blocks = [
        body if language in _SHELL else "\n".join(_OUTPUT_COMMAND.findall(body))
        for language, body in _FENCE.findall(text)
    ]
    prose = _FENCE.sub("", text)
    blocks += _INDENTED.findall(prose)
    found = [
        (words, False)
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
        for words in _commands(line.strip().removeprefix("$ "))
    ]
    inline = _INLINE.findall(_INDENTED.sub("", prose))
    found += [(words, True) for code in inline for words in _commands(" ".join(code.split()))]
    return [Line(page.name, tuple(words), in_prose) for words, in_prose in found]


def _commands(line: str) -> list[list[str]]:
    """The words of each command of a shell line, without variables that are set for it and
    without redirections; none if it is no shell line."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return []
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _BETWEEN:
            commands.append([])
        elif "=" not in word or commands[-1] or not word.split("=")[0].isupper():
            commands[-1].append(word)
    return [found for words in commands if (found := _without_redirections(words))]


def _without_redirections(words: list[str]) -> list[str]:
    for sign in (">", ">>", "<"):
        if sign in words:
            words = words[: words.index(sign)]
    return words


@cache
def gemmetry_lines(page: Path) -> list[Line]:
    """Those of this command, without the word ``gemmetry``; a synopsis is none."""
    return [
        Line(line.page, line.words[1:], line.in_prose)
        for line in lines(page)
        if line.words[0] == "gemmetry" and len(line.words) > 1 and "[OPTIONS]" not in line.words
    ]


def mistake(line: Line) -> str:
    """The parser's objection to a command line; "" if it has none."""
    name, *words = line.words
    if name.startswith("-") or name.isupper():
        return ""
    if name not in COMMANDS:
        return f"there is no command {name}"
    command: Any = load_command(name)
    if hasattr(command, "list_commands") and (words or not line.in_prose):
        below = command.get_command(None, words[0]) if words else None
        if below is None and not getattr(command, "usual", ""):
            return f"there is no such command of {name}"
        if below is None:
            command = command.get_command(None, command.usual)
        else:
            command, words = below, words[1:]
    words = [word for word in words if not _PLACEHOLDER.search(word)]
    if "--help" in words or hasattr(command, "list_commands"):
        return ""
    try:
        command.make_context(name, words)
    except PARSER_ERROR as error:
        is_left_out = type(error).__name__ == "MissingParameter" or "requires an" in error.message
        return "" if line.in_prose and is_left_out else str(error.format_message())
    return ""


def test_the_readme_is_short_and_whole():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_readme_names_every_extra_and_provider():
    text = (ROOT / "README.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [one for one in project["optional-dependencies"] if f"`{one}`" not in text] == []
    named = re.sub(r"[^a-z]", "", text.partition("```")[0].lower())
    others = {"null": "", "mutant": "", "user": "yourownkernel", "cuda": "cudac"}
    assert [one for one in builtin_names() if others.get(one, one) not in named] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_exists_and_every_command_line_parses(page):
    text = page.read_text()
    assert re.findall(r"(?<!!)\[\]\([^)]*\)", text) == [], "a link has words"
    named = re.findall(r"`((?:tests|examples|benchmarks|docs)/[\w./-]*)`(?! of [A-Z])", text)
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert "@@" not in text and "<!-- output" not in text, "output is left to be pasted"
    wrong = {str(line): text for line in gemmetry_lines(page) if (text := mistake(line))}
    assert wrong == {}


def test_command_lines_are_found_and_wrong_ones_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`gemmetry trace\nreport` and `gemmetry profile --kernel`, not `gemmetry nothing`.\n\n"
        "    gemmetry compare A B --treshold 3 > file\n\n"
        "```console\n$ X=1 gemmetry profile --nosuch \\\n    --shapes 8x8x8 | head\n```\n"
        "```text\n  output\n    $ gemmetry verify runs\n```\n"
        "```python\ngemmetry profile\n```\n"
    )
    found = gemmetry_lines(page)
    assert [(line.words[0], line.in_prose) for line in found] == [
        ("profile", False), ("verify", False), ("compare", False),
        ("trace", True), ("profile", True), ("nothing", True),
    ]  # fmt: skip
    assert found[0].words == ("profile", "--nosuch", "--shapes", "8x8x8")
    assert found[2].words[-1] == "3"
    assert [bool(mistake(line)) for line in found] == [True, True, True, False, False, True]
    assert sum(len(gemmetry_lines(page)) for page in PAGES) > 150


_TOML = tomllib.loads(Path(__file__).with_name("command_lines.toml").read_text())
RULES = _TOML["rule"]
FASTER = _TOML["faster"]
_DATA = ROOT / "tests/data"
KERNEL = "def function(a, b):\n    return a @ b\n"
TUNABLE = "GemmTunableOp_BFloat16_TN,tn_64_32_16,Gemm_Hipblaslt_1219,0.01\n"


def rule_of(text: str) -> dict[str, Any]:
    """What is different about a command line; {} if it runs as it is written."""
    return next((rule for rule in RULES if re.search(rule["match"], text)), {})


def run_lines() -> list[str]:
    """Every command line in a block of a page, and every one of the README."""
    return list(
        dict.fromkeys(
            shlex.join(line.words)
            for page in PAGES
            if page.name not in ONLY_READ
            for line in gemmetry_lines(page)
            if page.name == "README.md" or not line.in_prose
        )
    )


def as_run(line: str) -> str:
    """The command line with what its rule changes."""
    for pattern, replacement in rule_of(line).get("change", ()):
        line, changes = re.subn(pattern, replacement, line, count=1)
        assert changes, f"{pattern} is not in: {line}"
    words = [words for match, words in FASTER.items() if re.search(match, line)]
    return " ".join([line, *words])


def planned_lines() -> list[Line]:
    """Lines of commands that make a plan, in full, which do not run here. Commands that need files
    of ``generate`` or of a user are left to ``test_documents.py``."""
    found = {
        line.words: line
        for page in PAGES
        for line in gemmetry_lines(page)
        if line.words[0] in _PLANNING
        and (page.name == "README.md" or not line.in_prose)
        and (page.name != "command-line.md" or line.words[0] == "profile")
        and not any(word in _NEEDS_FILES or word.startswith("/") for word in line.words)
        and "not_run" in rule_of(shlex.join(line.words))
    }
    return list(found.values())


@pytest.mark.parametrize("line", planned_lines(), ids=str)
def test_command_lines_that_plan_and_do_not_run_here_are_understood(cli, line, tmp_path):
    for name in ("examples", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "tunableop_results0.csv").write_text(TUNABLE)
    (tmp_path / "my_gemm.py").write_text(KERNEL)
    ended = cli(*line.words, "--dry-run")
    assert ended.status == 0 or "there is no device" in ended.stderr, ended.stderr


def different_lines() -> list[str]:
    """Of the lines that become the same command, the first."""
    lines = [one for one in run_lines() if "not_run" not in rule_of(one)]
    return list({as_run(one): one for one in reversed(lines)}.values())[::-1]


@pytest.fixture(scope="module")
def world(tmp_path_factory, sweeps) -> Path:
    """A folder with what the pages' command lines read, by the names they use."""
    folder = tmp_path_factory.mktemp("world")
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        _make_experiments()
        _make_traces(sweeps)
        _make_counters()
        _make_files()
    return folder


def _made(*words: str) -> None:
    """Runs a command, whose large report no line reads."""
    before = sys.argv
    sys.argv = ["gemmetry", *words]
    try:
        assert run(list(words)) == 0, words
    finally:
        sys.argv = before
    for page in Path().rglob("report.html"):
        page.unlink()


_PROFILED = "gemmetry-out/profile-1234"


def _make_experiments() -> None:
    for name in ("examples", "src", "tests"):
        Path(name).symlink_to(ROOT / name)
    quick = ("--time-budget", "20ms", "--processes", "1", "--verification-level", "quick",
             "--dtypes", "f32", "--shapes", "64x48x32")  # fmt: skip
    _made("profile", "--providers", "torch,numpy", "--default-config", *quick,
          "--experiment", _PROFILED)  # fmt: skip
    for name in ("before", "after", "run", "mine", "tonight", "RUN", "EXPERIMENT", "tuning",
                 "proofs", "tuned", "tuned/search", "tuned/proofs",
                 "gemmetry-out/profile-5678"):  # fmt: skip
        shutil.copytree(_PROFILED, name, dirs_exist_ok=True)
    _made("profile", "--providers", "torch,numpy", *quick, "--shapes", "80x48x32",
          "--experiment", "held-out")  # fmt: skip
    for name, seed in (("monday", "1"), ("tuesday", "2")):
        _made("profile", "--providers", "null", *quick, "--seed", seed, "--experiment", name)
    _made("merge", "monday", "tuesday", "--into", "made/both")
    shutil.copytree("made/both", "both")
    for commit in ("1a2b3c4", "2b3c4d5"):
        _made("profile", "--providers", "null", *quick, "--experiment", f"made/{commit}")
        _made("history", "add", f"made/{commit}", "--store", "history", "--commit", commit)
    _made("dispatcher", "build", "tuning", "-o", "table.json")
    _made("generate", "--generated-dir", "b", "--device", "cpu", "--shapes", "48x32x16",
          "--dtypes", "f32", "--default-config")  # fmt: skip
    shutil.copytree("b", "here")
    _made("trace", "record", "--device", "cpu", "--matrix-sizes", "16", "--precisions", "fp32",
          "--layouts", "tt", "--repeat-count", "1", "--experiment", "my-grid")  # fmt: skip


def _make_traces(sweeps: Any) -> None:
    Path("job").mkdir()
    for rank in (0, 1):
        whole = _DATA / f"traces/h200_fsdp_rank{rank}of4_part.pt.trace.json.gz"
        for name in (f"rank{rank}.json.gz", f"rank{rank}.pt.trace.json.gz", f"job/{rank}.json.gz"):
            shutil.copy(whole, name)
    shutil.copy("rank0.json.gz", "trace.json.gz")
    shutil.copy(_DATA / "tracelens_workbooks/h200_fsdp_rank0of4_part.xlsx", "rank0.xlsx")
    for name in ("h200x4", "hta_2of128"):
        shutil.copytree(_DATA / "collectives" / name, name)
    points = [
        sweeps.MadePoint(threads=threads, channels=channels, layers=2, steps=3)
        for threads in (256, 512)
        for channels in (28, 42)
    ]
    made = sweeps.write_sweep(Path("sweep_20251124_222204"), points)
    for name in ("SWEEP", "sweep_h200x4", "ddp", "fsdp", "bucket64", "ddp_32mb", "ddp_4mb"):
        shutil.copytree(made, name)


def _make_counters() -> None:
    raw = gzip.decompress((_DATA / "counters/h200_cublas_bf16_4096_raw.csv.gz").read_bytes())
    for name in ("my", "a", "b", "old", "new", "raw", "eight", "before", "after", "c/counters",
                 "my-counters/counters"):  # fmt: skip
        path = Path(f"{name}.csv")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(raw)


def _make_files() -> None:
    Path("my_gemm.py").write_text(KERNEL)
    Path("study.yaml").write_text("shapes: 64x48x32\ndtypes: f32\nproviders: numpy\n")
    for name in ("sweep.yaml", "nightly.yaml", "shapes.yaml"):
        shutil.copy("study.yaml", name)
    Path("tunableop_results0.csv").write_text(TUNABLE)
    Path("gemm").touch(mode=0o755)
    Path("gemm.csv").write_text("(M, N, K);aten-latency\n(64, 48, 32);0.5\n")
    _made("import", "gemm.csv", "--like", "mine", "--into", "theirs",
          "--operation", "f32t_f32t_f32t")  # fmt: skip
    workload = Path("config/single_node/gemm_overlap_comm.yaml")
    workload.parent.mkdir(parents=True)
    shutil.copy(ROOT / "tests/sweeps/training/document.yaml", workload)
    shutil.copy(workload, ".")
    shutil.copy(_DATA / "rocprof/aorta_rocprof_cu_only.yaml", "rocprof_top5.yaml")
    profiler = Path("bin/rocprofv3")  # a plan is made only where there is the program
    profiler.parent.mkdir()
    profiler.touch(mode=0o755)
    kernels = "threads,kernel_name\n256,Cijk_Ailk_Bljk_BBS_BH_MT256x256x64_MI16x16x1\n"
    Path("top5_gemm_kernels_time_variance.csv").write_text(kernels)


def _named(world: Path, text: str) -> Iterator[Path]:
    """What a command line names or reads without naming it."""
    words = [part for word in shlex.split(text) for part in re.split("[=,:]", word)]
    firsts = {part for word in words for part in Path(word).parts[:1]} | {"gemmetry-out", "bin"}
    return (one for one in world.iterdir() if any(fnmatch(one.name, name) for name in firsts))


@pytest.mark.parametrize("line", different_lines())
def test_a_line_runs_as_written_or_as_its_rule_says(
    world, line, cli, quick_plots, tmp_path, monkeypatch
):
    """Files are named as a shell would: by their patterns."""
    rule, text = rule_of(line), as_run(line)
    for one in _named(world, text):
        if one.is_dir() and not one.is_symlink():
            shutil.copytree(one, one.name)
        else:
            shutil.copy(one, one.name, follow_symlinks=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    places = [str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    words = [
        name
        for word in shlex.split(text)
        for name in ("*" in word[1:] and sorted(map(str, Path().glob(word)))) or [word]
    ]
    ended = cli(*words)
    assert ended.status in rule.get("status", (0,)), f"{text}\n{ended.stderr}"


def test_every_rule_is_of_a_line_and_says_why():
    lines = run_lines()
    assert len(lines) > 200
    for rule in RULES:
        assert any(rule_of(line) is rule for line in lines), f"no line needs {rule['match']}"
        assert rule.get("not_run") or rule.get("why") or rule.get("status"), rule


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_modules_and_targets_exist_with_the_options_named(page):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for line in lines(page):
        program, *words = line.words
        if program == "make":
            wanted = [word for word in words if "=" not in word]
            assert set(wanted) <= set(targets), str(line)
        elif Path(program).name.startswith("python") and words and words[0].endswith(".py"):
            source = (ROOT / words[0]).read_text()
            own = words[1 : words.index("--") if "--" in words else None]
            options = [word.split("=")[0] for word in own if word.startswith("--")]
            if "BooleanOptionalAction" in source:
                options = [re.sub("^--no-", "--", name) for name in options]
            assert [name for name in options if f'"{name}"' not in source] == [], str(line)
        elif Path(program).name.startswith("python") and words[:1] == ["-m"]:
            assert importlib.util.find_spec(words[1]) is not None, str(line)
