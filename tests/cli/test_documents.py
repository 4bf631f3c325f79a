"""Every command line of the dispatch profiler's document parses as it is written there."""

from __future__ import annotations

import shlex

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


def test_what_has_no_effect_says_why(cli):
    ended = cli(
        "profile", "--dry-run", "--providers", "null", "--build-dir", "x", "--use-wmma=false"
    )
    assert ended.status == 0
    assert ended.stderr.count("--build-dir has no effect: IREE's tools come") == 1
    wrong = cli("generate", "--mlir-dialect", "mhlo")
    assert wrong.status == 2
    assert "linalg" in wrong.stderr
