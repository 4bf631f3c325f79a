"""Every command line of the dispatch profiler's document does what the document says: it parses as
written, it plans what is meant, and the three commands share a folder."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from gemmetry.cli.main import load_command

FOLDERS = "--build-dir </path/to/iree/build/dir> --generated-dir </path/to/create/generated/dir>"
F16 = "matmul_3456x1024x2048_f16t_f16t_f16t"
F32 = "matmul_3456x1024x2048_f32t_f32t_f32t"

GENERATE = [
    "--generated-dir </path/to/create/generated/dir>",
    "--generated-dir </path/to/create/generated/dir> --problem-m=768 --problem-n=512 "
    "--problem-k=1024",
    "--generated-dir </path/to/create/generated/dir> --problem-m=64:1024:128 "
    "--problem-n=64:1024:128 --problem-k=4096",
]
COMPILE = [FOLDERS]
PROFILE = [
    f"{FOLDERS} --dispatches={F16}_tile_config_128x128_32x5_tensorcore_mmasync "
    "--verification-enabled=true --profiling-enabled=true",
    f"{FOLDERS} --dispatches={F16}_tile_config_128x128_32x5_tensorcore_mmasync "
    "--verification-enabled=false --profiling-enabled=true",
    f"{FOLDERS} --dispatches={F16}_*_tensorcore_mmasync --verification-enabled=false "
    "--profiling-enabled=true --output=data.csv",
    f"{FOLDERS}  --dispatches={F16}_tile_config_128x128_32x5_tensorcore_mmasync,"
    f"{F32}_tile_config_128x128_16x5_tensorcore_mmasync",
    "--dispatch=matmul_*,batch_* --output=/tmp/data.csv",
]
EVERY_OLD_FLAG = (
    "--iree-bin-dir ./tools --generated-dir . --operation-kind all --op-kind matmul "
    "--mlir-dialect linalg --verbose --dry-run --default-config --num-cpu -1 --force-compile "
    "--iree-hal-target-backends cuda --iree-hal-cuda-llvm-target-arch sm_80 "
    "--iree-hal-benchmark-dispatch-repeat-count 100 --iree-flow-split-matmul-reduction 2 "
    "--iree-codegen-llvmgpu-use-mma-sync --iree-codegen-llvmgpu-use-wmma "
    "--mlir-print-ir-after-all --verification-enabled true --verification-providers numpy "
    "--profiling-enabled true --benchmark-repetitions 5 --output a.csv --append "
    "--tags Commit:abc,Machine:box --problem-m 64 128 --problem-n=64,128 --problem-k 64 --save-cmds"
)
SHORT_OLD_FLAGS = (
    "--device cuda --cuda-arch sm_86 --batch-size 100 --split-k-slices 2,4 --use-mma-sync=true "
    "--use-wmma=false --print-ir-after-all=false --benchmark=True -j 4 --dispatch x"
)

LINES = [
    *(("generate", line) for line in GENERATE),
    *(("compile", line) for line in COMPILE),
    *(("profile", line) for line in PROFILE),
    *((name, line) for name in ("profile", "generate", "compile")
      for line in (EVERY_OLD_FLAG, SHORT_OLD_FLAGS)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "line"), LINES)
def test_parses(name, line):
    words = shlex.split(line.replace("<", "").replace(">", ""))
    context = load_command(name).make_context(name, words)
    assert context.args == []
    assert bool(context.params["problem_m"]) == ("--problem-m" in line)
    assert bool(context.params["dispatches"]) == ("--dispatch" in line.replace("--dispatch-", ""))


def test_values_arrive():
    context = load_command("profile").make_context("profile", shlex.split(EVERY_OLD_FLAG))
    given = context.params
    assert list(given["problem_m"]) == ["64", "128"]
    assert given["jobs"] == "-1"
    assert given["dispatch_repeat_count"] == "100"
    assert list(given["split_k_slices"]) == ["2"]
    assert list(given["device"]) == ["cuda"]
    assert given["cuda_arch"] == "sm_80"
    assert given["verification_enabled"] is True
    assert list(given["tags"]) == ["Commit:abc,Machine:box"]
    assert list(given["output"]) == ["a.csv"]
    assert list(given["operation_kind"]) == ["all", "matmul"]
    assert given["save_cmds"] is given["append"] is given["default_config"] is True


def test_options_without_effect_explain_why(cli):
    ended = cli(
        "profile", "--dry-run", "--providers", "null", "--build-dir", "x", "--use-wmma=false"
    )
    assert ended.status == 0
    assert ended.stderr.count("--build-dir has no effect: IREE's tools come") == 1
    wrong = cli("generate", "--mlir-dialect", "mhlo")
    assert wrong.status == 2
    assert "linalg" in wrong.stderr


DRY = [
    ("generate", GENERATE[0], 109, 17),
    ("generate", GENERATE[1], 39, 3),
    ("generate", f"{GENERATE[1]} --device cpu", None, 3),
    ("generate", f"{GENERATE[1]} --device hip-gfx942", None, 3),
    ("generate", f"{GENERATE[2]} --default-config", 192, 192),
    ("compile", COMPILE[0], 109, 17),
    ("compile", f"{COMPILE[0]} --device cpu", None, 17),
    ("compile", f"{COMPILE[0]} --device hip-gfx942", None, 17),
    ("compile", f"{COMPILE[0]} --device vulkan-ada", 17, 17),
    *(("profile", f"{line} --device cuda-sm_80 --providers iree", count, operations)
      for line, count, operations in zip(PROFILE[:4], (1, 1, 6, 2), (1, 1, 1, 2), strict=True)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "line", "count", "operations"), DRY)
def test_plans_what_the_document_says(cli, name, line, count, operations):
    pytest.importorskip("iree.compiler", reason="the iree extra is not installed")
    words = shlex.split(line.replace("</path", "path").replace("dir>", "dir"))
    ended = cli(name, *words, "--dry-run", "--json")
    assert ended.status == 0, ended.stderr
    plan = json.loads(ended.stdout)
    assert plan["operations"] == operations
    assert count is None or plan["dispatches"] == count
    assert plan["dispatches"] >= operations
    assert [lane["unsupported"] < lane["dispatches"] for lane in plan["providers"]] == [True]


SWEEP = "--problem-m=64:1024:256 --problem-n=64:1024:512 --problem-k=4096"


def test_the_three_commands_share_a_folder(cli):
    """With the null provider, whose stages take no time; the lines are the document's."""
    null = ["--providers", "null", "--device", "null", "--dtypes", "f32"]
    written = cli("generate", "--generated-dir", "b", "--problem-m=768", "--problem-n=512",
                  "--problem-k=1024", *null)  # fmt: skip
    assert written.status == 0, written.stderr
    assert "gemmetry compile --generated-dir b" in written.stderr
    emitted = written.stdout.count("Emitting tuning configuration")
    again = cli("generate", "--generated-dir", "b", *SWEEP.split(), *null)
    assert again.status == 0

    compiled = cli("compile", "--build-dir", "x", "--generated-dir", "b", "--json")
    assert compiled.status == 0, compiled.stderr
    records = json.loads(compiled.stdout)["records"]
    assert len(records) == emitted + again.stdout.count("Emitting tuning configuration")

    profiled = cli("profile", "--build-dir", "x", "--generated-dir", "b",
                   "--dispatches=matmul_768x512x1024_*", "--verification-enabled=true",
                   "--profiling-enabled=true", "--output=data.csv,data.json",
                   "--verification-level", "quick")  # fmt: skip
    assert profiled.status == 0, profiled.stderr
    assert len(Path("data.csv").read_text().splitlines()) == 1 + emitted
    done = json.loads(Path("data.json").read_text())["records"]
    assert {record["outcome"] for record in done} == {"ok"}
    assert {record["verification"] for record in done} == {"passed"}
    assert all(record["operation"].startswith("matmul_768x512x1024_") for record in done)

    expressions = cli(
        "profile",
        "--generated-dir",
        "b",
        "--dispatches",
        "matmul_768x.*_f32t_.*default,matmul_64x64x4096_.*",
        "--dry-run",
        "--json",
    )
    assert expressions.status == 0
    assert json.loads(expressions.stdout)["operations"] == 2


