from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gemmetry.engine
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


def test_no_other_module_of_the_engine_depends_on_the_kind_of_job():
    """Kinds of jobs differ in the methods of :class:`Job`; `reproduce` writes settings as
    options."""
    flags = {"trace", "measure"}
    root = Path(gemmetry.engine.__file__).parent
    found = {
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        if path.name not in ("jobs.py", "reproduce.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in flags
        and isinstance(node.value, ast.Name | ast.Attribute)
        and getattr(node.value, "id", getattr(node.value, "attr", "")).endswith("settings")
    }
    assert found == set()
