"""Every command line of the documents does what they say, with gemmetry's command in place of the
script: it parses as written, it plans what is meant, and what one writes the next one reads."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from gemmetry.cli.main import load_command

GENERATED = "--generated-dir path/to/create/generated/dir"
FOLDERS = f"--build-dir path/to/iree/build/dir {GENERATED}"
PROFILE = f"{FOLDERS} --device cuda-sm_80 --providers iree --verification-enabled=false"
F16 = "matmul_3456x1024x2048_f16t_f16t_f16t"
F32 = "matmul_3456x1024x2048_f32t_f32t_f32t_tile_config_128x128_16x5_tensorcore_mmasync"
ONE = f"{F16}_tile_config_128x128_32x5_tensorcore_mmasync"
THREE = f"{GENERATED} --problem-m=768 --problem-n=512 --problem-k=1024"
MANY = f"{GENERATED} --problem-m=64:1024:128 --problem-n=64:1024:128 --problem-k=4096"

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


@pytest.mark.parametrize("name", ["profile", "generate", "compile"])
@pytest.mark.parametrize(
    "line", ["--dispatch=matmul_*,batch_* --output=/tmp/data.csv", EVERY_OLD_FLAG, SHORT_OLD_FLAGS]
)
def test_old_flags_parse(name, line):
    context = load_command(name).make_context(name, shlex.split(line))
    assert context.args == []
    assert bool(context.params["problem_m"]) == ("--problem-m" in line)
    assert bool(context.params["dispatches"]) == ("--dispatch" in line.replace("--dispatch-", ""))


def test_values_arrive():
    context = load_command("profile").make_context("profile", shlex.split(EVERY_OLD_FLAG))
    expected = {
        "problem_m": ["64", "128"], "jobs": "-1", "dispatch_repeat_count": "100",
        "split_k_slices": ["2"], "device": ["cuda"], "cuda_arch": "sm_80",
        "verification_enabled": True, "tags": ["Commit:abc,Machine:box"], "output": ["a.csv"],
        "operation_kind": ["all", "matmul"], "save_cmds": True, "append": True,
        "default_config": True,
    }  # fmt: skip
    for name, value in expected.items():
        found = context.params[name]
        assert (list(found) if isinstance(value, list) else found) == value, name


DRY = [
    ("generate", GENERATED, 109, 17),
    ("generate", THREE, 39, 3),
    ("generate", f"{THREE} --device hip-gfx942", None, 3),
    ("generate", f"{MANY} --default-config", 192, 192),
    ("compile", FOLDERS, 109, 17),
    ("compile", f"{FOLDERS} --device vulkan-ada", 17, 17),
    ("profile", f"{PROFILE} --profiling-enabled=true --dispatches={ONE}", 1, 1),
    ("profile", f"{PROFILE} --output=data.csv --dispatches={F16}_*_tensorcore_mmasync", 6, 1),
    ("profile", f"{PROFILE} --dispatches={ONE},{F32}", 2, 2),
]


@pytest.mark.parametrize(("name", "line", "count", "operations"), DRY)
def test_plans_what_the_document_says(cli, name, line, count, operations):
    pytest.importorskip("iree.compiler", reason="the iree extra is not installed")
    plan = cli.json(name, *line.split(), "--dry-run")
    assert plan["operations"] == operations
    assert count is None or plan["dispatches"] == count
    assert plan["dispatches"] >= operations
    assert [lane["unsupported"] < lane["dispatches"] for lane in plan["providers"]] == [True]


def test_the_folder_of_one_command_serves_the_next(cli):
    """With a real compiler: `compile` leaves what `profile` runs, and neither does work twice."""
    pytest.importorskip("iree.compiler", reason="the iree extra is not installed")
    request = "--device cpu --problem-m=48 --problem-n=32 --problem-k=16 --dtypes f32"
    made = cli("generate", *request.split(), "--generated-dir", "b", "--default-config", status=0)
    assert "gemmetry compile --generated-dir b" in made.stderr
    operation = "matmul_48x32x16_f32t_f32t_f32t"
    folder = Path("b/generated/linalg/matmul") / operation
    assert [path.name for path in folder.glob("[!.]*")] == [f"{operation}.mlir"]

    (build,) = cli.json("compile", "--build-dir", "x", "--generated-dir", "b")["records"]
    names = {path.name for path in folder.glob("[!.]*")}
    assert {"iree_compile_cmd_stdout.mlir", f"{operation}.mlir", f"{operation}_profile.vmfb",
            f"{operation}_verify.vmfb"} <= names  # fmt: skip
    binary = (folder / f"{operation}_profile.vmfb").resolve()
    made = binary.stat().st_mtime_ns

    (record,) = cli.json("profile", "--generated-dir", "b", "--dispatches", "matmul_48x32x16_*",
                         "--verification-enabled=true", "--profiling-enabled=true",
                         "--time-budget", "50ms", "--verification-level",
                         "quick")["records"]  # fmt: skip
    assert (record["provider"], record["verification"]) == ("iree", "passed")
    assert record["median_ns"] > 0
    assert record["compile_ns"] == build["compile_ns"]
    assert binary.stat().st_mtime_ns == made
    assert {path.name for path in folder.glob("[!.]*")} == names


# The sweep analysis document.

SWEEP_FOLDER = "experiments/sweep_20251124_222204"
ANALYSIS = f"{SWEEP_FOLDER}/tracelens_analysis"
TOP = f"{ANALYSIS}/top5_gemm_kernels_time_variance"
TRAINING = "--config config/single_node/gemm_overlap_comm.yaml"
TOP_INPUT = "scripts/gemm_analysis/rocprof_top5_kernels.yaml"
CU_INPUT = "scripts/gemm_analysis/rocprof_cu_only.yaml"

RUNS = [
    f"--channels 28,42,56,70 --threads 256,512 {TRAINING}",
    f"--rocprof --rocprof-input {CU_INPUT} --channels 28,42,56 --threads 256,512 {TRAINING}",
    "--rocprof --stats --channels 28,42,56,70 --threads 256,512",
    f"--rocprof --stats --rocprof-input {TOP_INPUT} --channels 28,42,56,70 --threads 256,512",
    f"--skip-existing --channels 28,42,56,70 --threads 256,512 {TRAINING}",
]
"""Of ``run_train_various_channels.sh``; the last one is the script's own, for a first run."""

