"""The command line that repeats one dispatch."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gemmetry.domain.errors import NameSyntaxError, Stage
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.operation import operation_name
from gemmetry.domain.settings import Effect, Form, Key, RunSettings, TraceSchedule
from gemmetry.domain.specs.keys import SETTINGS
from gemmetry.engine.store.rows import Lane

_DEFAULTS = RunSettings()

_PLACES = {form: place for place, form in enumerate(Form)}
"""The order of a command's options."""


def reproduction_command(
    lane: Lane, dispatch: str, settings: RunSettings, *, verify_only: bool = False
) -> str:
    """A ``gemmetry profile`` command for the dispatch called `dispatch` of `lane`, with the seed,
    the distribution and every other setting that differs from its default and can change the
    outcome. It is ``gemmetry verify run`` if only verification is requested or `verify_only` shows
    that verification decided, and ``gemmetry trace record`` if traces were requested. Of several
    kernels of a user's own it names the one that the dispatch belongs to, if the name shows
    that."""
    lane, dispatch = _with_its_kernel(lane, dispatch)
    schedule = None if verify_only else settings.trace
    verify_only = verify_only or (settings.verify and not settings.measure and schedule is None)
    if verify_only or schedule is not None:
        deadlines = {**settings.deadlines_s, Stage.MEASURE: _DEFAULTS.deadlines_s[Stage.MEASURE]}
        silent = {key.setting: getattr(_DEFAULTS, key.setting) for key in SETTINGS
                  if key.effect is Effect.TIMING}  # fmt: skip
        settings = replace(settings, **silent, deadlines_s=deadlines)
    command = ["verify", "run"] if verify_only else ["profile"]
    if schedule is not None:
        command = ["trace", "record", *_schedule(schedule)]
    words = ["gemmetry", *command, *_provider(lane)]
    words += ["--dispatches", dispatch, "--device", lane.target.device or lane.target.name]
    words += ["--seed", str(settings.seed), "--distribution", settings.distribution]
    return shlex.join([*words, *_settings(settings), "--fresh"])


def _with_its_kernel(lane: Lane, dispatch: str) -> tuple[Lane, str]:
    """The lane with only the kernel of `dispatch`, and the name of the dispatch in it: with several
    kernels, the function's name precedes the configuration's."""
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


_ALWAYS_NAMED = ("seed", "distribution")


def _settings(settings: RunSettings) -> list[str]:
    """Options of the settings that can change an outcome and differ from their defaults."""
    words: list[str] = []
    for key in sorted(SETTINGS, key=lambda key: _PLACES[key.form]):
        value, usual = getattr(settings, key.setting), getattr(_DEFAULTS, key.setting)
        if value != usual and key.effect is not Effect.NOTHING and key.name not in _ALWAYS_NAMED:
            words += _option(key, value, usual)
    return words


def _option(key: Key, value: Any, usual: Any) -> list[str]:
    match key.form:
        case Form.FLAG:
            return [key.option if value else key.option.replace("--", "--no-", 1)]
        case Form.LIST:
            return [key.option, ",".join(value)]
        case Form.TEXT:
            return [key.option, f"{value!r}s" if key.metavar == "TIME" else str(value)]
        case Form.SPEC_ONLY if isinstance(value, Mapping):
            changed = {part: own for part, own in value.items() if own != usual[part]}
            return [word for part, own in changed.items()
                    for word in ("--set", f"{key.name}.{part}={own!r}")]  # fmt: skip
        case Form.SPEC_ONLY:
            return ["--set", f"{key.name}={json.dumps(value)}"]
