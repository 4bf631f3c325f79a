"""Batches, culprits, crashes and hangs, with stand-ins for ``iree-compile``; what it dumps, in the
form that IREE 3.13 writes it, shortened."""

from __future__ import annotations

import io
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from gemmetry.providers.base import matrix_instruction
from gemmetry.providers.iree_provider.compiler import (
    CompileJob,
    IreeCompiler,
    amd_usage,
    assemble,
    attribute_errors,
    chosen_configuration,
    cpu_instruction,
    find_program,
    find_ptxas,
    function_of,
    read_machine_code,
    shared_memory,
    split_kernels,
    with_twins,
)

DUMPS = Path(__file__).parents[2] / "data" / "iree_dumps"
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


def compiled(compiler: IreeCompiler, functions=FUNCTIONS, flags=("--flag",)):
    ((_, results),) = compiler.run([CompileJob(functions, flags)])
    return results


def outcomes(compiler: IreeCompiler):
    results = compiled(compiler)
    good = {name for result in results for name in result.names}
    return good, {name: str(e) for result in results for name, e in result.errors.items()}


def test_named_culprits_cost_one_more_call_and_no_other_function(stand_in):
    compiler, log = stand_in(
        """
        print("to standard output", flush=True)
        bad = [n for n in names if n in ("f_2", "h")]
        for n in bad:
            line = text[: text.index(f"@{n}(")].count("\\n") + 2
            print(f"<stdin>:{line}:8: error: too large, {n}", file=sys.stderr)
        if bad:
            sys.exit(1)
        """
    )
    (result,) = compiled(compiler, flags=("--flag", "--with=a b"))
    assert set(result.names) == {"f", "g"}
    assert set(result.errors) == {"f_2", "h"}
    assert "too large, h" in str(result.errors["h"])
    assert log.read_text() == "f f_2 g h\nf g\n"
    assert set(result.logs) == set(FUNCTIONS)
    rejected, good = result.logs["h"], result.logs["f"]
    command = "iree-compile - -o out.vmfb --flag '--with=a b' --iree-hal-dump"
    assert rejected.startswith(f"// $ {command}")
    assert "//   @h\n// exit status 1\nto standard output\n" in rejected
    assert rejected.endswith("\n<stdin>:14:8: error: too large, h\n")
    assert good == result.logs["g"]
    assert "@h" not in good
    assert good.endswith("// exit status 0\nto standard output\n")


def test_equal_functions_share_what_was_found_for_one_of_them():
    functions = {"f": "func @f() { a }", "f_2": "func @f_2() { a }", "g": "func @g() { b }"}
    assert with_twins({"f_2": "code"}, functions) == {"f": "code", "f_2": "code"}
    assert with_twins({"f": 1, "f_2": 2}, functions) == {"f": 1, "f_2": 2}


def test_a_failure_that_names_nobody_is_halved_down_to_its_cause(stand_in):
    compiler, log = stand_in(
        """
        if "f" in names:
            print("LLVM ERROR: unreachable", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGABRT)
        if "g" in names:
            print("<unknown>:0: error: LLVM refused it", file=sys.stderr)
            sys.exit(1)
        """
    )
    good, errors = outcomes(compiler)
    assert good == {"f_2", "h"}
    assert "crashed (signal 6): unreachable" in errors["f"]
    assert "LLVM refused it" in errors["g"]
    assert log.read_text().splitlines() == ["f f_2 g h", "f f_2", "f", "f_2", "g h", "g", "h"]


def test_a_compiler_that_hangs_is_ended(stand_in):
    compiler, _ = stand_in('print("so far", flush=True); time.sleep(60)', timeout_s=3.0)
    (hung,) = compiled(compiler, {"h": FUNCTIONS["h"]})
    assert hung.names == ()
    assert "did not end within 3 s" in str(hung.errors["h"])
    assert hung.logs["h"].endswith("// did not end in time or did not start\nso far\n")


def test_a_missing_program_is_everyones_error(tmp_path):
    good, errors = outcomes(IreeCompiler(tmp_path / "none"))
    assert not good
    assert set(errors) == set(FUNCTIONS)
    assert "cannot start" in errors["f"]