ANALYSES = [
    (f"--base-path {ANALYSIS} --threads 256 512 --channels 28 42 56 70 --ranks 0 1 2 3 4 5 6 7 "
     "--top-k 5", "variance", [f"{TOP}.csv"]),
    (f"--csv-path {TOP}.csv --output-dir {ANALYSIS}/plots", "plots",
     [f"{ANALYSIS}/plots/variance_by_threads_boxplot.png",
      f"{ANALYSIS}/plots/variance_thread_channel_interaction.png"]),
    (f"{ANALYSIS} --channels 28,42", "variance", [f"{TOP}.csv"]),
    (f"--csv-path {TOP}.csv", "plots", [f"{ANALYSIS}/plots/variance_by_channels_boxplot.png"]),
    (f"--input-csv {TOP}.csv --base-path {SWEEP_FOLDER}", "timestamps",
     [f"{TOP}_with_timestamps.csv"]),
    (f"--input-csv {TOP}_with_timestamps.csv --tracelens-path {ANALYSIS}", "overlap",
     [f"{TOP}_with_collective_overlap.csv"]),
    (f"--sweep-dir {SWEEP_FOLDER} --analysis-dir tracelens_analysis", "timeline",
     [f"{ANALYSIS}/gpu_timeline_all_configs_mean.xlsx"]),
    (f"--sweep-dir {SWEEP_FOLDER} --analysis-dir tracelens_analysis", "collectives",
     [f"{ANALYSIS}/nccl_master_all_configs.xlsx", f"{ANALYSIS}/nccl_master_all_configs.csv"]),
]  # fmt: skip
"""Of the scripts that analyse; the step of ours; the files that the document says are written."""


