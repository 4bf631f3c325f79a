"""One contract for ``--json``: every command that shows or makes something has it, and prints one
document with the version of its schema on stdout, and nothing else there."""

from __future__ import annotations

import json
from pathlib import Path

from typer.core import TyperGroup

from gemmetry.cli.main import every_command

DATA = Path(__file__).parents[1] / "data"
TRACE = str(DATA / "traces" / "h200_matmul.pt.trace.json.gz")
COUNTERS = str(DATA / "counters" / "h200_cublas_bf16_4096_details.csv.gz")
TABLE = "(M, N, K);aten-latency\n(64, 64, 64);0.5\n"
TINY = ("--providers", "null", "--shapes", "64x64x64", "--dtypes", "f32")

WITHOUT = {
    "schema": "its output is a JSON document anyway",
    "judge serve": "it answers requests until it is interrupted",
    "judge mcp": "a client talks to it by its standard input and output",
}
ELSEWHERE = ("kernels check", "kernels ladder", "dispatcher evaluate")
"""Commands that need more than a short run; the tests in their folders read their documents."""

LINES = {
    "profile": [*TINY, "--experiment", "a"],
    "generate": [*TINY, "--device", "null", "--generated-dir", "sources"],
    "compile": [*TINY, "--experiment", "compiled"],
    "verify run": [*TINY, "--experiment", "verified", "--verification-level", "quick"],
    "verify self-test": ["--mutants", "m01*", "--vehicle", "host", "--level", "quick",
                         "--experiment", "mutants"],
    "tune": [*TINY, "--dry-run"],
    "trace record": ["--matrix-sizes", "64", "--precisions", "fp32", "--device", "cpu",
                     "--dry-run"],
    "trace summary": [TRACE],
    "trace gemms": [TRACE],
    "trace shapes": [TRACE],
    "trace collectives": [str(DATA / "traces" / "h200_fsdp_rank0of4_part.pt.trace.json.gz")],
    "trace report": [TRACE, "-o", "report.json"],
    "sweep run": ["--channels", "1,2", "--config", "tiny", "--nproc", "2", "--dry-run"],
    "sweep analyze": ["sweep", "--only", "variance"],
    "sweep compare": ["sweep", "other"],
    "sweep tuner-config": ["sweep", "-o", "nccl_tuner.conf"],
    "sweep rocprof-input": ["--from", "top.csv", "-o", "input.yaml"],
    "counters collect": ["--dry-run", "--", "true"],
    "counters import": [COUNTERS],
    "counters diagnose": [COUNTERS],
    "counters compare": [COUNTERS, COUNTERS],
    "counters metrics": ["--chip", "gh100"],
    "dispatcher build": ["a", "-o", "table.json"],
    "dispatcher tune": ["--device", "cpu", "--providers", "torch", "--shapes", "64x64x64",
                        "--minutes", "0", "--experiment", "tuned"],
    "list operations": ["--shapes", "64x64x64"],
    "list configurations": [*TINY],
    "report": ["a"],
    "show": ["a", "null:*"],
    "judge run": ["mine.py:f", "--task", "matmul_8x8x8_f32t_f32t_f32t", "--no-time",
                  "--level", "quick"],
    "merge": ["a", "verified", "--into", "both"],
    "import": ["table.csv", "--into", "theirs", "--operation", "f32t_f32t_f32t"],
    "history add": ["a", "--store", "history"],
    "history show": ["--store", "history"],
    "history check": ["--store", "history"],
    "history annotate": ["*", "--store", "history", "--run", "RUN", "--text", "a remark"],
    "history site": ["--store", "history", "-o", "site"],
    "compare": ["a", "a"],
    **dict.fromkeys(("dispatcher show", "kernels list", "list providers", "list support",
                     "list dtypes", "list columns", "cache clear", "doctor", "help"), ()),
}  # fmt: skip
"""Command -> arguments of a short run, in an order in which they can follow each other."""


def test_every_command_has_it():
    known = {
        name: {option for one in command.params for option in getattr(one, "opts", ())}
        for name, command in every_command()
        if not isinstance(command, TyperGroup)
    }
    assert {name for name, options in known.items() if "--json" not in options} == set(WITHOUT)
    assert set(LINES) == set(known) - {*WITHOUT, *ELSEWHERE}


def test_one_document_with_a_version_and_nothing_else(cli, tmp_path, sweeps, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("sweep", "other"):
        sweeps.write_sweep(tmp_path / name, [sweeps.MadePoint(layers=2)])
    Path("top.csv").write_text("kernel_name\nCijk_Ailk_Bljk_BBS_BH_MT256x256x64\n")
    Path("table.csv").write_text(TABLE)
    Path("mine.py").write_text("def f(a, b):\n    return a @ b\n")
    wrong = {}
    run = ""
    for name, arguments in LINES.items():
        words = [run if one == "RUN" else one for one in arguments]
        ended = cli(*name.split(), "--json", *words)
        try:
            document = json.loads(ended.stdout)
        except ValueError:
            document = {}
        if not isinstance(document.get("schema_version"), int) or ended.status not in (0, 1):
            wrong[name] = f"status {ended.status}: {ended.stdout[:200]!r} {ended.stderr}"
        if name == "history add":
            run = document["runs"][0]["run"]
    assert not wrong, "\n".join(f"{one}: {why}" for one, why in wrong.items())