def test_jobs_run_side_by_side_and_keep_their_results(stand_in):
    compiler, _ = stand_in()
    jobs = [CompileJob({name: text}, ()) for name, text in FUNCTIONS.items()]
    found = {next(iter(job.functions)): results for job, results in compiler.run(jobs, parallel=2)}
    assert set(found) == set(FUNCTIONS)
    for name, (result,) in found.items():
        assert (result.names, result.binary) == ((name,), name.encode())
        assert result.duration_ns > 0


def test_the_first_line_about_a_function_is_kept_and_shortened():
    messages = (
        "/tmp/x/configured_module_f_2_dispatch_0.mlir:19:8: error: op was not bufferized\n"
        "/tmp/x/configured_module_g$async_dispatch_1.mlir:8:6: error: failed to distribute\n"
        "<stdin>:2:8: error: operations with large vector sizes (32768 bytes) were found:\n"
        "<stdin>:2:8: error: failed to run translation\n"
        f"<stdin>:13:1: error: {'x' * 1000}\n"
    )
    assert attribute_errors(messages, FUNCTIONS) == {
        "f_2": "op was not bufferized",
        "g": "failed to distribute",
        "f": "operations with large vector sizes (32768 bytes)",
        "h": "x" * 299 + "…",
    }


def test_the_users_folder_goes_before_the_package(tmp_path):
    mine, packaged = tmp_path / "iree-compile", tmp_path / "packaged"
    for path in (mine, packaged):
        path.touch()
    assert find_program("iree-compile", str(tmp_path), packaged) == mine
    assert find_program("iree-compile", str(tmp_path / "none"), packaged) is None
    assert find_program("iree-compile", None, packaged) == packaged
    assert find_program("no-such-program-here", None, None) is None


X86 = (DUMPS / "host.s").read_text()


RESOURCES = ("registers", "spill_bytes", "shared_memory_bytes")


def usage(*values: int) -> dict[str, int]:
    return dict(zip(RESOURCES, values, strict=True))


def shown(code) -> tuple[object, ...]:
    """What a record shows of machine code."""
    values = (getattr(code.facts, name) for name in RESOURCES)
    return code.suffix, code.facts.matrix_instruction, *values


def test_each_dispatch_gets_the_code_of_its_kernels(tmp_path: Path):
    (tmp_path / "linked.s").write_text(X86)
    (tmp_path / "linked.ll").write_text("define void @f_default_dispatch_0_matmul() {}")
    found = read_machine_code(tmp_path, ["f_default", "f", "g"])
    assert set(found) == {"f_default"}
    code = found["f_default"]
    assert shown(code) == (".s", "vfmadd231ps zmm", None, None, None)
    assert code.text == (
        "f_default_dispatch_0_matmul:\n\tvbroadcastss\t(%rdi), %zmm1\n.LBB0_2:\n"
        "\tvfmadd231ps\t(%rax){1to16}, %zmm1, %zmm2\n\tvfmadd231ps\t%zmm3, %zmm1, %zmm4 {%k1}\n"
        "\tvfmadd231ss\t%xmm3, %xmm1, %xmm4\n\tjne\t.LBB0_2\n\n"
        "f_default_dispatch_1_reduction:\n\tvaddps\t%zmm3, %zmm1, %zmm4\n"
    )
    known = {"f_default_dispatch_0_matmul": usage(96, 0, 100),
             "f_default_dispatch_1_reduction": usage(20, 4, 200)}  # fmt: skip
    largest = read_machine_code(tmp_path, ["f_default"], known)["f_default"]
    assert shown(largest) == (".s", "vfmadd231ps zmm", 96, 4, 200)


def test_ptx_keeps_its_head_and_includes_tool_output(tmp_path: Path):
    (tmp_path / "linked.ptx").write_text((DUMPS / "nvidia.ptx").read_text())
    known = {"f_default_dispatch_0_matmul": usage(96, 8, 34304)}
    one, other = read_machine_code(tmp_path, ["f_default", "g"], known).values()
    assert shown(one) == (".ptx", "mma.sync", 96, 8, 34304)
    assert one.text.startswith(".version 7.6\n.target sm_80\n.extern .shared")
    assert one.text.endswith("\tret;\n}\n")
    assert "fma.rn" not in one.text
    assert shown(other) == (".ptx", "none", None, None, None)
    assert "fma.rn" in other.text and ".target sm_80" in other.text


def test_amd_assembly_shows_the_resources_it_needs(tmp_path: Path):
    (tmp_path / "linked.rocmasm").write_text((DUMPS / "amd.rocmasm").read_text())
    code = read_machine_code(tmp_path, ["f_default"])["f_default"]
    assert shown(code) == (".amdgcn", "mfma", 112, 12, 50688)
    assert amd_usage("no metadata") == {}