@pytest.fixture
def sweep(cli, quick_plots, tmp_path, sweeps):
    """`cli` in a folder with the document's sweep, without the folder of its analysis."""
    points = [
        sweeps.MadePoint(threads=threads, channels=channels, slowdown={sweeps.UP.kernel: 1.3},
                         layers=2)
        for threads in (256, 512) for channels in (28, 42)
    ]  # fmt: skip
    sweeps.write_sweep(tmp_path / SWEEP_FOLDER, points)
    return cli


@pytest.mark.parametrize("line", RUNS)
def test_a_sweep_is_planned(cli, with_rocprofv3, rocprofv3, line):
    Path("top.csv").write_text(f"kernel_name\n{rocprofv3.GEMM}\n")
    cli("sweep", "rocprof-input", "--input-csv", "top.csv", "--output-yaml", TOP_INPUT, status=0)
    planned = cli("sweep", "run", *shlex.split(line), "--override", "distributed.backend=gloo",
                  "--dry-run", "--json", status=0)  # fmt: skip
    points = json.loads(planned.stdout)["points"]
    channels = (28, 42, 56) if "28,42,56 " in line else (28, 42, 56, 70)
    assert {(one["threads"], one["channels"]) for one in points} == {
        (threads, number) for threads in (256, 512) for number in channels
    }
    # A file of the document that is not there is gemmetry's own, which a note says.
    for name in ("gemm_overlap_comm.yaml", "rocprof_cu_only.yaml"):
        assert (name in planned.stderr) == (name in line)


def test_a_file_of_ones_own_comes_before_that_of_the_document(cli):
    for path in (TRAINING.split()[1], "gemm_overlap_comm.yaml"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("training: {no_such_key: 3}\n")
        assert "no_such_key" in cli("sweep", "run", "--config", path, "--dry-run").stderr


def test_a_sweep_is_analysed_into_the_folder_that_is_named(sweep):
    for line, step, files in ANALYSES:
        ended = sweep("sweep", "analyze", *shlex.split(line), "--only", step)
        assert (ended.status, ended.stdout) == (0, ""), (line, ended.stderr)
        assert [name for name in files if not Path(name).is_file()] == [], line
        for name in files:
            Path(name).rename(f"{name}.seen")
    assert not Path(SWEEP_FOLDER, "analysis").exists()
    assert not Path(SWEEP_FOLDER, "plots").exists()


def test_names_of_nvidia_in_an_input_of_rocprofv3_are_warned_of(cli, sweeps, rocprofv3):
    for names in ([sweeps.UP.kernel, "matmul_kernel"], [rocprofv3.GEMM, "matmul_kernel"]):
        Path("top.csv").write_text("\n".join(["kernel_name", *names]) + "\n")
        ended = cli("sweep", "rocprof-input", "--input-csv", "top.csv", "--output-yaml", TOP_INPUT,
                    status=0)  # fmt: skip
        assert ("warning:" in ended.stderr) == (sweeps.UP.kernel in names)
        assert (sweeps.UP.kernel[:20] in ended.stderr) == (sweeps.UP.kernel in names)
        listed = Path(TOP_INPUT).with_name("rocprof_top5_kernels_kernel_list.txt").read_text()
        assert set(listed.splitlines()) == set(names)


def test_sweeps_are_compared_on_one_page(sweep, tmp_path, sweeps):
    sweeps.write_sweep(tmp_path / "experiments/sweep_20251121_155219",
                       [sweeps.MadePoint(threads=256, channels=28, layers=2)])  # fmt: skip
    line = (f"--sweep1 experiments/sweep_20251121_155219 --sweep2 {SWEEP_FOLDER} "
            '--label1 "Base ROCm" --label2 "ROCm 7.0" --output sweep_comparison.html')  # fmt: skip
    assert sweep("sweep", "compare", *shlex.split(line)).status in (0, 1)
    page = Path("sweep_comparison.html").read_text()
    assert "Base ROCm" in page and "ROCm 7.0" in page


# The Nsight Compute document. Its program is gemmetry's block-scaled product.

PROGRAM = "python dense_blockscaled_gemm_persistent.py"
PRODUCT = (
    "--mnkl 8192,8192,1024,1 --mma_tiler_mn 256,128 --cluster_shape_mn 2,1 "
    "--ab_dtype Float4E2M1FN --sf_dtype Float8E8M0FNU --sf_vec_size 16 --c_dtype Float16 "
    "--skip_ref_check --iterations 1"
)
METRICS = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed,"
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.pct,"
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,lts__t_sectors_srcunit_tex_op_read.sum"
)
NCU = [
    "--set full --target-processes all --force-overwrite -o baseline_profile",
    "--section SpeedOfLight --section MemoryWorkloadAnalysis --section WarpStateStats "
    "--section Occupancy --target-processes all --force-overwrite -o baseline_quick",
    "--set full -o profile_n128",
    f"--csv --metrics {METRICS}",
]


