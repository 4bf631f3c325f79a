"""A script replaces compute-sanitizer: it runs the program and reports what the test specifies."""

from __future__ import annotations

import sys
import textwrap
from unittest.mock import Mock

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.record import Verdict
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import sanitizing
from gemmetry.engine.bench import Bench
from gemmetry.engine.protocol import Entered, Hello, Open, WireDispatch
from gemmetry.engine.sanitizing import sanitize
from gemmetry.providers.null_provider.provider import NullProvider
from gemmetry.verification.checks import CheckOutcome, failed, passed, warned
from gemmetry.verification.protocol import with_check

SMALL = parse_operation("matmul_8x8x8_f32t_f32t_f32t")
LARGE = parse_operation("matmul_1024x1024x1024_f32t_f32t_f32t")
NULL = Target(TargetKind.NULL)

TOOL = """\
    #!{python}
    import subprocess, sys, time
    arguments = sys.argv[1:]
    program = arguments[arguments.index("{python}"):]
    print("========= COMPUTE-SANITIZER")
    sys.stdout.flush()
    ended = subprocess.run(program, stdin=sys.stdin)
    {after}
    print("========= ERROR SUMMARY: 0 errors")
    sys.exit(ended.returncode)
"""

FINDS = """\
print("========= Invalid __global__ read of size 4 bytes")
print("=========     at gemm(float *)+0x10 in gemm.cu:7")
print("=========")
print("========= ERROR SUMMARY: 3 errors")
sys.exit(int(arguments[arguments.index("--error-exitcode") + 1]))"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Puts a tool on PATH that does `after` when the program is done, and lets the null device
    pass for CUDA."""

    def make(after="pass"):
        path = tmp_path / "bin" / "compute-sanitizer"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(TOOL).format(python=sys.executable, after=after))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(path.parent))
        monkeypatch.setattr(sanitizing, "SANITIZED", TargetKind.NULL)

    return make


def hello_of(tmp_path, verify_s=60.0, **settings):
    deadlines = {**RunSettings().deadlines_s, Stage.VERIFY: verify_s}
    values = RunSettings(deadlines_s=deadlines, verification_level="quick", **settings)
    return Hello("null", {}, NULL, values, str(tmp_path), str(tmp_path), 1)


def dispatch_of(configuration="default", operation=SMALL):
    return Dispatch(operation, Configuration(configuration), "null", NULL)


@pytest.mark.parametrize(("configuration", "after", "outcome", "detail"), [
    ("default", "pass", CheckOutcome.PASSED, ""),
    ("default", FINDS, CheckOutcome.FAILED,
     "3 found, first: Invalid __global__ read of size 4 bytes at gemm"),
    ("launch_error", "pass", CheckOutcome.NOT_APPLICABLE, "launch 1 was rejected"),
    ("compile_error", "pass", CheckOutcome.NOT_APPLICABLE, "the compiler reject it"),
])  # fmt: skip
def test_what_the_tool_finds_is_the_check(tool, tmp_path, configuration, after, outcome, detail):
    tool(after)
    found = sanitize(dispatch_of(configuration), hello_of(tmp_path), "memcheck")
    assert (found.name, found.outcome) == ("memcheck", outcome), found.detail
    assert detail in found.detail


def test_a_launch_that_hangs_is_ended_with_its_tool(tool, tmp_path):
    tool()
    found = sanitize(dispatch_of("hang"), hello_of(tmp_path, 2.0), "synccheck")
    assert found.outcome is CheckOutcome.NOT_APPLICABLE
    assert "1.8 s" in found.detail


def test_only_cuda_and_only_where_the_tool_is(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/none")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    for kind, words in (
        (TargetKind.CUDA, "is for CUDA devices"),
        (TargetKind.NULL, "neither on PATH nor in CUDA_HOME/bin"),
    ):
        monkeypatch.setattr(sanitizing, "SANITIZED", kind)
        assert words in sanitize(dispatch_of(), hello_of(tmp_path), "memcheck").detail


def test_a_product_is_run_on_a_tail_of_its_tile():
    tile = {"tile_m": 64, "tile_n": 32, "tile_k": 16}
    dispatch = Dispatch(LARGE, Configuration("x", tile), "null", NULL)
    shapes = [operation.shape for operation in sanitizing._operations(dispatch)]
    assert shapes[0][:3] == (65, 31, 17)
    assert shapes[-1] == LARGE.shape
    assert [o.shape for o in sanitizing._operations(dispatch_of())][-1] == SMALL.shape


def test_findings_join_the_verdict():
    verdict = Verdict(status=Verification.PASSED)
    assert with_check(verdict, passed(name="memcheck")).status is Verification.PASSED
    found = with_check(verdict, warned("1 found", "racecheck"))
    assert (found.status, found.reason) == (Verification.WARNED, "racecheck: 1 found")
    found = with_check(verdict, failed("1 found", name="memcheck"))
    assert found.status is Verification.FAILED
    assert found.checks["memcheck"] == "failed: 1 found"


def test_the_worker_runs_each_tool_and_a_finding_fails_the_dispatch(tool, tmp_path):
    tool(FINDS)
    channel = Mock()
    hello = hello_of(tmp_path, sanitizers=("memcheck", "racecheck"), measure=False)
    serving = Bench(channel, NullProvider({}), hello, Workspace(generated=tmp_path))
    serving.handle(Open((WireDispatch(7, str(SMALL), Configuration("default")),)))
    sent = [call.args[0] for call in channel.send.call_args_list]
    verdict = sent[-1].verdict
    assert verdict.status is Verification.FAILED
    assert verdict.reason.startswith("memcheck: 3 found, first: Invalid __global__ read")
    assert verdict.checks["racecheck"].startswith("failed: 3 found")
    # Each tool has the whole deadline of the stage.
    assert [m.stage for m in sent if isinstance(m, Entered)].count(Stage.VERIFY) == 3


def test_where_there_is_no_cuda_the_dispatch_is_ok_and_says_so(make_plan, run_plan):
    ran = run_plan(make_plan(sanitizers=("memcheck",), measure=False))
    assert ran["default"].outcome is Outcome.OK
    text = ran["default"].verdict.checks["memcheck"]
    assert text == "not applicable: compute-sanitizer is for CUDA devices"
