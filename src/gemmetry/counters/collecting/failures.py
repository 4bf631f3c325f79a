"""Why a profiler collected nothing.

What counts is the exit status, the files that exist, and what this machine allows. Wording of the
profiler is used in addition, as it changes from version to version; without it the message is more
general, and still names the log.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemmetry.counters.collecting.request import CollectFiles, CollectRequest
from gemmetry.domain.errors import (
    EnvironmentFailure,
    GemmetryError,
    ProfiledCommandError,
    RequestError,
    StorageError,
)
from gemmetry.formats.run_log import crash_in, last_line, log_tail
from gemmetry.hardware.profilers import (
    PERMISSION_HINT,
    Profiler,
    can_use_kfd,
    is_restricted,
    running_profilers,
    too_old,
)

_LEAST_FREE_BYTES = 2**20
_MOST_NAMES = 5

_NO_PERMISSION = re.compile(r"ERR_NVGPUCTRPERM|permission to access .*counters", re.IGNORECASE)
_IS_BUSY = re.compile(r"resource (?:was|is) unavailable|\bDCGM\b", re.IGNORECASE)
_NO_KERNEL = re.compile(r"no (?:kernels|ranges|graphs) were profiled", re.IGNORECASE)
_BAD_REGEX = re.compile(r"invalid (?:regex|regular expression)|regex_error", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"not supported|unsupported (?:device|gpu|driver)", re.IGNORECASE)
_NO_SPACE = re.compile(r"no space left|disk (?:is )?full", re.IGNORECASE)
_APPLICATION = re.compile(r"application returned an error code|terminated with", re.IGNORECASE)
_MARKED = re.compile(r"^==\w+==.*", re.MULTILINE)
_ERROR_LINE = re.compile(r"^==ERROR==\s*(.+)", re.MULTILINE)
_LISTED = re.compile(r"^\s*(?:==\w+==)?\s*\d+[.)]\s+(\S.*?)\s*$", re.MULTILINE)
"""A kernel of the list that newer versions print when none matched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerEnd:
    """A profiler that has ended."""

    request: CollectRequest
    files: CollectFiles
    profiler: Profiler
    architecture: str
    status: int
    has_result: bool
    """There is a report, with at least one launch where that is known."""
    root: Path = Path("/")

    @property
    def log(self) -> str:
        """What the profiler printed: in its own file, or marked among the application's output."""
        marked = _MARKED.findall(log_tail(self.files.application_log))
        return "\n".join((log_tail(self.files.profiler_log), *marked))


def failure_of(attempt: ProfilerEnd) -> GemmetryError | None:
    """Why the attempt failed; None if it did not."""
    if attempt.has_result and attempt.status == 0:
        return None
    return next(filter(None, _causes(attempt)))


def _causes(attempt: ProfilerEnd) -> Iterator[GemmetryError | None]:
    """Possible causes, from the certain to the general; the first that applies is the answer."""
    log = attempt.log
    yield _full(attempt, log)
    if not attempt.has_result:
        yield _permission(attempt, log)
        yield _busy(attempt, log)
        yield _version(attempt, log)
        if _BAD_REGEX.search(log):
            yield RequestError(
                f"{attempt.profiler.name} does not accept the regular expression "
                f"{attempt.request.kernel!r}", hint="Give a simpler one with --kernel.",
            )  # fmt: skip
    if attempt.status == 0 or (_NO_KERNEL.search(log) and not _has_crashed(attempt, log)):
        yield _nothing_matched(attempt)
    yield _failed(attempt, log)


def _has_crashed(attempt: ProfilerEnd, log: str) -> bool:
    """Whether the application failed, which then is why no kernel was profiled."""
    return bool(_APPLICATION.search(log) or crash_in(attempt.files.application_log))


def _full(attempt: ProfilerEnd, log: str) -> GemmetryError | None:
    folder = attempt.files.stem.parent
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE_BYTES or (not attempt.has_result and _NO_SPACE.search(log)):
        return StorageError(
            f"the disk of {folder} is full: {free / 2**20:.0f} MiB are free",
            hint="Free some disk space, or give another place with --output.",
        )
    return None