def test_without_dumps_there_is_nothing(tmp_path: Path):
    assert read_machine_code(tmp_path / "none", ["f"]) == {}
    assert split_kernels("", ".ptx")[1] == split_kernels("", ".s")[1] == {}


@pytest.mark.parametrize(
    ("symbol", "function"),
    [("f_dispatch_0_matmul", "f"), ("f_dispatch_12", "f"), ("f$async_dispatch_0_matmul", "f"),
     ("f_dispatch_0_x_dispatch_1_matmul", "f_dispatch_0_x"), ("f_2_dispatch_0_matmul", "f_2"),
     ("other_dispatch_0_matmul", None), ("iree_h2f_ieee", None)],
)  # fmt: skip
def test_symbols_name_their_function(symbol, function):
    assert function_of(symbol, {"f", "f_2", "f_dispatch_0_x"}) == function


@pytest.mark.parametrize(
    ("lines", "instruction"),
    [
        (["vdpbf16ps\t(%rsi){1to16}, %zmm2, %zmm1"] * 2 + ["vfmadd231ps %zmm1, %zmm2, %zmm3"],
         "vdpbf16ps zmm"),
        (["vpdpbusd\t%ymm1, %ymm2, %ymm3"], "vpdpbusd ymm"),
        (["tdpbssd\t%tmm2, %tmm1, %tmm0"] + ["vfmadd231ps %zmm1, %zmm2, %zmm3"] * 9, "tdpbssd"),
        (["vmulps\t%xmm1, %xmm2, %xmm3"], "vmulps xmm"),
        (["vpmulld\t(%rax), %zmm2, %zmm3"], "vpmulld zmm"),
        (["fmla\tv0.4s, v1.4s, v2.s[0]"], "fmla 4s"),
        (["smmla\tv0.4s, v1.16b, v2.16b"] + ["fmla v0.4s, v1.4s, v2.4s"] * 5, "smmla"),
        (["sdot\tv0.4s, v1.16b, v2.16b"], "sdot 4s"),
        (["movq\t%rax, %rbx", "addq\t$1, %rax"], "none"),
    ],
)  # fmt: skip
def test_the_instruction_of_the_product_on_a_cpu(lines, instruction):
    assert cpu_instruction("label:\n" + "\n".join(f"\t{line}" for line in lines)) == instruction


def test_the_matrix_instruction_of_a_gpu():
    assert matrix_instruction("wgmma.mma_async.sync.aligned") == "wgmma"
    assert matrix_instruction("\twmma.mma.sync.aligned") == "mma.sync"
    assert matrix_instruction("v_wmma_f32_16x16x16_f16") == "wmma"
    assert matrix_instruction("fma.rn.f32") == "none"


def test_ptxas_of_the_path_is_run_and_its_words_are_kept(tmp_path: Path, monkeypatch):
    program = tmp_path / "ptxas"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:3])\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ptxas() == program
    printed = assemble(tmp_path / "a.ptx", "sm_90", program)
    assert printed == "// $ ptxas -v -arch=sm_90 a.ptx\n['-v', '-arch=sm_90']\n"
    assert "cannot start" in assemble(tmp_path / "a.ptx", "sm_90", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert find_ptxas() is None


@pytest.mark.parametrize("content", [b"\x7fELF", b"CDA1" + b"\xff" * 100, b"CDA1" + b"\0" * 62])
def test_a_file_that_is_not_a_cuda_binary_shows_nothing(content):
    assert shared_memory(content) == {}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("module.fb", b"other")
        file.writestr("linked.fb", content)
    assert shared_memory(buffer.getvalue()) == {}


def test_the_configuration_of_the_contraction_is_reported_not_that_of_the_fill():
    assert chosen_configuration((DUMPS / "configured.mlir").read_text()) == (
        "lowering_config = #iree_cpu.lowering_config<distribution = [64, 43, 0], "
        "vector_reduction = [0, 0, 13]>; translation_info = #iree_codegen.translation_info<"
        "pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>"
    )
    braces = "lowering_config = #iree_gpu.lowering_config<{reduction = [0], a = [[1, 2], [0]]}>"
    assert chosen_configuration(f"{{{braces}}} ins") == braces
