from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch

from gemmetry.domain.contracts import TunedDispatch
from gemmetry.domain.dispatch import Configuration, Dispatch, parse_operation, parse_target
from gemmetry.domain.errors import RequestError
from gemmetry.providers.torch_provider.provider import tunable_key, tuned_text

F32 = "matmul_16x8x32_f32t_f32t_f32t"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        # x @ weight.T in PyTorch's own files: tn_<out features>_<tokens>_<in features>.
        ("matmul_16x14336x4096_bf16t_bf16n_bf16t",
         "GemmTunableOp_BFloat16_TN,tn_14336_16_4096_ld_4096_4096_14336"),
        ("matmul_16x8x32_f16t_f16t_f16t", "GemmTunableOp_Half_NN,nn_8_16_32_ld_8_32_8"),
        ("matmul_16x8x32_f32n_f32n_f32t", "GemmTunableOp_float_TT,tt_8_16_32_ld_32_16_8"),
        ("matmul_16x8x32_tf32t_tf32t_f32t", "GemmTunableOp_tf32_NN,nn_8_16_32_ld_8_32_8"),
        ("matmul_16x8x32_f32t_f32t_f32n", None),
        ("matmul_16x8x32_f16t_f16t_f32t", None),
        (f"{F32}_relu", None),
        ("batch_matmul_2x16x8x32_f32t_f32t_f32t", None),
    ],
)  # fmt: skip
def test_names_of_problems(name, key):
    assert tunable_key(parse_operation(name)) == key


def tuned(name, configuration="default"):
    operation, found = parse_operation(name), Configuration(configuration)
    dispatch = Dispatch(operation, found, "torch", parse_target("cpu"))
    return TunedDispatch(dispatch=dispatch, median_ns=123456.0)


def test_the_file_has_torchs_default_with_its_time_in_ms():
    shapes = [[tuned(F32)], [tuned("matmul_2x8x32_f32t_f32t_f32t_relu")]]
    *validators, row = tuned_text(shapes, "", ".csv").splitlines()
    assert row == "GemmTunableOp_float_NN,nn_8_16_32_ld_8_32_8,Default,0.123456"
    keys = dict(line.removeprefix("Validator,").split(",", 1) for line in validators)
    assert torch.__version__.startswith(keys["PT_VERSION"])
    assert "+" not in keys["PT_VERSION"]
    with pytest.raises(RequestError, match="would be empty"):
        tuned_text([[tuned(F32, "other")]], "", ".csv")


def test_a_build_with_tunableop_names_its_own_validators_if_it_has_a_driver(monkeypatch):
    validators = (("PT_VERSION", "2.9.0"), ("ROCM_VERSION", "7.0.0"))
    found = Mock(side_effect=[RuntimeError("no driver"), validators])
    monkeypatch.setattr(torch._C, "_cuda_tunableop_get_validators", found, raising=False)
    for beginning in ("PT_VERSION,", "PT_VERSION,2.9.0\nValidator,ROCM_VERSION,7.0.0\nGemm"):
        text = tuned_text([[tuned(F32)]], "", ".csv")
        assert text.startswith(f"Validator,{beginning}")
