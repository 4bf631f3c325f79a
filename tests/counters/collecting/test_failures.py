from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmetry.counters.tools import (
    CollectFiles,
    Collection,
    CollectRequest,
    ProfilerEnd,
    failure_of,
)
from gemmetry.domain.errors import (
    EnvironmentFailure,
    ProfiledCommandError,
    RequestError,
    StorageError,
)
from gemmetry.hardware.doctor import Profiler

KEY = "ended with status 1: KeyError: 'w'"
CRASHED = "Traceback (most recent call last):\nKeyError: 'w'\nbye"
RESTRICTED = {"driver/nvidia/params": "RmProfilingAdminOnly: 1\n",
              "self/status": "Name:\tpython\nCapEff:\t0000000000000000\n"}  # fmt: skip
CAPABLE = RESTRICTED | {"self/status": "Name:\tpython\nCapEff:\t0000000000200000\n"}
CASES = {
    # The driver shows a lack of permission whatever the wording; else the wording does.
    "restricted": ({"log": "etwas anderes", "proc": RESTRICTED}, EnvironmentFailure,
                   "ERR_NVGPUCTRPERM", "SYS_ADMIN"),
    "permission": ({"text": "permission"}, EnvironmentFailure, "ERR_NVGPUCTRPERM", ""),
    "capable": ({"output": "ValueError: bad shape", "proc": CAPABLE}, ProfiledCommandError,
                "the command ended with status 1: ValueError: bad shape", ""),
    "marked": ({"output": "==ERROR== ERR_NVGPUCTRPERM"}, EnvironmentFailure,
               "may not read the hardware counters", ""),
    "busy": ({"text": "busy", "proc": {"77/comm": "nv-hostengine\n"}}, EnvironmentFailure,
             "the hardware counters of the GPU are in use by nv-hostengine",
             "dcgmi profiling --pause"),
    "old": ({"log": "==ERROR== whatever", "version": "2021.3.0"}, EnvironmentFailure,
            "2021.3.0 cannot profile sm_90", "2022.3"),
    # Nothing matched: the names that were launched are listed.
    **{f"nothing {status}": (
        {"text": "nothing", "status": status, "kernel": "gemmm"}, RequestError, "'gemmm'",
        "elementwise_kernel, cutlass_80_tensorop_gemm.") for status in (0, 1)},
    "no range": ({"log": "rien", "status": 0, "nvtx": ("step",)}, RequestError,
                 "NVTX range 'step'", "'name/'"),
    "no kernel": ({"status": 0}, RequestError, "", "anything on the GPU"),
    # A failed application is not blamed on the profiler, nor is its output taken for its.
    "application": ({"log": "==ERROR== The application returned an error code (3).",
                     "output": "KeyError: 'w'", "status": 3}, ProfiledCommandError,
                    "the command ended with status 3: KeyError: 'w'", "counters.application.log"),
    "early crash": ({"text": "nothing", "output": CRASHED}, ProfiledCommandError, KEY, ""),
    **{output: ({"output": output}, ProfiledCommandError, f"ended with status 1: {output}", "")
       for output in ("DCGM is great", "fp4 is not supported", "No space left")},
    "its own": ({"text": "error", "output": "fine"}, EnvironmentFailure,
                "ncu ended with status 1: An error occurred", ""),
    "full": ({"status": 0, "free": 0}, StorageError, "is full", ""),
    "amd": ({"tool": "rocprofv3", "kfd": False}, EnvironmentFailure, "/dev/kfd", ""),
}  # fmt: skip


@pytest.fixture
def failure(tmp_path, ncu, monkeypatch):
    def of(
        *, log="", text="", output="", status=1, result=False, version="2025.3.1", tool="ncu",
        proc=(), free=10**12, kfd=True, **settings,
    ):  # fmt: skip
        for name, content in dict(proc).items():
            path = tmp_path / "proc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
        monkeypatch.setattr("gemmetry.counters.tools.can_use_kfd", lambda root: kfd)
        files = CollectFiles.at(tmp_path)
        files.profiler_log.write_text(ncu.TEXTS[text] if text else log)
        files.application_log.write_text(output)
        collection = Collection(
            request=CollectRequest(command=("app",), **settings), files=files, argv=(), chip=None,
            profiler=Profiler(tool, "/bin/ncu", version), architecture="sm_90",
        )  # fmt: skip
        return failure_of(ProfilerEnd(collection, status, result, Path(tmp_path)))

    return of


@pytest.mark.parametrize("case", CASES)
def test_the_cause_of_a_failure_and_what_to_do(failure, case):
    given, kind, message, hint = CASES[case]
    found = failure(**given)
    assert isinstance(found, kind), found
    assert message in found.message
    assert hint in found.hint


def test_a_report_and_status_0_are_a_success(failure):
    assert failure(status=0, result=True) is None
