from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError, SpecError
from gemmetry.sweeps.training import planning
from gemmetry.sweeps.training.planning import make_request, plan_sweep

TINY = {"config": "tiny", "threads": [256]}


def plan(**options):
    return plan_sweep(make_request(**options), Path("none"))


def test_notes_on_settings_that_have_no_effect():
    assert [note.partition(":")[0] for note in plan(**TINY, channels=[1]).notes] == [
        "channels", "threads"
    ]  # fmt: skip


def test_values_beyond_the_limits_of_nccl_are_named():
    notes = plan(
        command="true", library="nccl", channels=[56, 70, 128], threads=[32, 256, 1024]
    ).notes
    assert notes == (
        "channels 70, 128: NCCL uses 64 channels at most",
        "threads 32, 1024: NCCL uses 64 to 512 threads",
    )


def test_values_beyond_the_limits_of_rccl_are_named():
    notes = plan(command="true", library="rccl", channels=[70], threads=[256, 512]).notes
    assert notes == ("threads 512: RCCL uses 256 threads at most",)


def test_variables_of_the_user_that_the_sweep_replaces_are_named(monkeypatch):
    monkeypatch.setenv("NCCL_NTHREADS", "64")
    (note,) = plan(command="true", library="nccl", threads=[256]).notes
    assert note.startswith("NCCL_NTHREADS in your environment")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": "tiny", "path": "copy_engine"}, "requires NCCL"),
        ({"config": "tiny", "path": "quick"}, "unknown path"),
        ({"config": "tiny", "axes": {"path": ["kernel", "quick"]}}, "unknown path"),
        ({"config": "tiny", "axes": {"path": ["kernel", "symmetric"]}}, "requires NCCL"),
        ({"command": "true", "axes": {"path": ["kernel"]}, "path": "symmetric"},
         "exclude each other"),
        ({"config": "tiny", "axes": {"distributed.backend": ["gloo", "nccl"]}}, "one backend"),
        ({"config": "none.yaml", "nproc": 1}, "none.yaml"),
        ({"command": "no-such-program-anywhere x"}, "no-such-program-anywhere"),
        ({"command": "true", "rocprof": True}, "rocprofv3"),
        ({"command": "true", "rocprof_input": Path("no.yaml")}, r"no\.yaml"),
        ({"command": "true", "nnodes": 2}, "--rdzv-endpoint"),
        ({"command": "true", "nnodes": 2, "rdzv_endpoint": "a:1"}, "--launcher"),
        ({"command": "true", "library": "nccl", "channels": [8],
          "axes": {"NCCL_MAX_CTAS": ["8"]}}, "NCCL_MAX_CTAS"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_anything_does(options, message, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(RequestError, match=message):
        plan(**options)


def test_a_configuration_is_checked_with_every_value_of_the_axes():
    with pytest.raises(SpecError, match=r"training\.batch_size"):
        plan(config="tiny", axes={"training.batch_size": ["4", "lots"]})


def test_a_workload_for_gpus_on_a_machine_without_one(monkeypatch):
    monkeypatch.setattr(planning, "has_gpu_driver", lambda: False)
    with pytest.raises(RequestError, match="no driver") as error:
        plan(config="document", nproc=1)
    assert "--config tiny" in error.value.hint
