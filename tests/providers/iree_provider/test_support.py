from __future__ import annotations

from unittest.mock import Mock

import iree.runtime
import pytest

from gemmetry.domain.dispatch import Target, TargetKind, parse_operation, parse_target
from gemmetry.providers.iree_provider import support

HALF = parse_operation("matmul_64x64x64_f16t_f16t_f16t")
FP8 = parse_operation("matmul_64x64x64_e4m3t_e4m3t_bf16t")


@pytest.mark.parametrize(
    ("target", "operation", "architecture"),
    [("cpu", HALF, "host"), ("cuda-sm_80", HALF, "sm_80"), ("cuda-sm_89", FP8, "sm_89"),
     ("cuda-sm_90", HALF, "sm_80"), ("cuda-sm_100", FP8, "sm_89"), ("cuda", HALF, "sm_80"),
     ("hip-gfx942", HALF, "gfx942")],
)  # fmt: skip
def test_newer_gpus_get_the_newest_code_that_iree_can_make(target, operation, architecture):
    assert support.compile_architecture(parse_target(target), operation) == architecture


def test_flags_name_the_target_keep_f64_and_end_with_the_users(monkeypatch):
    def flags(target, **options) -> list[str]:
        return support.target_flags(parse_target(target), HALF, options)

    monkeypatch.setenv(support.TARGET_CPU_VARIABLE, "haswell")
    assert "--iree-llvmcpu-target-cpu=haswell" in flags("cpu")
    assert "--iree-llvmcpu-target-cpu=znver2" in flags("cpu", target_cpu="znver2")
    monkeypatch.delenv(support.TARGET_CPU_VARIABLE)
    host = flags("cpu", compile_flags=["--mine"])
    assert {"--iree-hal-local-target-device-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host",
            "--iree-input-demote-f64-to-f32=false"} <= set(host)  # fmt: skip
    assert host[-1] == "--mine"
    cuda = flags("cuda-sm_90")
    assert cuda[:2] == ["--iree-hal-target-device=cuda", "--iree-cuda-target=sm_80"]
    assert "--iree-execution-model=async-external" in cuda
    assert "--iree-rocm-target=gfx950" in flags("hip-gfx950")


def test_devices_that_the_driver_lists_become_targets(monkeypatch):
    driver = Mock()
    driver.query_available_devices.return_value = [{"name": "One"}, {"name": "Two"}]
    monkeypatch.setattr(iree.runtime, "query_available_drivers", lambda: ["cuda", "local-task"])
    monkeypatch.setattr(iree.runtime, "get_driver", lambda _: driver)
    monkeypatch.setattr(support, "_cuda_attribute", lambda _, attribute: 9 - (attribute - 75) * 9)
    found = support.attached_targets()
    shown = [(target.device, target.architecture) for target in found]
    assert shown == [("cuda:0", "sm_90"), ("cuda:1", "sm_90")]
    assert found[1].product == "Two"
    assert support.device_uri(found[1]) == "cuda://1"
    assert support.device_uri(Target(TargetKind.CPU)) == "local-task"
    refuse = Mock(side_effect=RuntimeError("UNAVAILABLE; cuda driver library not found"))
    monkeypatch.setattr(iree.runtime, "get_driver", refuse)
    assert list(support.attached_targets()) == []


def test_without_libcuda_nothing_is_known(monkeypatch):
    monkeypatch.setattr(support, "_libcuda", lambda: None)
    assert support.cuda_l2_bytes(0) is support.cuda_free_bytes(0) is None


@pytest.mark.parametrize(
    ("product", "architecture"),
    [("AMD Instinct MI300X OAM", "gfx942"), ("AMD Instinct MI355X", "gfx950"), ("Radeon", "")],
)
def test_amd_products_have_an_architecture(product, architecture):
    assert support.hip_architecture(product) == architecture
