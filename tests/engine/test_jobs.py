from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine.candidates import Compiling, Measuring, Verifying, job_of
from gemmetry.engine.recording import Recording

GPU = Target(TargetKind.CUDA, "sm_90", 0)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, Measuring),
        ({"verify": False}, Measuring),
        ({"measure": False}, Verifying),
        ({"measure": False, "verify": False}, Compiling),
        ({"measure": False, "trace": TraceSchedule()}, Recording),
        ({"measure": False, "verify": False, "trace": TraceSchedule()}, Recording),
    ],
)
def test_settings_decide_on_the_job(settings, kind):
    job = job_of(RunSettings(processes=3, **settings))
    assert type(job) is kind
    assert job.samples is (kind is Measuring)
    assert job.uses_device is (kind is not Compiling)
    assert job.process_count(GPU) == (3 if kind is Measuring else 1)
