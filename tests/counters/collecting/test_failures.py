from __future__ import annotations

import json
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
from gemmetry.hardware.doctor import Profiler

CASES = json.loads(Path(__file__).with_name("failures.json").read_text("utf-8"))
"""The driver shows a lack of permission whatever the wording, else the wording does. Where nothing
matched, the names that were launched are listed. A failed application is not blamed on the
profiler, nor is its output taken for the profiler's."""


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_the_cause_of_a_failure_and_what_to_do(failure, case):
    found = failure(**case["given"])
    assert type(found).__name__ == case["error"], found
    assert case["message"] in found.message
    assert case["hint"] in found.hint


def test_a_report_and_status_0_are_a_success(failure):
    assert failure(status=0, result=True) is None
