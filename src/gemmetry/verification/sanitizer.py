"""NVIDIA's compute-sanitizer: locates it, builds its command line and parses its output.

The tools instrument a launch and detect errors that no result shows: accesses outside an allocation
(memcheck), unordered accesses to shared memory (racecheck), misuse of barriers (synccheck), reads
of uninitialised global memory (initcheck). The manual, "Compute Sanitizer" at
docs.nvidia.com/compute-sanitizer, defines options and output.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmetry.verification.checks.results import (
    CheckResult,
    failed,
    not_applicable,
    passed,
    warned,
)

PROGRAM = "compute-sanitizer"

ERROR_EXIT_STATUS = 86
"""Exit status requested of the tool when it has findings; no other program here uses it."""

PRINTED_ERRORS = 20
"""Findings that the tool prints; it counts all of them."""

_PREFIX = "========="
_SUMMARY = re.compile(
    r"^=+ (?:ERROR|RACECHECK) SUMMARY: (?P<count>\d+) "
    r"(?:errors?|hazards? displayed(?: \((?P<errors>\d+) errors?, \d+ warnings?\))?)"
)
_REFUSED = re.compile(r"device not supported|not supported on this|InitializationError", re.I)
_NOT_A_FINDING = re.compile(r"^(COMPUTE-SANITIZER|Program hit |Target application returned|$)")
_DETAILS = ("at ", "and ", "by thread", "Address ", "Access at ")
_MAX_FINDING = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizedRun:
    """One launch under a tool, as it ended."""

    tool: str
    output: str
    """Standard output and error together."""
    status: int | None
    """Exit status; None: the launch was stopped because its time limit was reached."""
    launched: bool
    """Whether the program got as far as launching the dispatch."""
    seconds: float = 0.0
    """The time limit in seconds, where it was reached."""


def find_sanitizer(environment: Mapping[str, str]) -> Path | None:
    """The program on PATH, or in ``bin`` of CUDA_HOME or CUDA_PATH; None if it is not found."""
    found = shutil.which(PROGRAM, path=environment.get("PATH"))
    if found:
        return Path(found)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        root = environment.get(name)
        if root and (path := shutil.which(PROGRAM, path=str(Path(root) / "bin"))):
            return Path(path)
    return None


def sanitizer_command(program: Path, tool: str, command: Sequence[str]) -> list[str]:
    """`command` under `tool`. Failing calls of the CUDA API are not findings: libraries probe for
    features by calls that may fail."""
    return [
        str(program),
        "--tool", tool,
        "--error-exitcode", str(ERROR_EXIT_STATUS),
        "--print-limit", str(PRINTED_ERRORS),
        "--report-api-errors", "no",
        *command,
    ]  # fmt: skip


def sanitizer_result(run: SanitizedRun) -> CheckResult:
    """The tool's findings as the result of the check with its name.

    Only findings fail the check. If the tool could not do its work (unsupported device, time limit
    reached, launch failed for another reason), the check does not apply.
    """
    name = run.tool
    if run.status is None:
        return not_applicable(name, f"it did not end within {run.seconds:g} s")
    lines = [line.rstrip() for line in run.output.splitlines()]
    reported = [line for line in lines if line.startswith(_PREFIX)]
    refusal = next((line for line in reported if _REFUSED.search(line)), "")
    if refusal:
        return not_applicable(name, f"the tool failed: {_strip(refusal)}")
    summary = next((match for line in reported if (match := _SUMMARY.match(line))), None)
    if summary is None or not run.launched:
        return not_applicable(
            name, f"no launch under the tool: {_why(reported, lines, run.status)}"
        )
    count = int(summary["count"])
    if count == 0:
        if run.status not in (0, ERROR_EXIT_STATUS):
            return not_applicable(name, f"the launch failed: {_why([], lines, run.status)}")
        return passed(name)
    finding = f"{count} found, first: {_first_finding(reported)}"
    if summary["errors"] is not None and int(summary["errors"]) == 0:
        return warned(name, finding)
    return failed(name, finding)


def _first_finding(reported: Sequence[str]) -> str:
    """The first finding's headline and location, on one line."""
    parts: list[str] = []
    for line in reported:
        text = _strip(line)
        if _SUMMARY.match(line) or _NOT_A_FINDING.match(text):
            if parts:
                break
            continue
        if not parts or text.startswith(_DETAILS):
            parts.append(text)
        else:
            break
    return " ".join(parts)[:_MAX_FINDING] or "it printed no details"


def _why(reported: Sequence[str], lines: Sequence[str], status: int) -> str:
    """The most informative line of a run without a summary."""
    errors = [_strip(line) for line in reported if "Error" in line]
    if errors:
        return errors[0][:_MAX_FINDING]
    own = [line.strip() for line in lines if line.strip() and not line.startswith(_PREFIX)]
    return own[-1][:_MAX_FINDING] if own else f"the program ended with status {status}"


def _strip(line: str) -> str:
    return line.removeprefix(_PREFIX).strip()
