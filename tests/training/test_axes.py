from __future__ import annotations

import pytest

from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.sweeps.training.axes import AxisKind, SweepAxis, check_counts, make_axes

KEYS = ("distributed.bucket_cap_mb", "training.batch_size")


def test_counts():
    assert check_counts([28, 42], "--channels") == (28, 42)


@pytest.mark.parametrize("values", [[0], [8, -1], [8, 8]])
def test_counts_that_make_no_sense(values):
    with pytest.raises(RequestError, match="--channels"):
        check_counts(values, "--channels")


def test_axes_of_the_workload():
    axes = {"NCCL_ALGO": ["Ring", "Tree"], "distributed.bucket_cap_mb": [16, 32]}
    assert make_axes(axes, command=None, keys=KEYS) == (
        SweepAxis("NCCL_ALGO", AxisKind.VARIABLE, ("Ring", "Tree")),
        SweepAxis("distributed.bucket_cap_mb", AxisKind.KEY, ("16", "32")),
    )


def test_axes_of_a_command():
    command = ("train", "--bucket={bucket}", "{trace_dir}")
    assert make_axes({"bucket": ["16", "32"], "DEBUG": ["1"]}, command=command, keys=()) == (
        SweepAxis("bucket", AxisKind.PLACEHOLDER, ("16", "32")),
        SweepAxis("DEBUG", AxisKind.VARIABLE, ("1",)),
    )


@pytest.mark.parametrize(
    ("axes", "command", "message"),
    [
        ({"NCCL_ALGO": []}, None, "has no values"),
        ({"NCCL_ALGO": ["Ring", "Ring"]}, None, "given twice"),
        ({"distributed.bucket": [1]}, None, "unknown configuration key"),
        ({"bucket": [1]}, ("train",), "changes nothing"),
    ],
)
def test_axes_that_make_no_sense(axes, command, message):
    with pytest.raises(RequestError, match=message):
        make_axes(axes, command=command, keys=KEYS)


def test_the_nearest_key_is_suggested():
    with pytest.raises(UnknownNameError) as error:
        make_axes({"distributed.bucket_cap": [1]}, command=None, keys=KEYS)
    assert "distributed.bucket_cap_mb" in error.value.hint
