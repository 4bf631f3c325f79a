"""The command line that does one dispatch again."""

from __future__ import annotations

import shlex

from gemmetry.domain.settings import RunSettings
from gemmetry.store.rows import Lane


def reproduction_command(lane: Lane, dispatch: str, settings: RunSettings) -> str:
    """A ``gemmetry profile`` command for the dispatch called `dispatch` of `lane`, with the seed
    and distribution that it ran with."""
    words = ["gemmetry", "profile", "--providers", lane.provider]
    kernels = lane.options.get("kernel") or []
    if kernels:
        words += ["--kernel", kernels if isinstance(kernels, str) else ",".join(kernels)]
    words += ["--dispatches", dispatch, "--device", lane.target.device or lane.target.name]
    words += ["--seed", str(settings.seed), "--distribution", settings.distribution, "--fresh"]
    return shlex.join(words)
