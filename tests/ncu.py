"""A stand-in for Nsight Compute: takes its options, runs the application, and writes a report.

The environment variable ``FAKE_NCU`` makes it fail in the ways that ncu does: ``permission``,
``busy``, ``nothing``, ``error``, ``no_export``, ``old`` (which has fewer sections). Texts are
those of version 2025.3.1, unless ``FAKE_NCU_WORDING`` is ``other``. ``FAKE_NCU_CALLS`` names a file
to which each start adds a line with its first argument.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

VERSION = "2025.3.1.0"
SECTIONS = (
    "ComputeWorkloadAnalysis", "InstructionStats", "LaunchStats", "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables", "Occupancy", "SchedulerStats", "SourceCounters",
    "SpeedOfLight", "SpeedOfLight_HierarchicalTensorRooflineChart", "WarpStateStats",
    "WorkloadDistribution",
)  # fmt: skip

_VALUED = (
    "--target-processes", "--kernel-name-base", "--kernel-name", "--launch-skip", "--launch-count",
    "--nvtx-include", "--set", "--section", "--metrics", "--clock-control", "--cache-control",
    "--replay-mode", "--log-file", "-o", "--profile-from-start",
)  # fmt: skip
_FLAGS = ("--nvtx", "-f")

TEXTS = {
    "permission": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA "
    "GPU Performance Counters on the target device 0.",
    "busy": "==ERROR== Driver resource was unavailable. Ensure that no other tool (like DCGM) is "
    "concurrently collecting profiling data.",
    "nothing": "==WARNING== No kernels were profiled.\nAvailable Kernels:\n"
    "1. elementwise_kernel\n2. cutlass_80_tensorop_gemm",
    "error": "==ERROR== An error occurred while trying to profile.",
}


def install(folder: Path) -> Path:
    """Write a program ``ncu`` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "ncu"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{__file__}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
COUNTED = "gemmetry: counted "
"""What the program prints after each dispatch that it launches in a range."""


def raw_page(launches: int = 2, ranges: list[str] | None = None) -> str:
    """A raw page with the duration and the passes of some launches, each in one of the ranges."""
    named = [
        f'7 ""<default domain>:{name}:none:none:none:none:none:none"" ' for name in ranges or ()
    ]
    launches = launches if ranges is None else len(ranges)
    header = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
              "Block Size", "Grid Size", "Device", "CC", "gpu__time_duration.sum",
              "profiler__replayer_passes"]  # fmt: skip
    rows = [header, [""] * 11 + ["ns", "pass"]]
    rows += [
        [str(n), "7", "python", "host", "gemm_kernel", "1", "7", "(128, 1, 1)", "(64, 1, 1)", "0",
         "9.0", str(1000 + n), "38"]
        for n in range(launches)
    ]  # fmt: skip
    if ranges is not None:
        rows = [[*row, cell] for row, cell in zip(rows, [RANGES, "", *named], strict=True)]
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


def main(words: list[str]) -> int:
    """Do what ncu's command line states, as far as this project uses it."""
    mode = os.environ.get("FAKE_NCU", "")
    if calls := os.environ.get("FAKE_NCU_CALLS"):
        with Path(calls).open("a") as file:
            file.write(f"{words[0]}\n")
    if words == ["--version"]:
        print("NVIDIA (R) Nsight Compute Command Line Profiler")
        print("Copyright (c) 2018-2025 NVIDIA Corporation")
        print(f"Version {'2021.3.0.0' if mode == 'old' else VERSION} (build 1) (public-release)")
        return 0
    if words == ["--list-sections"]:
        print("Identifier          Display Name      Enabled Filename")
        for name in SECTIONS[: 9 if mode == "old" else None]:
            print(f"{name}   A Display Name   no   .../{name}.section")
        return 0
    if words[0] == "--import" and mode == "no_export":
        print("==ERROR== Failed to load the report")
        return 1
    if words[0] == "--import":
        print(Path(words[1]).read_text(), end="")
        return 0
    options: dict[str, str] = {}
    flags: set[str] = set()
    while words and words[0].startswith("-"):
        name = words.pop(0)
        if name in _FLAGS:
            flags.add(name)
        else:
            assert name in _VALUED, name
            options[name] = words.pop(0)
    log = Path(options["--log-file"])
    has_ranges = "--nvtx" in flags
    done = subprocess.run(words, check=False, text=True,
                          stdout=subprocess.PIPE if has_ranges else None)  # fmt: skip
    status, ranges = done.returncode, None
    if has_ranges:
        print(done.stdout, end="", flush=True)
        ranges = [f"gemmetry_dispatch_{line.removeprefix(COUNTED)}"
                  for line in done.stdout.splitlines() if line.startswith(COUNTED)]  # fmt: skip
    wording = os.environ.get("FAKE_NCU_WORDING") != "other"
    if mode in TEXTS:
        log.write_text(TEXTS[mode] if wording else "something went differently\n")
        return 0 if mode == "nothing" else 1
    log.write_text(f"==PROF== Connected\n==PROF== Report: {options['-o']}.ncu-rep\n")
    # Of an application that crashes before its first kernel there is no report.
    if ranges or (ranges is None and 0 <= status < 128):
        Path(f"{options['-o']}.ncu-rep").write_text(raw_page(ranges=ranges))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
