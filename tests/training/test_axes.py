from __future__ import annotations

import pytest

from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.training.axes import AxisKind, SweepAxis, parse_axes, parse_counts

KEYS = ("distributed.bucket_cap_mb", "training.batch_size")


@pytest.mark.parametrize("texts", [["28,42"], ["28", "42"], ["28, 42,"]])
def test_counts(texts):
    assert parse_counts(texts, "--channels") == (28, 42)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "8,8"])
def test_counts_that_make_no_sense(text):
    with pytest.raises(RequestError, match="--channels"):
        parse_counts([text], "--channels")


def test_axes_of_the_workload():
    axes = parse_axes(
        ["NCCL_ALGO=Ring,Tree", "distributed.bucket_cap_mb=16, 32"], command=None, keys=KEYS
    )
    assert axes == (
        SweepAxis("NCCL_ALGO", AxisKind.VARIABLE, ("Ring", "Tree")),
        SweepAxis("distributed.bucket_cap_mb", AxisKind.KEY, ("16", "32")),
    )


def test_axes_of_a_command():
    command = ("train", "--bucket={bucket}", "{trace_dir}")
    assert parse_axes(["bucket=16,32", "DEBUG=1"], command=command, keys=()) == (
        SweepAxis("bucket", AxisKind.PLACEHOLDER, ("16", "32")),
        SweepAxis("DEBUG", AxisKind.VARIABLE, ("1",)),
    )


@pytest.mark.parametrize(
    ("texts", "command", "message"),
    [
        (["NCCL_ALGO"], None, "not of the form"),
        (["=1"], None, "not of the form"),
        (["NCCL_ALGO=,"], None, "not of the form"),
        (["NCCL_ALGO=Ring,Ring"], None, "given twice"),
        (["NCCL_ALGO=Ring", "NCCL_ALGO=Tree"], None, "given twice"),
        (["distributed.bucket=1"], None, "unknown configuration key"),
        (["bucket=1"], ("train",), "changes nothing"),
    ],
)
def test_axes_that_make_no_sense(texts, command, message):
    with pytest.raises(RequestError, match=message):
        parse_axes(texts, command=command, keys=KEYS)


def test_the_nearest_key_is_suggested():
    with pytest.raises(UnknownNameError) as error:
        parse_axes(["distributed.bucket_cap=1"], command=None, keys=KEYS)
    assert "distributed.bucket_cap_mb" in error.value.hint
