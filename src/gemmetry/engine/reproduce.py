"""The command line that does one dispatch again."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

from gemmetry.domain.errors import NameSyntaxError
from gemmetry.domain.names import operation_name, split_dispatch_name
from gemmetry.domain.outcome import Stage
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.store.rows import Lane

_DEFAULTS = RunSettings()

_OPTIONS = {
    "verification_level": "--verification-level",
    "regime": "--regime",
    "timing_method": "--timing-method",
    "interval_width": "--interval-width",
    "warmup_iterations": "--warmup-iterations",
    "min_samples": "--min-samples",
    "max_samples": "--max-samples",
    "repetitions": "--benchmark-repetitions",
    "launches_per_sample": "--dispatch-repeat-count",
    "processes": "--processes",
    "memory_budget_bytes": "--memory-budget",
    "threads": "--threads",
}
"""Settings that an option gives as they are."""

_SECONDS = {
    "time_budget_s": "--time-budget",
    "warmup_s": "--warmup-time",
    "max_seconds_per_launch": "--max-seconds-per-launch",
}

_NOT_OF_VERIFICATION = (
    "measure", "judge_rivals", "regime", "interval_width", "time_budget_s", "warmup_iterations",
    "warmup_s", "min_samples", "max_samples", "repetitions", "launches_per_sample", "cold_cache",
    "timing_method", "processes",
)  # fmt: skip
"""Settings that change no verdict."""

_FLAGS = {
    "verify": "verification-enabled",
    "measure": "profiling-enabled",
    "cold_cache": "cold-cache",
}


def reproduction_command(
    lane: Lane, dispatch: str, settings: RunSettings, *, verify_only: bool = False
) -> str:
    """A ``gemmetry profile`` command for the dispatch called `dispatch` of `lane`, with the seed,
    the distribution and whatever else it ran with that is not the default and can change its
    outcome; ``gemmetry verify run`` where only verification is asked for or `verify_only` says
    that it decided, ``gemmetry trace record`` where traces were. Of several kernels of a user's own
    it names the one that the dispatch is of, where its name tells."""
    lane, dispatch = _with_its_kernel(lane, dispatch)
    schedule = None if verify_only else settings.trace
    verify_only = verify_only or (settings.verify and not settings.measure and schedule is None)
    if verify_only or schedule is not None:
        deadlines = {**settings.deadlines_s, Stage.MEASURE: _DEFAULTS.deadlines_s[Stage.MEASURE]}
        silent = {name: getattr(_DEFAULTS, name) for name in _NOT_OF_VERIFICATION}
        settings = replace(settings, **silent, deadlines_s=deadlines)
    command = ["verify", "run"] if verify_only else ["profile"]
    if schedule is not None:
        command = ["trace", "record", *_schedule(schedule)]
    words = ["gemmetry", *command, *_provider(lane)]
    words += ["--dispatches", dispatch, "--device", lane.target.device or lane.target.name]
    words += ["--seed", str(settings.seed), "--distribution", settings.distribution]
    return shlex.join([*words, *_settings(settings), "--fresh"])


def _with_its_kernel(lane: Lane, dispatch: str) -> tuple[Lane, str]:
    """The lane with the kernel of `dispatch` alone, and what the dispatch is called there: beside
    others the name of its function stands in front of the configuration's."""
    kernels = lane.options.get("kernel") or []
    if isinstance(kernels, str) or len(kernels) < 2:
        return lane, dispatch
    try:
        operation, configuration = split_dispatch_name(dispatch)
    except NameSyntaxError:
        return lane, dispatch
    prefixes = {text: f"{text.rpartition(':')[2]}_" for text in kernels}
    found = [text for text, prefix in prefixes.items() if configuration.startswith(prefix)]
    if len(found) != 1:
        return lane, dispatch
    alone = configuration.removeprefix(prefixes[found[0]])
    name = f"{operation_name(operation)}_{alone}"
    if split_dispatch_name(name) != (operation, alone):
        return lane, dispatch  # the operation would swallow the start of the configuration's name
    return replace(lane, options={**lane.options, "kernel": found}), name


def _schedule(schedule: TraceSchedule) -> list[str]:
    return [
        "--wait-steps", str(schedule.wait_steps),
        "--warmup-iterations", str(schedule.warmup_steps),
        "--active-steps", str(schedule.active_steps),
        "--benchmark-repetitions", str(schedule.repeats),
    ]  # fmt: skip


def _provider(lane: Lane) -> list[str]:
    options = {name: value for name, value in lane.options.items() if name != "kernel"}
    if options:
        # JSON is YAML, so that any options can be given this way.
        document = json.dumps([{"name": lane.provider, "options": options}])
        words = ["--set", f"providers={document}"]
    else:
        words = ["--providers", lane.provider]
    kernels = lane.options.get("kernel") or []
    if kernels:
        words += ["--kernel", kernels if isinstance(kernels, str) else ",".join(kernels)]
    return words


def _settings(settings: RunSettings) -> list[str]:
    words: list[str] = []
    for name, option in _OPTIONS.items():
        value = getattr(settings, name)
        if value != getattr(_DEFAULTS, name):
            words += [option, str(value)]
    for name, option in _SECONDS.items():
        value = getattr(settings, name)
        if value != getattr(_DEFAULTS, name):
            words += [option, f"{value!r}s"]
    for name, flag in _FLAGS.items():
        value = getattr(settings, name)
        if value != getattr(_DEFAULTS, name):
            words.append(f"--{flag}" if value else f"--no-{flag}")
    if settings.verification_providers != _DEFAULTS.verification_providers:
        words += ["--verification-providers", ",".join(settings.verification_providers)]
    if settings.sanitizers:
        words += ["--sanitizers", ",".join(settings.sanitizers)]
    if settings.judge_rivals:
        words += ["--set", "judge_rivals=true"]
    for stage, seconds in settings.deadlines_s.items():
        if seconds != _DEFAULTS.deadlines_s[stage]:
            words += ["--set", f"deadlines.{stage}={seconds!r}"]
    return words