def test_the_folder_of_one_command_serves_the_next(cli):
    """With a real compiler: `compile` leaves what `profile` runs, and neither does work twice."""
    pytest.importorskip("iree.compiler", reason="the iree extra is not installed")
    assert (
        cli(
            "generate",
            "--device",
            "cpu",
            "--problem-m=48",
            "--problem-n=32",
            "--problem-k=16",
            "--generated-dir",
            "b",
            "--dtypes",
            "f32",
            "--default-config",
        ).status
        == 0
    )
    operation = "matmul_48x32x16_f32t_f32t_f32t"
    folder = Path("b/generated/linalg/matmul") / operation
    assert [path.name for path in folder.glob("[!.]*")] == [f"{operation}.mlir"]

    compiled = cli("compile", "--generated-dir", "b", "--json")
    assert compiled.status == 0, compiled.stderr
    (build,) = json.loads(compiled.stdout)["records"]
    names = {path.name for path in folder.glob("[!.]*")}
    assert {"iree_compile_cmd_stdout.mlir", f"{operation}.mlir", f"{operation}_profile.vmfb",
            f"{operation}_verify.vmfb"} <= names  # fmt: skip
    binary = (folder / f"{operation}_profile.vmfb").resolve()
    made = binary.stat().st_mtime_ns

    profiled = cli("profile", "--generated-dir", "b", "--dispatches", "matmul_48x32x16_*",
                   "--time-budget", "50ms", "--verification-level", "quick", "--json")  # fmt: skip
    assert profiled.status == 0, profiled.stderr
    (record,) = json.loads(profiled.stdout)["records"]
    assert (record["provider"], record["verification"]) == ("iree", "passed")
    assert record["median_ns"] > 0
    assert record["compile_ns"] == build["compile_ns"]
    assert binary.stat().st_mtime_ns == made
    assert {path.name for path in folder.glob("[!.]*")} == names
