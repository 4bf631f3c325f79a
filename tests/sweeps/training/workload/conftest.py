"""Runs the workload in ranks that are forked, several runs in each, so that torch and its compiler
are imported once."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

_PROGRAM = """
import contextlib, json, os, sys, tempfile, torch
import torch.distributed as dist
from gemmetry.sweeps.workload import main
torch.set_num_threads(1)  # As torchrun sets it.
exec(sys.argv[2])
ended = []
for port, arguments in json.loads(sys.argv[1]):
    os.environ["MASTER_PORT"] = port
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(arguments)
        ended.append([status, *(file.seek(0) or file.read() for file in (out, err))])
    if dist.is_initialized():
        dist.destroy_process_group()
print("ENDED", json.dumps(ended), sep="")
"""


@dataclass
class Trained:
    folder: Path
    status: list[int]
    """Exit status of each rank."""
    stdout: list[str]
    stderr: list[str]

    @property
    def losses(self) -> list[float]:
        return json.loads((self.folder / "losses.json").read_text())["losses"]

    @property
    def facts(self) -> dict:
        return json.loads((self.folder / "facts_rank0.json").read_text())

    @property
    def files(self) -> list[str]:
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*.*"))


Train = Callable[..., dict[str, Trained]]


@pytest.fixture(scope="session")
def rank_variables() -> dict[str, str]:
    """The environment of ranks, as torchrun and the workload set it. Ranks `forked` with it
    are copies of one process, which has imported what the profiler requires."""
    return os.environ | {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}


@pytest.fixture(scope="session")
def train(forked, rank_variables) -> Train:
    """Train on the CPU with each of these lists of arguments, into a folder of its name, with the
    preset tiny unless the arguments have another one. Each rank runs `before` first."""

    def run(
        folder: Path, runs: Mapping[str, Sequence[str]], *, ranks: int = 2, before: str = ""
    ) -> dict[str, Trained]:
        each = [
            [port, ["--config", "tiny", "--output", str(folder / name), *arguments]]
            for port, (name, arguments) in zip(_ports(len(runs)), runs.items(), strict=True)
        ]

        def rank(number: int) -> list[list]:
            env = rank_variables
            if ranks > 1:
                env = env | {
                    "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(ranks),
                    "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                }  # fmt: skip
            process = forked(_PROGRAM, json.dumps(each), before, env=env)
            assert process.returncode == 0, process.stderr
            return json.loads(process.stdout.rpartition("ENDED")[2])

        with ThreadPoolExecutor(ranks) as pool:
            ended = list(pool.map(rank, range(ranks)))
        return {
            name: Trained(folder / name, *(list(of) for of in zip(*of_ranks, strict=True)))
            for name, of_ranks in zip(runs, zip(*ended, strict=True), strict=True)
        }

    return run


def _ports(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]
