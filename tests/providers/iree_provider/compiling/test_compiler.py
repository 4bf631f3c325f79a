"""Batches, culprits, crashes and hangs, with stand-ins for ``iree-compile``."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from gemmetry.providers.iree_provider.compiler import (
    CompileJob,
    IreeCompiler,
    attribute_errors,
    find_program,
    with_twins,
)

FUNCTIONS = {name: f"func.func @{name}(\n) {{\n}}\n" for name in ("f", "f_2", "g", "h")}

STAND_IN = """\
#!{python}
import re, sys, time, os, signal
text = sys.stdin.read()
names = re.findall(r"@(\\w+)\\(", text)
with open({log!r}, "a") as log:
    log.write(" ".join(names) + "\\n")
output = sys.argv[sys.argv.index("-o") + 1]
{body}
open(output, "w").write(" ".join(names))
"""


@pytest.fixture
def stand_in(tmp_path: Path):
    """Make an ``iree-compile`` of a few lines; calls are logged, one line of names each."""

    def make(body: str = "", timeout_s: float | None = None) -> tuple[IreeCompiler, Path]:
        program, log = tmp_path / "iree-compile", tmp_path / "log"
        log.write_text("")
        code = STAND_IN.format(python=sys.executable, log=str(log), body=textwrap.dedent(body))
        program.write_text(code)
        program.chmod(0o755)
        return IreeCompiler(program, timeout_s), log

    return make


def compile_all(compiler: IreeCompiler, parallel: int = 1):
    ((_, results),) = compiler.run([CompileJob(FUNCTIONS, ("--flag",))], parallel)
    good = {name for result in results for name in result.names}
    errors = {name: str(e) for result in results for name, e in result.errors.items()}
    return good, errors


def test_all_functions_go_into_one_call(stand_in):
    compiler, log = stand_in()
    good, errors = compile_all(compiler)
    assert good == set(FUNCTIONS)
    assert not errors
    assert log.read_text() == "f f_2 g h\n"


def test_named_culprits_cost_one_more_call_and_no_other_function(stand_in):
    compiler, log = stand_in(
        """
        bad = [n for n in names if n in ("f_2", "h")]
        for n in bad:
            line = text[: text.index(f"@{n}(")].count("\\n") + 2
            print(f"<stdin>:{line}:8: error: too large, {n}", file=sys.stderr)
        if bad:
            sys.exit(1)
        """
    )
    good, errors = compile_all(compiler)
    assert good == {"f", "g"}
    assert set(errors) == {"f_2", "h"}
    assert "too large, h" in errors["h"]
    assert log.read_text() == "f f_2 g h\nf g\n"


def test_every_function_has_the_call_that_settled_it(stand_in):
    compiler, _ = stand_in(
        """
        print("to standard output", flush=True)
        if "h" in names:
            line = text[: text.index("@h(")].count("\\n") + 2
            print(f"<stdin>:{line}:8: error: too large", file=sys.stderr)
            sys.exit(1)
        """
    )
    ((_, (result,)),) = compiler.run([CompileJob(FUNCTIONS, ("--flag", "--with=a b"))])
    assert set(result.logs) == set(FUNCTIONS)
    rejected, good = result.logs["h"], result.logs["f"]
    assert rejected.startswith(
        "// $ iree-compile - -o out.vmfb --flag '--with=a b' --iree-hal-dump"
    )
    assert rejected.endswith(
        "//   @h\n// exit status 1\nto standard output\n<stdin>:14:8: error: too large\n"
    )
    assert good == result.logs["g"]
    assert "@h" not in good
    assert good.endswith("// exit status 0\nto standard output\n")


def test_a_call_that_hangs_is_in_the_log_too(stand_in):
    compiler, _ = stand_in('print("so far", flush=True); time.sleep(60)', timeout_s=4.0)
    ((_, results),) = compiler.run([CompileJob({"f": FUNCTIONS["f"]}, ())])
    assert results[0].logs["f"].endswith("// did not end in time or did not start\nso far\n")


def test_equal_functions_share_what_was_found_for_one_of_them():
    functions = {"f": "func @f() { a }", "f_2": "func @f_2() { a }", "g": "func @g() { b }"}
    assert with_twins({"f_2": "code"}, functions) == {"f": "code", "f_2": "code"}
    assert with_twins({"f": 1, "f_2": 2}, functions) == {"f": 1, "f_2": 2}


def test_a_failure_that_names_nobody_is_halved_down_to_its_cause(stand_in):
    compiler, log = stand_in(
        """
        if "g" in names:
            print("<unknown>:0: error: LLVM refused it", file=sys.stderr)
            sys.exit(1)
        """
    )
    good, errors = compile_all(compiler)
    assert good == {"f", "f_2", "h"}
    assert "LLVM refused it" in errors["g"]
    assert log.read_text().splitlines() == ["f f_2 g h", "f f_2", "g h", "g", "h"]


def test_a_crash_costs_only_the_function_that_causes_it(stand_in):
    compiler, _ = stand_in(
        """
        if "f" in names:
            print("LLVM ERROR: unreachable", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGABRT)
        """
    )
    good, errors = compile_all(compiler)
    assert good == {"f_2", "g", "h"}
    assert "crashed (signal 6): unreachable" in errors["f"]


def test_a_compiler_that_hangs_is_ended(stand_in):
    """It waits for the deadline three times: with four functions, then two, then one. A shorter
    one could end the calls that do not hang on a loaded machine."""
    compiler, _ = stand_in('if "h" in names: time.sleep(60)', timeout_s=3.0)
    good, errors = compile_all(compiler)
    assert good == {"f", "f_2", "g"}
    assert "did not end within 3 s" in errors["h"]


def test_a_missing_program_is_everyones_error(tmp_path):
    good, errors = compile_all(IreeCompiler(tmp_path / "none"))
    assert not good
    assert set(errors) == set(FUNCTIONS)
    assert "cannot start" in errors["f"]


def test_jobs_run_side_by_side_and_keep_their_results(stand_in):
    compiler, _ = stand_in()
    jobs = [CompileJob({name: text}, ()) for name, text in FUNCTIONS.items()]
    found = dict(zip_results(compiler, jobs))
    assert {next(iter(job.functions)) for job in jobs} == set(found)
    assert all(results[0].names == (name,) for name, results in found.items())
    assert all(results[0].binary == name.encode() for name, results in found.items())
    assert all(results[0].duration_ns > 0 for results in found.values())


def zip_results(compiler: IreeCompiler, jobs: list[CompileJob]):
    for job, results in compiler.run(jobs, parallel=2):
        yield next(iter(job.functions)), results


def test_errors_inside_dumped_files_name_their_function():
    messages = (
        "/tmp/x/configured_module_f_2_dispatch_0.mlir:19:8: error: op was not bufferized\n"
        "/tmp/x/configured_module_g$async_dispatch_1.mlir:8:6: error: failed to distribute\n"
    )
    assert attribute_errors(messages, FUNCTIONS) == {
        "f_2": "op was not bufferized",
        "g": "failed to distribute",
    }


def test_the_first_line_about_a_function_is_kept_and_shortened():
    messages = (
        "<stdin>:2:8: error: One or more operations with large vector sizes (32768 bytes) "
        "were found:\n"
        "<stdin>:2:8: error: failed to run translation\n"
        f"<stdin>:13:1: error: {'x' * 1000}\n"
    )
    found = attribute_errors(messages, FUNCTIONS)
    assert found["f"] == "One or more operations with large vector sizes (32768 bytes)"
    assert len(found["h"]) == 300


def test_the_users_folder_goes_before_the_package(tmp_path):
    mine = tmp_path / "iree-compile"
    mine.write_text("")
    packaged = tmp_path / "packaged"
    packaged.write_text("")
    assert find_program("iree-compile", str(tmp_path), packaged) == mine
    assert find_program("iree-compile", str(tmp_path / "none"), packaged) is None
    assert find_program("iree-compile", None, packaged) == packaged
    assert find_program("no-such-program-here", None, None) is None
