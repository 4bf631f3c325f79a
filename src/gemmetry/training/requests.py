"""Options -> a request for a sweep, and the folder that it is for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypedDict, Unpack

from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.domain.settings import LOCAL, RunSettings
from gemmetry.engine.agents.starting import load_starter
from gemmetry.hardware.topology import gpu_count
from gemmetry.store.manifest import plan_differences
from gemmetry.store.places import DEFAULT_FOLDER
from gemmetry.training.axes import check_counts, make_axes
from gemmetry.training.config import DOCUMENT, load_config
from gemmetry.training.keys import config_keys
from gemmetry.training.launching import PointLaunch, RocprofLaunch
from gemmetry.training.manifest import MANIFEST, read_sweep_manifest
from gemmetry.training.planning import SweepRequest, sweep_identity
from gemmetry.training.rocprof_input import existing_input
from gemmetry.training.settings import PATHS, CommunicationLibrary, library_of

RANKS_ON_A_CPU = 2
"""By default: the fewest that communicate."""

_ORDERS = ("random", "given")


class SweepOptions(TypedDict, total=False):
    """The options of ``gemmetry sweep run``, by their names; none is required."""

    channels: Sequence[int]
    """Channels of NCCL or RCCL; by default the library's choice, like `threads`."""
    threads: Sequence[int]
    axes: Mapping[str, Sequence[object]]
    """Further axes with their values: variables of the environment, keys of the configuration,
    placeholders of `command`, or ``path``."""
    repeats: int
    """Runs of each point; by default 1."""
    order: str
    """``random`` (the default): shuffled anew for each repeat; ``given``: that of the axes."""
    seed: int
    """Of the random order; by default 0."""
    config: str | None
    """Configuration of the workload: a YAML file, ``document`` (the default) or ``tiny``."""
    overrides: Sequence[str]
    """``KEY=VALUE`` that replace those of the configuration."""
    nproc: int | None
    """Ranks per node; by default the number of GPUs, or 2 on a CPU."""
    path: str
    """How bytes move: ``kernel`` (the default), ``symmetric`` or ``copy_engine``."""
    command: str | Sequence[str] | None
    """Your own training command in place of the workload, like `launcher` and `ncu` as words, or as
    you would write it in a shell."""
    library: str | None
    """``nccl``, ``rccl`` or ``gloo``; by default the one that this machine's devices use."""
    nnodes: int
    rdzv_endpoint: str
    """``HOST:PORT`` at which torchrun's agents of several nodes meet."""
    launcher: str | Sequence[str]
    """What starts the command that follows it on every node."""
    rocprof: bool
    rocprof_input: Path | None
    stats: bool
    ncu: str | Sequence[str] | None
    """Arguments of Nsight Compute, under which each rank runs then."""
    timeout_s: float | None
    """A point that takes longer is ended; None: no limit."""
    executor: str
    """``local`` (the default), or what starts the agent on whose host the points run."""
    executor_options: Mapping[str, str]
    listen: str
    """The address at which the agent reaches this machine."""
    token_file: str
    agent_wait_s: float


def make_request(**options: Unpack[SweepOptions]) -> SweepRequest:
    """The request of these options.

    Raises:
        RequestError: a value is wrong, or two do not go together.
    """
    config, overrides = options.get("config"), tuple(options.get("overrides", ()))
    words = _words(options.get("command"), "--command")
    stats, source = options.get("stats", False), options.get("rocprof_input")
    wants_rocprof = options.get("rocprof", False) or source is not None
    order = options.get("order", _ORDERS[0])
    if words is not None and (config is not None or overrides):
        raise RequestError(
            "--config and --override are the workload's, and --command replaces it",
            hint="Leave them out, or write them into the command.",
        )
    if stats and not wants_rocprof:
        raise RequestError("--stats requires --rocprof", hint="Add --rocprof, or leave it out.")
    if order not in _ORDERS:
        raise RequestError(f"unknown order {order!r}", hint=f"Known: {', '.join(_ORDERS)}.")
    launch = PointLaunch(
        nproc=options.get("nproc")
        or (1 if words is not None else _default_ranks(config, overrides)),
        nnodes=options.get("nnodes", 1),
        rdzv_endpoint=options.get("rdzv_endpoint", ""),
        launcher=_words(options.get("launcher") or None, "--launcher") or (),
        config="" if words is not None else config or DOCUMENT,
        overrides=overrides,
        command=words,
        path=options.get("path", PATHS[0]),
        rocprof=RocprofLaunch(
            input=None if source is None else existing_input(source).absolute(), stats=stats
        )
        if wants_rocprof
        else None,
        ncu=_words(options.get("ncu"), "--ncu", may_be_empty=True),
    )
    keys = [key.name for key in config_keys() if key.is_used]
    return SweepRequest(
        launch=launch,
        threads=check_counts(options.get("threads", ()), "--threads"),
        channels=check_counts(options.get("channels", ()), "--channels"),
        axes=make_axes(options.get("axes", {}), command=words, keys=keys),
        repeats=options.get("repeats", 1),
        is_shuffled=order == _ORDERS[0],
        seed=options.get("seed", 0),
        library=_library(options.get("library")),
        timeout_s=options.get("timeout_s") or None,
        where=_where(options),
    )


