"""What a sweep on real GPUs shows: settings, the path of the bytes, a planted straggler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gemmetry.cli.main import run
from gemmetry.sweeps.points import PointAnalysis, analyse_sweep

pytestmark = pytest.mark.gpu

SMALL = (
    "distributed.backend=nccl", "model.model_dim=512", "model.mlp_hidden_dim=2048",
    "training.batch_size=16", "dataset.sequence_length=128", "distributed.bucket_cap_mb=32",
)  # fmt: skip


def swept(folder: Path, *arguments: str) -> tuple[PointAnalysis, ...]:
    """The points of a sweep with two ranks."""
    status = run(
        ["sweep", "run", "--config", "tiny", "--nproc", "2", "-o", str(folder), *arguments]
    )
    assert status == 0
    return analyse_sweep(folder).points


def verdicts(point: PointAnalysis) -> dict[str, str]:
    return {one.name: one.verdict for one in point.settings}


def test_channels_and_threads_of_the_ring_are_in_effect(two_gpus: None, tmp_path: Path) -> None:
    points = swept(
        tmp_path / "sweep", "--channels", "1,4", "--threads", "256,512", "--axis",
        "NCCL_ALGO=Ring", "--override", *SMALL,
    )  # fmt: skip
    assert len(points) == 4
    for point in points:
        assert point.point.facts["library"] in ("nccl", "rccl")
        if point.point.facts["library"] == "nccl":
            found = {name: one for name, one in verdicts(point).items() if name != "path"}
            assert found == dict.fromkeys(("channels", "threads", "NCCL_ALGO"), "in effect")


def test_a_fallback_from_copy_engines_is_caught(two_gpus: None, tmp_path: Path) -> None:
    """Whichever way the library takes, the verdict is that of the kernels in the trace."""
    arguments = [
        "sweep", "run", "--config", "tiny", "--nproc", "2", "-o", str(tmp_path / "sweep"),
        "--channels", "4", "--threads", "256", "--path", "copy_engine", "--override", *SMALL,
        "distributed.mode=fsdp",
    ]  # fmt: skip
    if run(arguments) != 0:
        pytest.skip("the training does not run with this path here")
    points = analyse_sweep(tmp_path / "sweep").points
    (point,) = points
    gathers = [
        one.kernel for rank in point.ranks for one in rank.facts.communication
        if one.collective.op == "all_gather"
    ]  # fmt: skip
    assert verdicts(point)["path"] == ("not in effect" if gathers else "in effect"), gathers


@pytest.mark.alone
def test_a_planted_straggler_is_named_with_its_kernel(two_gpus: None, tmp_path: Path) -> None:
    """The wait is longer than a host takes to launch a step while it is profiled; otherwise the
    GPUs wait for their hosts, and nobody for that rank."""
    folder = tmp_path / "sweep/256thread/nccl_4channels"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "gemmetry.sweeps.workload", "--config", "tiny", "--straggle", "1:200",
        "--output", str(folder), "--override", *SMALL, "training.max_steps=8", "profiling.active=6",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    (point,) = analyse_sweep(tmp_path / "sweep").points
    first, second = point.stragglers
    assert not first.is_straggler
    assert second.is_straggler
    assert "spin_kernel" in (second.lost_in or "")
