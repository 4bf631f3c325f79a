"""Texts of a command line -> a request for a sweep, and the folder that it is for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.hardware.topology import gpu_count
from gemmetry.store.manifest import plan_differences
from gemmetry.store.places import DEFAULT_FOLDER
from gemmetry.training.axes import parse_axes, parse_counts
from gemmetry.training.config import DOCUMENT, load_config
from gemmetry.training.keys import config_keys
from gemmetry.training.launching import PointLaunch, RocprofLaunch
from gemmetry.training.manifest import MANIFEST, read_sweep_manifest
from gemmetry.training.planning import SweepRequest, sweep_identity
from gemmetry.training.settings import CommunicationLibrary, library_of

RANKS_ON_A_CPU = 2
"""By default: the fewest that communicate."""

_ORDERS = ("random", "given")


def make_request(
    *,
    channels: Sequence[str] = (),
    threads: Sequence[str] = (),
    axes: Sequence[str] = (),
    repeats: int = 1,
    order: str = "random",
    seed: int = 0,
    config: str | None = None,
    overrides: Sequence[str] = (),
    nproc: int | None = None,
    path: str = "kernel",
    command: str | None = None,
    library: str | None = None,
    nnodes: int = 1,
    rdzv_endpoint: str = "",
    launcher: str = "",
    rocprof: bool = False,
    rocprof_input: Path | None = None,
    stats: bool = False,
    ncu: str | None = None,
    timeout_s: float | None = None,
) -> SweepRequest:
    """The request of the options of ``gemmetry sweep run``, by their names.

    Raises:
        RequestError: a value is wrong, or two do not go together.
    """
    words = None if command is None else _words(command, "--command")
    if words is not None and (config is not None or overrides):
        raise RequestError(
            "--config and --override are the workload's, and --command replaces it",
            hint="Leave them out, or write them into the command.",
        )
    if stats and not (rocprof or rocprof_input):
        raise RequestError("--stats requires --rocprof", hint="Add --rocprof, or leave it out.")
    if order not in _ORDERS:
        raise RequestError(f"unknown order {order!r}", hint=f"Known: {', '.join(_ORDERS)}.")
    wants_rocprof = rocprof or rocprof_input is not None
    source = None if rocprof_input is None else rocprof_input.absolute()
    launch = PointLaunch(
        nproc=nproc or (1 if words is not None else _default_ranks(config, overrides)),
        nnodes=nnodes,
        rdzv_endpoint=rdzv_endpoint,
        launcher=_words(launcher, "--launcher") if launcher else (),
        config="" if words is not None else config or DOCUMENT,
        overrides=tuple(overrides),
        command=words,
        path=path,
        rocprof=RocprofLaunch(input=source, stats=stats) if wants_rocprof else None,
        ncu=None if ncu is None else (_words(ncu, "--ncu") if ncu.strip() else ()),
    )
    keys = [key.name for key in config_keys() if key.is_used]
    return SweepRequest(
        launch=launch,
        threads=parse_counts(threads, "--threads"),
        channels=parse_counts(channels, "--channels"),
        axes=parse_axes(axes, command=words, keys=keys),
        repeats=repeats,
        is_shuffled=order == "random",
        seed=seed,
        library=_library(library),
        timeout_s=timeout_s or None,
    )


def sweep_folder(request: SweepRequest, output: Path | None, *, resume: bool, fresh: bool) -> Path:
    """The folder of the sweep: `output`; to `resume`, the latest one of the same kind; else a new
    one, named by the time.

    Raises:
        RequestError: there is nothing to resume, or the options contradict each other.
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
    if resume:
        return _latest(request)
    return DEFAULT_FOLDER / f"sweep_{datetime.now():%Y%m%d_%H%M%S}"


def _latest(request: SweepRequest) -> Path:
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
    raise RequestError(
        f"no sweep with these settings in {DEFAULT_FOLDER}",
        hint="Give its folder with --output, or leave out --resume to begin one.",
    )


def _default_ranks(config: str | None, overrides: Sequence[str]) -> int:
    backend = load_config(config or DOCUMENT, overrides).distributed.backend
    return RANKS_ON_A_CPU if backend == "gloo" else max(1, gpu_count())


def _library(name: str | None) -> CommunicationLibrary | None:
    known = list(map(str, CommunicationLibrary))
    if name is not None and name not in known:
        raise RequestError(f"unknown library {name!r}", hint=f"Known: {', '.join(known)}.")
    return None if name is None else CommunicationLibrary(name)


def _words(text: str, option: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise RequestError(
            f"{option}: {error} in {text!r}", hint="Write it as you would in a shell."
        ) from None
    if not words:
        raise RequestError(f"{option} is empty", hint="Give a command.")
    return words
