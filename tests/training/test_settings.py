from __future__ import annotations

import pytest

from gemmetry.sweeps.training import axes as settings
from gemmetry.sweeps.training.axes import (
    AxisKind,
    CommunicationLibrary,
    PlannedPoint,
    SweepAxis,
    common_environment,
    library_of,
    requested_settings,
    variables_set_by,
)

AXES = (
    SweepAxis("NCCL_ALGO", AxisKind.VARIABLE, ("Ring",)),
    SweepAxis("training.batch_size", AxisKind.KEY, ("8",)),
)
POINT = PlannedPoint(512, 28, (("NCCL_ALGO", "Ring"), ("training.batch_size", "8")), 1, False)
CHANNELS = {
    "NCCL_MIN_CTAS": "28", "NCCL_MAX_CTAS": "28", "NCCL_MIN_NCHANNELS": "28",
    "NCCL_MAX_NCHANNELS": "28",
}  # fmt: skip


def requested(library, path="kernel", point=POINT):
    found = requested_settings(point, AXES, CommunicationLibrary(library), path)
    return {one.name: dict(one.environment) for one in found}


def test_nccl():
    assert requested("nccl") == {
        "channels": CHANNELS,
        "threads": {"NCCL_NTHREADS": "512"},
        "NCCL_ALGO": {"NCCL_ALGO": "Ring"},
        "training.batch_size": {},
    }


def test_rccl():
    found = requested("rccl")
    assert found["channels"] == CHANNELS
    assert found["threads"] == {"NCCL_NTHREADS": "512", "RCCL_THREADS_PER_BLOCK": "512"}


def test_gloo_has_no_settings_and_says_so():
    found = requested_settings(POINT, AXES, CommunicationLibrary.GLOO, "kernel")
    assert [(one.name, one.environment) for one in found[:2]] == [("channels", {}), ("threads", {})]
    assert all(one.note.startswith("gloo has no such setting") for one in found[:2])
    assert not any(one.note for one in found[2:])


@pytest.mark.parametrize(
    ("path", "policy"), [("kernel", None), ("symmetric", None), ("copy_engine", "2")]
)
def test_paths(path, policy):
    environment = requested("nccl", path).get("path", {})
    assert environment.get("NCCL_CTA_POLICY") == policy
    # Multicast over NVLink stays off where buffers are registered.
    assert environment.get("NCCL_NVLS_ENABLE") == (None if path == "kernel" else "0")


def test_the_librarys_own_choice_sets_nothing():
    assert requested("nccl", point=PlannedPoint(None, None, (), 1, True)) == {}


def test_variables_of_other_axes_may_not_be_these():
    taken = variables_set_by(True, False, CommunicationLibrary.NCCL)
    assert taken == {"NCCL_NTHREADS"}
    assert variables_set_by(False, True, CommunicationLibrary.NCCL) == set(CHANNELS)
    assert variables_set_by(True, True, CommunicationLibrary.GLOO) == set()


def test_what_rocm_needs_gives_way_to_the_user():
    found = common_environment(CommunicationLibrary.RCCL, {"HSA_ENABLE_SDMA": "1"})
    assert found == {"PYTORCH_ROCM_PROFILER_ENABLE_TRACING": "1"}
    assert common_environment(CommunicationLibrary.NCCL, {}) == {}


@pytest.mark.parametrize(
    ("backend", "has_gpu", "is_amd", "library"),
    [
        ("gloo", True, False, "gloo"),
        ("nccl", True, False, "nccl"),
        ("nccl", True, True, "rccl"),
        (None, True, True, "rccl"),
        (None, False, False, "gloo"),
    ],
)
def test_the_library_of_a_machine(monkeypatch, backend, has_gpu, is_amd, library):
    monkeypatch.setattr(settings, "has_gpu_driver", lambda: has_gpu)
    monkeypatch.setattr(settings, "has_amd_driver", lambda: is_amd)
    assert library_of(backend) == library