def _permission(attempt: ProfilerEnd, log: str) -> GemmetryError | None:
    if attempt.profiler.name != "ncu":
        if can_use_kfd(attempt.root) is not False:
            return None
        return EnvironmentFailure(
            "this user may not open /dev/kfd, AMD's device",
            hint="Add the user to the groups render and video.",
        )
    is_named = _NO_PERMISSION.search(log) is not None
    if not is_named and (attempt.status == 0 or is_restricted(attempt.root) is not True):
        return None
    return EnvironmentFailure(
        "this user may not read the hardware counters of the GPU (ERR_NVGPUCTRPERM)",
        hint=PERMISSION_HINT,
    )


def _busy(attempt: ProfilerEnd, log: str) -> GemmetryError | None:
    if not _IS_BUSY.search(log):
        return None
    running = running_profilers(attempt.root)
    who = f" by {', '.join(running)}" if running else ""
    return EnvironmentFailure(
        f"the hardware counters of the GPU are in use{who}",
        hint="Pause DCGM's profiling (dcgmi profiling --pause), or stop the other profiler. On the "
        "host of a container it may run unseen.",
    )


def _version(attempt: ProfilerEnd, log: str) -> GemmetryError | None:
    needed = too_old(attempt.profiler.version, attempt.architecture)
    if not needed and not (attempt.architecture and _UNSUPPORTED.search(log)):
        return None
    return EnvironmentFailure(
        f"Nsight Compute {attempt.profiler.version} cannot profile {attempt.architecture}",
        hint=f"Install Nsight Compute {needed or 'of a newer version'}"
        f"{' or newer' if needed else ''}, and a driver that supports it.",
    )


def _nothing_matched(attempt: ProfilerEnd) -> GemmetryError | None:
    if attempt.has_result:
        return None
    request = attempt.request
    filters = []
    if request.kernel is not None:
        filters.append(f"a name that matches {request.kernel!r}")
    if request.nvtx:
        filters.append(f"the NVTX range {', '.join(map(repr, request.nvtx))}")
    if request.launch_skip:
        filters.append(f"{request.launch_skip} launches of that kind before it")
    seen = list(dict.fromkeys(_LISTED.findall(log_tail(attempt.files.profiler_log))))
    hints = [f"Kernels that were launched: {', '.join(seen[:_MOST_NAMES])}."] if seen else []
    if request.nvtx:
        hints.append("A range that is pushed is written 'name/', one that is started 'name'.")
    if not filters:
        hints.append("Does the command run anything on the GPU? Kernels of collectives are left "
                     "out unless --collectives is given.")  # fmt: skip
    if not seen and filters:
        hints.append("Leave out the filter, with --launch-count 20, to see the names.")
    return RequestError(
        f"no kernel was profiled: no launch had {' and '.join(filters)}" if filters
        else "no kernel was profiled",
        hint=" ".join(hints),
    )  # fmt: skip


def _failed(attempt: ProfilerEnd, log: str) -> GemmetryError:
    """The command or the profiler ended without success, for a reason that only the logs have."""
    errors = [one for one in _ERROR_LINE.findall(log) if not _APPLICATION.search(one)]
    output = attempt.files.application_log
    last = crash_in(output) or last_line(output)
    own = errors[-1].strip() if errors and not attempt.has_result else ""
    what = attempt.profiler.name if own else "the command"
    why = own or last
    text = f"{what} ended with status {attempt.status}{f': {why}' if why else ''}"
    logs = [path for path in (attempt.files.application_log, attempt.files.profiler_log)
            if path.exists()]  # fmt: skip
    hint = f"See {' and '.join(map(str, logs))}." if logs else ""
    return EnvironmentFailure(text, hint=hint) if own else ProfiledCommandError(text, hint=hint)