def _where(options: SweepOptions) -> RunSettings:
    """What concerns agents.

    Raises:
        UnknownNameError: there is no such executor.
    """
    executor = options.get("executor", LOCAL)
    if executor != LOCAL:
        load_starter(executor)
    usual = RunSettings()
    return RunSettings(
        executor=executor,
        executor_options=dict(options.get("executor_options", {})),
        agents=int(executor != LOCAL),
        listen=options.get("listen", usual.listen),
        token_file=options.get("token_file", usual.token_file),
        agent_wait_s=options.get("agent_wait_s", usual.agent_wait_s),
    )


def sweep_folder(request: SweepRequest, output: Path | None, *, resume: bool, fresh: bool) -> Path:
    """The folder of the sweep: `output`; to `resume`, the latest one of the same kind if there is
    one; else a new one, named by the time.

    Raises:
        RequestError: the options contradict each other.
    """
    if resume and fresh:
        raise RequestError("--resume and --fresh exclude each other", hint="Leave one out.")
    if output is not None:
        return output
    if fresh:
        raise RequestError(
            "--fresh requires --output: without it every sweep has a new folder",
            hint="Give the folder whose sweep begins anew.",
        )
    new = DEFAULT_FOLDER / f"sweep_{datetime.now():%Y%m%d_%H%M%S}"
    return (_latest(request) if resume else None) or new


def _latest(request: SweepRequest) -> Path | None:
    """The latest sweep with these settings; None where there is none."""
    launch = request.launch
    backend = None
    if launch.command is None:
        backend = load_config(launch.config, launch.overrides).distributed.backend
    identity = sweep_identity(request, request.library or library_of(backend))
    for path in sorted(DEFAULT_FOLDER.glob(f"sweep_*/{MANIFEST}"), reverse=True):
        try:
            manifest = read_sweep_manifest(path.parent) or {}
        except EnvironmentFailure:
            continue
        if not plan_differences(manifest.get("identity", {}), identity):
            return path.parent
    return None


def _default_ranks(config: str | None, overrides: Sequence[str]) -> int:
    backend = load_config(config or DOCUMENT, overrides).distributed.backend
    return RANKS_ON_A_CPU if backend == "gloo" else max(1, gpu_count())


def _library(name: str | None) -> CommunicationLibrary | None:
    known = list(map(str, CommunicationLibrary))
    if name is not None and name not in known:
        raise RequestError(f"unknown library {name!r}", hint=f"Known: {', '.join(known)}.")
    return None if name is None else CommunicationLibrary(name)


def _words(
    given: str | Sequence[str] | None, option: str, *, may_be_empty: bool = False
) -> tuple[str, ...] | None:
    """The words of a command; None where it is not given."""
    if given is None:
        return None
    try:
        words = tuple(shlex.split(given) if isinstance(given, str) else given)
    except ValueError as error:
        raise RequestError(
            f"{option}: {error} in {given!r}", hint="Write it as you would in a shell."
        ) from None
    if not words and not may_be_empty:
        raise RequestError(f"{option} is empty", hint="Give a command.")
    return words
