"""The workload's sweep on the CPU, from ``gemmetry sweep run`` to ``gemmetry sweep compare``."""

from __future__ import annotations

import gzip
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gemmetry.documents import sweep_plots as plots
from gemmetry.sweeps import run as sweep_module
from gemmetry.sweeps.options import WORKLOAD

RANK = """
import json, os, sys
variables, arguments = map(json.loads, sys.argv[1:])
os.environ.update(variables)
import torch
from gemmetry.sweeps.workload import _end, main
torch.set_num_threads(1)
_end(main(arguments))
"""
"""What torchrun runs in each process."""


class ForkedRanks:
    """Runs the two ranks of a point in forks of a process that has imported torch already, where
    torchrun and its ranks would import it for each point. The job has ended when it is returned."""

    def __init__(self, forked, environment):
        self.forked = forked
        self.environment = environment

    def start(self, job):
        arguments = list(job.argv[job.argv.index(WORKLOAD) + 1 :])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])

        def rank(number):
            variables = {
                **job.environment, "RANK": str(number), "LOCAL_RANK": str(number),
                "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }  # fmt: skip
            given = map(json.dumps, (variables, arguments))
            return self.forked(RANK, *given, env=self.environment)

        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(rank, range(2)))
        job.log.write_text("".join(one.stdout + one.stderr for one in ended))
        self.status = max(one.returncode for one in ended)
        return self

    def wait(self, timeout_s):
        return self.status

    def end_gently(self, grace_s):
        pass

    def left_running(self):
        return ()

    def was_killed_for_memory(self):
        return False


TINY = ("--config", "tiny", "--override", "model.num_layers=1", "-o", "sweep")


def test_two_by_two_points_from_run_to_compare(cli, forked, rank_variables, monkeypatch):
    """torchrun starts the first point, which takes most of the time; then the sweep grows."""
    pytest.importorskip("torch")
    monkeypatch.setattr(plots, "sweep_plots", lambda points: {})  # They take seconds.
    cli("sweep", "run", "--threads", "256", "--channels", "1", *TINY, status=0)
    ranks = ForkedRanks(forked, rank_variables)
    monkeypatch.setattr(sweep_module, "start_here", ranks.start)
    ended = cli("sweep", "run", "--threads", "256,512", "--channels", "1,2", *TINY, status=0)
    assert "4 points in sweep; 1 from an earlier run kept" in ended.stderr.splitlines()
    for threads in (256, 512):
        for channels in (1, 2):
            _check_files(Path(f"sweep/{threads}thread/nccl_{channels}channels"))

    document = cli.json("sweep", "analyze", "sweep", "--only", "variance,timeline")
    points = document["points"]
    assert [(one["threads"], one["channels"]) for one in points] == [
        (256, 1), (256, 2), (512, 1), (512, 2)
    ]  # fmt: skip
    for one in points:
        assert (one["outcome"], one["world_size"], one["step_ms"]["n"]) == ("ok", 2, 2)
        assert {setting["verdict"] for setting in one["settings"]} == {"not applicable"}
        assert [rank["rank"] for rank in one["stragglers"]] == [0, 1]
    assert {(gemm["threads"], gemm["channels"], gemm["rank"]) for gemm in document["gemms"]} == {
        (threads, channels, rank) for threads in (256, 512) for channels in (1, 2)
        for rank in (0, 1)
    }  # fmt: skip
    assert document["best"]["verdict"] == "undecided", "no point was repeated"

    ended = cli("sweep", "compare", "sweep", "sweep", "-o", "sweep_comparison.html", status=0)
    assert "B holds the same runs as A: nothing can differ." in ended.stdout
    page = Path("sweep_comparison.html").read_text()
    assert "nothing can differ" in page
    assert "512 threads, 2 channels" in page


def _check_files(folder):
    """Of a point, whoever has started it."""
    point = json.loads((folder / "point.json").read_text())
    assert (point["world_size"], point["backend"], point["library"]) == (2, "gloo", "gloo")
    assert len(point["losses"]) == 4
    assert point["requested"][0] == {
        "name": "channels", "value": str(point["channels"]), "environment": {},
        "note": "gloo has no such setting, so that points differ in name only",
    }  # fmt: skip
    for rank in (0, 1):
        (trace,) = (folder / "torch_profiler" / f"rank{rank}").iterdir()
        assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
