"""What a parent accepts as an answer: replies that arrive when they are due, with valid contents.

A worker runs other people's kernels in its own process. Some write to arbitrary descriptors, some
fork and return twice; what then arrives may decode and still be meaningless. A flawed reply counts
as a crash of the dispatch that was running.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import PurePath

from gemmetry.domain.outcome import Stage, Verification
from gemmetry.engine.jobs import Job
from gemmetry.engine.workers.protocol import (
    Closed,
    Entered,
    Frame,
    LeftBehind,
    Opened,
    Sampled,
    Trying,
    WireDispatch,
)
from gemmetry.measurement.energy import EnergyTaken
from gemmetry.measurement.rounds import Round
from gemmetry.verification import after_timing
from gemmetry.verification.protocol import missing_checks

ON_THE_WAY = (Entered, Trying, LeftBehind)
"""Messages before an answer."""

OPENING = (*ON_THE_WAY, Opened)
SAMPLING = (Sampled,)
CLOSING = (LeftBehind, Closed)
"""Messages that answer a request to close, apart from ``Answered``."""

OPENING_STAGES = (Stage.BUILD, Stage.VERIFY, Stage.MEASURE, Stage.TRACE)

MOST_ON_THE_WAY = 16
"""The most messages before an answer: three stages, one launch on trial, one for each sanitizer,
and the processes that are left running are fewer."""

MOST_LEFT = 20
"""The most names of processes of one dispatch that are kept."""

LONGEST_NS = 1e15
"""The longest sample: eleven days."""


def out_of_turn(reply: Frame) -> str:
    """Why a reply that answers no request is rejected."""
    return f"an unexpected reply ({type(reply).__name__})"


def flaw_of_entered(entered: Entered) -> str:
    """What is wrong with entering a stage while a dispatch is opened; "" if nothing is."""
    return "" if entered.stage in OPENING_STAGES else f"the unexpected stage {entered.stage}"


def flaw_of_opened(opened: Opened, wire: WireDispatch, job: Job) -> str:
    """What is wrong with the answer to a request to open `wire`; "" if nothing is."""
    settings = job.settings
    if opened.failure is not None or opened.skip_reason:
        return ""
    if not _are_sane([1e9 * opened.sample_s]):
        return "an invalid time of a sample"
    verdict = opened.verdict
    if settings.verify and wire.verify and verdict is None:
        return "a dispatch without the required verdict"
    if verdict is not None and not is_inside(verdict.evidence_path):
        return "evidence outside the experiment"
    if verdict is not None and verdict.status is Verification.FAILED:
        return ""
    if verdict is not None and (missing := missing_checks(verdict, settings.verification_level)):
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        return f"a verdict without a result of the check {missing[0]}{others}"
    return job.flaw_of_opened(opened, wire)


def flaw_of_sampled(sampled: Sampled) -> str:
    """What is wrong with the answer to a request for samples; "" if nothing is."""
    if (sampled.round is None) == (sampled.failure is None):
        return "samples and a failure at once, or neither"
    return "" if sampled.round is None else _flaw_of_round(sampled.round)


def flaw_of_closed(closed: Closed, job: Job) -> str:
    """What is wrong with the answer to a request to close; "" if nothing is."""
    if not is_inside(closed.evidence_path):
        return "evidence outside the experiment"
    if closed.energy is not None and not _is_sane_energy(closed.energy):
        return "an invalid energy"
    is_due = job.settings.verify and job.samples and closed.failure is None
    name = None if closed.check is None else closed.check.name
    if is_due and name != after_timing.NAME:
        return f"no result of the check {after_timing.NAME}"
    return ""


def _is_sane_energy(taken: EnergyTaken) -> bool:
    numbers = [taken.idle_power_w or 0.0]
    for window in taken.windows:
        numbers += [window.joules, window.seconds, window.launches, window.resolution]
    return _are_sane(numbers)


def _flaw_of_round(taken: Round) -> str:
    if not taken.samples_ns or not _are_sane(taken.samples_ns):
        return "invalid times of samples"
    others = (
        taken.first_launch_ns, taken.overhead_ns, taken.wall_launch_ns, taken.unsettled_change,
        taken.new_inputs_ratio, 1e9 * taken.seconds, 1e9 * taken.load_s,
        1e9 * taken.elapsed_s, 1e9 * taken.waited_s,
        1e9 * taken.renewal_s, 1e9 * taken.quiet_wait_s, 1e9 * taken.runs_on_s,
    )  # fmt: skip
    if not _are_sane(value for value in others if value is not None):
        return "invalid times of a round"
    counts = (taken.launches_per_sample, taken.input_sets)
    sizes = (taken.bytes_per_set, taken.last_level_cache_bytes)
    if min(counts) < 1 or min(sizes) < 0 or max(*counts, *sizes) > LONGEST_NS:
        return "invalid counts of a round"
    readings = (value for value in taken.telemetry.values() if isinstance(value, float))
    return "" if all(map(math.isfinite, readings)) else "telemetry that is not a number"


def _are_sane(values: Iterable[float]) -> bool:
    return all(0 <= value <= LONGEST_NS for value in values)


def is_inside(path: str | None) -> bool:
    """Whether `path`, relative to the experiment, is inside it."""
    if path is None:
        return True
    found = PurePath(path)
    return not found.is_absolute() and ".." not in found.parts and "\0" not in path
