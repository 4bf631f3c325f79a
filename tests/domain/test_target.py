from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Target, TargetKind, parse_target
from gemmetry.domain.errors import RequestError


@pytest.mark.parametrize(
    ("text", "target", "name", "device"),
    [
        ("cpu", Target(TargetKind.CPU), "cpu", "cpu"),
        ("CUDA", Target(TargetKind.CUDA), "cuda", "cuda:0"),
        ("cuda:1", Target(TargetKind.CUDA, "", 1), "cuda", "cuda:1"),
        ("cuda-sm_90a", Target(TargetKind.CUDA, "sm_90a", None), "cuda-sm_90a", ""),
        ("cuda-sm_90:2", Target(TargetKind.CUDA, "sm_90", 2), "cuda-sm_90", "cuda:2"),
        (" hip-gfx942 ", Target(TargetKind.HIP, "gfx942", None), "hip-gfx942", ""),
        ("null:3", Target(TargetKind.NULL, "", 3), "null", "null:3"),
    ],
)
def test_golden_targets(text, target, name, device):
    parsed = parse_target(text)
    assert parsed == target
    assert (parsed.name, parsed.device, str(parsed)) == (name, device, name)


@pytest.mark.parametrize(
    "text", ["", "gpu", "cuda:", "cuda-", "cuda:x", "cuda:-1", "tpu-v5", "cuda:" + "9" * 5000]
)
def test_other_texts_are_refused(text):
    with pytest.raises(RequestError, match="cannot read the target"):
        parse_target(text)


@given(st.text(max_size=30))
@settings(deadline=None)
def test_any_text_is_a_target_or_a_request_error(text):
    try:
        parse_target(text)
    except RequestError as error:
        assert "cuda:1" in error.hint


def test_the_product_does_not_distinguish_targets():
    first = Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H100")
    assert first == Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200")


def test_gpus():
    gpus = {kind for kind in TargetKind if Target(kind).is_gpu}
    assert gpus == {TargetKind.CUDA, TargetKind.HIP, TargetKind.VULKAN}
