"""Options of training sweeps: those of ``gemmetry sweep run``, of scripts, and of the workload."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.domain.options import option
from gemmetry.domain.settings import LOCAL, check_executor

_varies = partial(option, panel="What varies")
_trains = partial(option, panel="What trains")
_nodes = partial(option, panel="Several nodes")
_profiles = partial(option, panel="Further profilers")

AXIS_FORM = "Write --axis NAME=VALUE,VALUE, as in --axis NCCL_ALGO=Ring,Tree."

ORDERS = ("random", "given")
LIBRARIES = ("nccl", "rccl", "gloo")
PATHS = ("kernel", "symmetric", "copy_engine")
"""Paths of the bytes of collectives."""

DOCUMENT = "document"
"""The configuration of the sweep analysis document: every key has its default."""
CONFIGS = (DOCUMENT, "tiny")
"""Configurations that need no file."""

WORKLOAD = "gemmetry.sweeps.workload"
_OLD_WORKLOAD = "gemmetry.training.workload"
"""Workload's name in commands and folders of earlier versions."""


def parts_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Parts between commas."""
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def parse_counts(texts: list[str], option: str) -> tuple[int, ...]:
    """Numbers, separated by commas or given one by one.

    Raises:
        RequestError: a value is not a whole number, or no value is given.
    """
    parts = parts_of(texts)
    if not parts or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise RequestError(
            f"{option} takes whole numbers separated by commas, not {','.join(texts)!r}",
            hint=f"Write {option} 28,42,56,70.",
        )
    return tuple(map(int, parts))


def parse_axes(texts: list[str], option: str) -> dict[str, tuple[str, ...]]:
    """Axes of the form ``NAME=VALUE,VALUE``.

    Raises:
        RequestError: one is not of that form, or occurs twice.
    """
    axes: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name, parts = name.strip(), parts_of([values])
        if not name or not parts:
            raise RequestError(f"--axis {text}: not of the form NAME=VALUE,VALUE", hint=AXIS_FORM)
        if name in axes:
            raise RequestError(f"--axis: {name} is given twice", hint="Give each value once.")
        axes[name] = parts
    return axes


def parse_options(text: str, option: str) -> dict[str, str]:
    """``name=value,name=value``; none in an empty text."""
    from gemmetry.domain.specs.fields import read_options

    return read_options(text) if text else {}


def parse_words(text: str, option: str) -> tuple[str, ...]:
    """The words of a command, as a shell reads it.

    Raises:
        RequestError: a quotation has no end.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise RequestError(
            f"{option}: {error} in {text!r}", hint="Write it as you would in a shell."
        ) from None


