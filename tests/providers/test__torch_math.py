from __future__ import annotations

import subprocess
import sys

import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import TargetKind
from gemmetry.providers import _torch_math
from gemmetry.providers._torch_math import MathMode, math_mode, users_turn

torch = pytest.importorskip("torch")

PRECISION = "mkldnn.matmul.fp32_precision"


@pytest.fixture(autouse=True)
def switches():
    """As they were before the test, afterwards."""
    users_turn()
    before = torch.backends.mkldnn.matmul.fp32_precision
    yield
    users_turn()
    torch.backends.mkldnn.matmul.fp32_precision = before


def mode_of(name: str, kind: TargetKind) -> dict[str, object]:
    return dict(math_mode(parse_operation(name), kind).switches)


def test_users_find_their_switches_again_after_a_product_of_torch():
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    mode = MathMode(((PRECISION, "ieee"),))
    mode.apply()
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
    users_turn()
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    mode.apply()
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee", "it is not taken for applied"


def test_one_mode_after_another_keeps_what_users_set():
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    MathMode(((PRECISION, "ieee"),)).apply()
    MathMode(((PRECISION, "tf32"),)).apply()
    assert torch.backends.mkldnn.matmul.fp32_precision == "tf32"
    users_turn()
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"


def test_an_equal_mode_is_not_set_again(monkeypatch):
    written: list[str] = []
    set_switch = _torch_math._set
    monkeypatch.setattr(
        _torch_math, "_set", lambda path, value: (written.append(path), set_switch(path, value))
    )
    MathMode(((PRECISION, "ieee"),)).apply()
    MathMode(((PRECISION, "ieee"),)).apply()
    assert written == [PRECISION]


@pytest.mark.parametrize(
    ("name", "precision", "accumulates_f16"),
    [
        ("matmul_8x8x8_f32t_f32t_f32t", "ieee", False),
        ("matmul_8x8x8_tf32t_tf32t_f32t", "tf32", False),
        ("matmul_8x8x8_f16t_f16t_f16t", "ieee", False),
        ("matmul_8x8x8_f16t_f16t_f16t_accf16", "ieee", True),
    ],
)
def test_switches_follow_the_operation(name, precision, accumulates_f16):
    mode = mode_of(name, TargetKind.CUDA)
    assert mode["cuda.matmul.fp32_precision"] == mode["cudnn.conv.fp32_precision"] == precision
    assert mode["cuda.matmul.allow_fp16_accumulation"] is accumulates_f16
    assert mode["cuda.preferred_blas_library"] == "cublas"
    on_rocm = mode_of(name, TargetKind.HIP)
    assert on_rocm == {path: mode[path] for path in mode if path != "cuda.preferred_blas_library"}


def test_every_switch_can_be_read_and_set_to_what_it_is():
    for kind in (TargetKind.CPU, TargetKind.CUDA):
        for path in mode_of("matmul_8x8x8_f32t_f32t_f32t", kind):
            value = _torch_math._get(path)
            _torch_math._set(path, value)
            assert _torch_math._get(path) == value


def test_who_never_launched_torch_need_not_have_it():
    code = (
        "import sys; from gemmetry.providers import _torch_math; _torch_math.users_turn();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