@pytest.mark.parametrize("line", NCU)
def test_counters_are_collected_as_ncu_is_started(cli, line):
    own = f"{PRODUCT} --set x --json=true"
    words = [*line.split(), *PROGRAM.split(), *own.split()]
    ended = cli("counters", "collect", "--dry-run", "--json", *words, status=0)
    started = json.loads(ended.stdout)["command"]
    at = started.index("python")
    assert shlex.join(started[at:]) == f"{PROGRAM} {own}"
    given = shlex.split(line)
    pairs = dict(pairwise(started[:at]))
    assert pairs["--target-processes"] == "all"
    assert pairs.get("--set") == ("full" if "--set" in given else None)
    for option, value in pairwise(given):
        if option == "--section":
            assert value in started
        elif option == "--metrics":
            assert set(value.split(",")) <= set(pairs["--metrics"].split(","))
        elif option == "-o":
            assert pairs["-o"].startswith(value)


def test_what_ncu_writes_replaces_and_prints(cli):
    words = ["counters", "collect", "-o", "x", "--dry-run", "--json"]
    for option in ("-f", "--force", "--force-overwrite", "--csv"):
        assert cli(*words, option, "true").status == 0
    only = cli(*words, "--target-processes", "application-only", "true")
    assert "application-only" in json.loads(only.stdout)["command"]


def test_the_program_is_a_product_of_blocks(cli):
    pytest.importorskip("triton", reason="the triton extra is not installed")
    target = ("--providers", "triton", "--device", "cuda-sm_90", "--dry-run")
    ended = cli("compile", *PRODUCT.split(), *target, status=0)
    assert "matmul_8192x8192x1024_e2m1t_e2m1n_f16t_vs16_e8m0" in ended.stdout
    ended = cli("compile", *PRODUCT.replace("256,128", "256,256").split(), *target, status=2)
    # Why there is none, with what the tile needs: 256 values in each of 256 threads.
    error = ended.stderr.partition("error:")[2].partition("hint:")[0]
    assert "registers" in error and "256" in error


# The grid tracing document.


def test_the_grid_of_the_document(cli):
    record = ("trace", "record", "--device", "cpu", "--dry-run")
    cli(*record, *(f"--enable-{one}-search" for one in ("size", "precision", "layout", "batch")),
        status=0)  # fmt: skip
    found = cli.json(*record, "--matrix-sizes", "1024", "--enable-precision-search",
                     "--precisions", "fp32,fp16,bf16")  # fmt: skip
    assert found["dispatches"] == 3