def as_today(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command, with the workload's name of today."""
    return tuple(word.replace(_OLD_WORKLOAD, WORKLOAD) for word in words)


@dataclass(kw_only=True)
class SweepOptions:
    """Program and machines of a sweep. Commands are words, or texts as you would write them in a
    shell; whatever is not given is the choice of the library, or of this machine.

    Raises:
        RequestError: a value is wrong, or two do not go together.
    """

    channels: tuple[int, ...] = _varies(
        "Channels of NCCL or RCCL. Default: the library's choice.", "-c NUMBERS", parse=parse_counts
    )
    threads: tuple[int, ...] = _varies(
        "Threads per channel. Default: the library's choice.", "-t NUMBERS", parse=parse_counts
    )
    axes: dict[str, tuple[str, ...]] = _varies(
        "A further axis: an environment variable (NCCL_ALGO=Ring,Tree), a key of the "
        "configuration (distributed.bucket_cap_mb=16,32), a {placeholder} of --command, or path "
        "(kernel,copy_engine).",
        "--axis NAME=VALUES", parse=parse_axes,
    )  # fmt: skip
    repeats: int = _varies("Runs of each point. Default: 1.", min=1, default=1)
    order: str = _varies(
        "Order of the points: random (shuffled for each repeat) or given (as listed). Default: "
        "random.",
        "ORDER", complete=ORDERS, default=ORDERS[0],
    )  # fmt: skip
    seed: int = _varies("Seed of the random order. Default: 0.", default=0)
    config: str | None = _trains(
        "Configuration of the workload: a YAML file, or the preset document (the default) or tiny"
        " (for a CPU).",
        "-f FILE", complete=CONFIGS,
    )  # fmt: skip
    overrides: list[str] = _trains(
        "Replace a key of the configuration, for every point.", "--override KEY=VALUE"
    )
    nproc: int | None = _trains(
        "Ranks per node. Default: the number of GPUs, or 2 on a CPU.", "-p", min=1
    )
    path: str = _trains(
        "How bytes move: kernel, symmetric or copy_engine. Default: kernel.",
        "PATH", complete=PATHS, default=PATHS[0],
    )  # fmt: skip
    command: tuple[str, ...] | None = _trains(
        "Your own training command in place of the workload, such as 'torchrun --nproc-per-node 8"
        " train.py'. It writes its traces to $GEMMETRY_TRACE_DIR.",
        "COMMAND", parse=parse_words,
    )  # fmt: skip
    library: str | None = _trains(
        "The library whose variables are set: nccl, rccl or gloo. Default: the one that this "
        "machine's devices use.",
        "LIBRARY", complete=LIBRARIES,
    )  # fmt: skip
    nnodes: int = _nodes("Number of nodes. Default: 1.", min=1, default=1)
    rdzv_endpoint: str = _nodes(
        "Where the agents of torchrun on all nodes meet.", "HOST:PORT", default=""
    )
    launcher: tuple[str, ...] = _nodes(
        "A command that starts what follows it on every node, such as 'srun --ntasks-per-node=1'.",
        "COMMAND", parse=parse_words,
    )  # fmt: skip
    executor: str = _nodes(
        "Where the points run: local (this machine), or ray (a node of a Ray cluster).",
        "NAME", default=LOCAL,
    )  # fmt: skip
    executor_options: dict[str, str] = _nodes(
        "Options of the executor ray: address, num_gpus, num_cpus, resources, retries.",
        "NAME=VALUE", parse=parse_options,
    )  # fmt: skip
    shard: str = _nodes("Run one of N parts of the points, as in 1/2 and 2/2.", "K/N", default="")
    rocprof: bool = _profiles("Run each point under rocprofv3.", "-r")
    rocprof_input: Path | None = _profiles(
        "Its input file: kernels, counters. Implies --rocprof.", "FILE"
    )
    stats: bool = _profiles("Let rocprofv3 write statistics of its times.", "-m")
    ncu: tuple[str, ...] | None = _profiles(
        "Run each rank under Nsight Compute with these arguments; no traces are recorded.",
        "ARGUMENTS", parse=parse_words,
    )  # fmt: skip
    output: Path | None = option(
        "Folder of the sweep. Default: gemmetry-out/sweep_<date>_<time>.",
        "--output -o --output-dir DIR",
    )  # fmt: skip
    resume: bool = option(
        "Continue the sweep in --output, or the latest one if there is one.",
        "--resume -s --skip-existing",
    )  # fmt: skip
    fresh: bool = option("Begin anew in --output; what is there is moved aside.")
    timeout_s: float | None = option(
        "End a point that takes longer. Default: no limit.", "--timeout SECONDS", min=0
    )

    def __post_init__(self) -> None:
        for name in ("command", "launcher", "ncu"):
            if isinstance(given := getattr(self, name), str):
                setattr(self, name, parse_words(given, f"--{name}"))
            elif given is not None:
                setattr(self, name, tuple(given))
        if self.command is not None:
            self.command = as_today(self.command)
        for name in ("threads", "channels"):
            setattr(self, name, check_counts(getattr(self, name), f"--{name}"))
        self.output = None if self.output is None else Path(self.output)
        self.rocprof = self.rocprof or self.rocprof_input is not None
        self.timeout_s = self.timeout_s or None
        if self.command == ():
            raise RequestError("--command is empty", hint="Give a command.")
        if self.command is not None and (self.config or self.overrides):
            raise RequestError(
                "--config and --override are the workload's, and --command replaces it",
                hint="Leave them out, or write them into the command.",
            )
        if self.command is None:
            self.config = self.config or DOCUMENT
        if self.stats and not self.rocprof:
            raise RequestError("--stats requires --rocprof", hint="Add --rocprof, or leave it out.")
        for name, known in (("order", ORDERS), ("library", LIBRARIES)):
            if (given := getattr(self, name)) not in (None, *known):
                raise RequestError(f"unknown {name} {given!r}", hint=f"Known: {', '.join(known)}.")
        check_executor(self.executor)
        if self.resume and self.fresh:
            raise RequestError("--resume and --fresh exclude each other", hint="Leave one out.")
        if self.fresh and self.output is None:
            raise RequestError(
                "--fresh requires --output: without it every sweep has a new folder",
                hint="Give the folder whose sweep begins anew.",
            )


def check_counts(values: Sequence[int], option: str) -> tuple[int, ...]:
    """The values of an axis of numbers.

    Raises:
        RequestError: a value is not positive, or occurs twice.
    """
    for value in values:
        if value < 1:
            raise RequestError(
                f"{option}: {value} is not a positive whole number", hint=f"Write {option} 256,512."
            )
    check_once(values, option)
    return tuple(values)


def check_once(values: Sequence[object], option: str) -> None:
    """Check that no value occurs twice.

    Raises:
        RequestError: one does.
    """
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise RequestError(f"{option}: {twice} is given twice", hint="Give each value once.")
