from __future__ import annotations

import sys
from pathlib import Path

from gemmetry.sweeps.training.axes import AxisKind, PlannedPoint, SweepAxis
from gemmetry.sweeps.training.launching import (
    PointLaunch,
    RocprofLaunch,
    point_command,
    point_environment,
    rocprof_command,
)

FOLDER = Path("/sweep/256thread")
AXES = (
    SweepAxis("NCCL_ALGO", AxisKind.VARIABLE, ("Ring",)),
    SweepAxis("training.batch_size", AxisKind.KEY, ("8",)),
)
POINT = PlannedPoint(256, None, (("NCCL_ALGO", "Ring"), ("training.batch_size", "8")), 2, True)
WORKLOAD = PointLaunch(nproc=4, config="tiny", overrides=("model.num_layers=3",), path="symmetric")


def command(launch, **environment):
    return point_command(launch, POINT, AXES, FOLDER, meeting="sweep-1", environment=environment)


def test_the_workload_under_torchrun():
    assert command(WORKLOAD) == (
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--standalone",
        "-m", "gemmetry.sweeps.workload", "--config", "tiny", "--output", str(FOLDER),
        "--path", "symmetric", "--override", "model.num_layers=3", "training.batch_size=8",
    )  # fmt: skip


def test_several_nodes_meet_once_for_each_attempt_and_get_the_settings():
    launch = PointLaunch(
        nproc=8, nnodes=2, rdzv_endpoint="node01:29500", launcher=("srun", "-n", "2"), config="x"
    )
    words = command(launch, NCCL_NTHREADS="256")
    assert words[:5] == ("srun", "-n", "2", "env", "NCCL_NTHREADS=256")
    agent = " ".join(words[5:])
    assert "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint node01:29500 --rdzv-id sweep-1" in agent
    assert "--standalone" not in agent
    assert launch.world_size == 16


def test_placeholders_of_a_command_get_values_and_other_braces_stay():
    launch = PointLaunch(
        nproc=4,
        command=("train", "--b={training.batch_size}", "{trace_dir}", "{threads}{channels}", "{x}"),
    )
    assert command(launch) == ("train", "--b=8", f"{FOLDER}/torch_profiler", "256", "{x}")
    assert launch.world_size is None


def test_what_a_command_can_read():
    assert point_environment(WORKLOAD, POINT, FOLDER) == {
        "GEMMETRY_OUTPUT": str(FOLDER),
        "GEMMETRY_TRACE_DIR": f"{FOLDER}/torch_profiler",
        "GEMMETRY_THREADS": "256",
        "GEMMETRY_CHANNELS": "",
        "GEMMETRY_REPEAT": "2",
        "GEMMETRY_NPROC": "4",
        "GEMMETRY_PATH": "symmetric",
    }


def test_rocprofv3_is_around_torchrun():
    launch = PointLaunch(config="tiny", rocprof=RocprofLaunch(stats=True))
    words = command(launch)
    assert words[: words.index("--") + 2] == (
        "rocprofv3", "--kernel-trace", "--stats", "--output-format", "csv", "json",
        "-o", "%hostname%/rank%env{RANK}%_%pid%", "-d", f"{FOLDER}/rocprof_traces", "--",
        sys.executable,
    )  # fmt: skip


def test_options_complete_an_input_of_rocprofv3(tmp_path):
    path = tmp_path / "x.yaml"
    launch = RocprofLaunch(input=path, stats=True)
    path.write_text("jobs: [{kernel_trace: true}]")
    assert rocprof_command(launch, Path("/out")) == (
        "rocprofv3", "-i", str(path), "--stats", "--output-format", "csv", "json",
        "-o", "%hostname%/rank%env{RANK}%_%pid%", "-d", "/out", "--",
    )  # fmt: skip
    # rocprofv3 refuses an option that a job has with another value.
    path.write_text("jobs: [{stats: false, output_format: [csv], output_file: x}]")
    assert rocprof_command(launch, Path("/out")) == (
        "rocprofv3", "-i", str(path), "-d", "/out", "--",
    )  # fmt: skip


def test_each_rank_has_an_ncu_of_its_own_and_no_other_profiler():
    words = command(PointLaunch(config="tiny", ncu=("--set", "basic")))
    start = words.index("--no-python")
    assert words[start + 1 : start + 10] == (
        "ncu", "--target-processes", "all", "--set", "basic", "-f", "-o",
        f"{FOLDER}/ncu/rank%q{{RANK}}", sys.executable,
    )  # fmt: skip
    assert words[-1] == "profiling.enabled=false"


def test_a_command_under_ncu():
    words = command(PointLaunch(command=("train",), ncu=()))
    assert words == (
        "ncu", "--target-processes", "all", "-f", "-o", f"{FOLDER}/ncu/report_%p", "train"
    )  # fmt: skip
