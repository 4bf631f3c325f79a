"""The command lines of Nsight Compute."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gemmetry.counters.chips import check_metric
from gemmetry.counters.collecting.request import CollectFiles, CollectRequest
from gemmetry.counters.collecting.sets import metrics_of, set_of

NOT_NCCL = (
    "^([^n]|n(n|cn|ccn)*(cc[^nl]|c[^nc]|[^nc]))*(n(n|cn|ccn)*(c|cc)?)?$"
)  # fmt: skip
"""Matches names without ``nccl``, in which those of RCCL are included. Spelt out, as a regular
expression of ncu's may have no negative lookahead: a name is read letter by letter, and what has
been read of ``nccl`` is the state."""


@dataclass(frozen=True, slots=True)
class NcuPlan:
    """How ncu is started."""

    arguments: tuple[str, ...]
    """Those between ``ncu`` and the application."""
    missing_sections: tuple[str, ...] = ()
    """Sections that this version of ncu does not have."""


def plan_ncu(
    request: CollectRequest,
    files: CollectFiles,
    *,
    chip: str | None = None,
    sections: Collection[str] | None = None,
) -> NcuPlan:
    """The arguments that collect `request` into `files`.

    Args:
        chip: of the GPU, whose metrics are checked by name; None where it is not known.
        sections: those that this version of ncu has; None where that is not known.

    Raises:
        UnknownNameError: a set, or a metric of the chip, does not exist.
    """
    chosen = set_of(request.metric_set)
    for metric in request.metrics:
        if chip is not None:
            check_metric(chip, metric)
    wanted = dict.fromkeys((*chosen.sections, *request.sections))
    missing = tuple(one for one in wanted if sections is not None and one not in sections)
    metrics = tuple(dict.fromkeys((*metrics_of(chosen, chip), *request.metrics)))
    arguments = [
        "--target-processes",
        request.target_processes,
        *_kernels(request),
        *_ranges(request),
    ]
    if chosen.ncu_set:
        arguments += ["--set", chosen.ncu_set]
    for one in wanted:
        arguments += ["--section", one] if one not in missing else []
    if metrics:
        arguments += ["--metrics", ",".join(metrics)]
    arguments += [
        "--clock-control", request.clock_control,
        "--cache-control", request.cache_control,
        "--replay-mode", request.replay_mode,
        "--log-file", str(files.profiler_log),
        "-f", "-o", str(files.report.with_suffix("")),
    ]  # fmt: skip
    return NcuPlan(tuple(arguments), missing)


def export_arguments(files: CollectFiles) -> tuple[str, ...]:
    """The arguments that print the raw page of a report."""
    return ("--import", str(files.report), "--page", "raw", "--csv", "--print-units", "base")


def sections_in(listing: str) -> frozenset[str]:
    """The sections that ``ncu --list-sections`` prints: a word at the beginning of a line."""
    return frozenset(line.split()[0] for line in listing.splitlines() if line.strip())


def _kernels(request: CollectRequest) -> list[str]:
    found: list[str] = []
    if request.kernel is not None:
        # Users see demangled names; ncu compares function names, without templates, by default.
        found += ["--kernel-name-base", "demangled", "--kernel-name", f"regex:{request.kernel}"]
    elif not request.collectives:
        found += ["--kernel-name-base", "function", "--kernel-name", f"regex:{NOT_NCCL}"]
    if request.launch_skip:
        found += ["--launch-skip", str(request.launch_skip)]
    if request.launch_count is not None:
        found += ["--launch-count", str(request.launch_count)]
    if not request.from_start:
        found += ["--profile-from-start", "off"]
    return found


def _ranges(request: CollectRequest) -> list[str]:
    """A bare name matches ranges with a start and an end; those that are pushed and popped, as
    torch's are, need a slash."""
    if not request.nvtx and not request.records_ranges:
        return []
    found = ["--nvtx"]
    for one in request.nvtx:
        found += ["--nvtx-include", one]
        if not one.endswith(("/", "]")):
            found += ["--nvtx-include", f"{one}/"]
    return found
