"""The options of ``gemmetry sweep run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.completion import option

_AXES = "What varies"
_TRAINING = "What trains"
_NODES = "Several nodes"
_PROFILERS = "Further profilers"


Channels = Annotated[
    list[str] | None,
    option(
        "--channels",
        "-c",
        panel=_AXES,
        metavar="NUMBERS",
        help="Channels of NCCL or RCCL. Default: the library's choice.",
    ),
]
Threads = Annotated[
    list[str] | None,
    option(
        "--threads",
        "-t",
        panel=_AXES,
        metavar="NUMBERS",
        help="Threads per channel. Default: the library's choice.",
    ),
]
Axis = Annotated[
    list[str] | None,
    option(
        "--axis",
        panel=_AXES,
        metavar="NAME=VALUES",
        help="A further axis: an environment variable (NCCL_ALGO=Ring,Tree), a key of the "
        "configuration (distributed.bucket_cap_mb=16,32), a {placeholder} of --command, or "
        "path (kernel,copy_engine).",
    ),
]
Repeats = Annotated[
    int,
    option(
        "--repeats",
        panel=_AXES,
        min=1,
        help="Runs of each point. Default: 1.",
        show_default=False,
    ),
]
Order = Annotated[
    str,
    option(
        "--order",
        panel=_AXES,
        metavar="ORDER",
        choices=("random", "given"),
        help="Order of the points: random (shuffled for each repeat) or given (as listed). "
        "Default: random.",
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    option("--seed", panel=_AXES, help="Seed of the random order. Default: 0.", show_default=False),
]
Config = Annotated[
    str | None,
    option(
        "--config",
        "-f",
        panel=_TRAINING,
        metavar="FILE",
        choices=("document", "tiny"),
        help="Configuration of the workload: a YAML file, or the preset document (the "
        "default) or tiny (for a CPU).",
    ),
]
Override = Annotated[
    list[str] | None,
    option(
        "--override",
        panel=_TRAINING,
        metavar="KEY=VALUE",
        help="Replace a key of the configuration, for every point.",
    ),
]
Nproc = Annotated[
    int | None,
    option(
        "--nproc",
        "-p",
        panel=_TRAINING,
        min=1,
        help="Ranks per node. Default: the number of GPUs, or 2 on a CPU.",
    ),
]
BytePath = Annotated[
    str,
    option(
        "--path",
        panel=_TRAINING,
        metavar="PATH",
        choices=("kernel", "symmetric", "copy_engine"),
        help="How bytes move: kernel, symmetric or copy_engine. Default: kernel.",
        show_default=False,
    ),
]
Command = Annotated[
    str | None,
    option(
        "--command",
        panel=_TRAINING,
        metavar="COMMAND",
        help="Your own training command in place of the workload, such as "
        "'torchrun --nproc-per-node 8 train.py'. It writes its traces to "
        "$GEMMETRY_TRACE_DIR.",
    ),
]
Library = Annotated[
    str | None,
    option(
        "--library",
        panel=_TRAINING,
        metavar="LIBRARY",
        choices=("nccl", "rccl", "gloo"),
        help="The library whose variables are set: nccl, rccl or gloo. Default: the one that "
        "this machine's devices use.",
    ),
]
Nnodes = Annotated[
    int,
    option(
        "--nnodes", panel=_NODES, min=1, help="Number of nodes. Default: 1.", show_default=False
    ),
]
RdzvEndpoint = Annotated[
    str,
    option(
        "--rdzv-endpoint",
        panel=_NODES,
        metavar="HOST:PORT",
        help="Where the agents of torchrun on all nodes meet.",
        show_default=False,
    ),
]
Launcher = Annotated[
    str,
    option(
        "--launcher",
        panel=_NODES,
        metavar="COMMAND",
        help="A command that starts what follows it on every node, such as "
        "'srun --ntasks-per-node=1'.",
        show_default=False,
    ),
]
Executor = Annotated[
    str,
    option(
        "--executor",
        panel=_NODES,
        metavar="NAME",
        help="Where the points run: local, or on the host of an agent that loopback, ssh, slurm or "
        "ray starts, or you (agents).",
    ),
]
ExecutorOptions = Annotated[
    str,
    option(
        "--executor-options",
        panel=_NODES,
        metavar="NAME=VALUE",
        help="Options of the executor, as in hosts=a or partition=gpu,gres=gpu:8.",
        show_default=False,
    ),
]
Listen = Annotated[
    str,
    option(
        "--listen",
        panel=_NODES,
        metavar="HOST",
        help="Address at which the agent reaches this machine, HOST or HOST:PORT.",
    ),
]
TokenFile = Annotated[
    str,
    option(
        "--token-file",
        panel=_NODES,
        metavar="FILE",
        help="File with the token that the agent shares. Default: a new one in the sweep.",
        show_default=False,
    ),
]
AgentWait = Annotated[
    str,
    option(
        "--agent-wait",
        panel=_NODES,
        metavar="TIME",
        help="End the sweep when no agent has been connected for this long.",
    ),
]
Rocprof = Annotated[
    bool, option("--rocprof", "-r", panel=_PROFILERS, help="Run each point under rocprofv3.")
]
RocprofInput = Annotated[
    Path | None,
    option(
        "--rocprof-input",
        panel=_PROFILERS,
        metavar="FILE",
        help="Its input file: kernels, counters. Implies --rocprof.",
    ),
]
Stats = Annotated[
    bool,
    option("--stats", "-m", panel=_PROFILERS, help="Let rocprofv3 write statistics of its times."),
]
Ncu = Annotated[
    str | None,
    option(
        "--ncu",
        panel=_PROFILERS,
        metavar="ARGUMENTS",
        help="Run each rank under Nsight Compute with these arguments; no traces are recorded.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        "--output-dir",
        metavar="DIR",
        help="Folder of the sweep. Default: gemmetry-out/sweep_<date>_<time>.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        "-s",
        "--skip-existing",
        help="Continue the sweep in --output, or the latest one if there is one.",
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Begin anew in --output; what is there is moved aside.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        help="End a point that takes longer. Default: no limit.",
    ),
]
NoAggregate = Annotated[bool, typer.Option("--no-aggregate", "-n", hidden=True)]
