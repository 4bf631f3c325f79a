from __future__ import annotations

import pytest

from gemmetry.hardware.detect import gpu_count, has_amd_driver, has_gpu_driver, printed_by_tools


def make(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize(
    ("files", "has_gpu", "is_amd", "count"),
    [
        ((), False, False, 0),
        (("dev/nvidiactl", "dev/nvidia0", "dev/nvidia7", "dev/nvidia-uvm"), True, False, 2),
        (("dev/kfd",), True, True, 0),
        (("dev/kfd", "dev/nvidiactl", "dev/nvidia0"), True, False, 1),
    ],
)
def test_drivers_and_devices(tmp_path, files, has_gpu, is_amd, count):
    make(tmp_path, *files)
    assert has_gpu_driver(tmp_path) is has_gpu
    assert has_amd_driver(tmp_path) is is_amd
    assert gpu_count(tmp_path, {}) == count


def test_gpus_of_amd_are_the_nodes_with_simds(tmp_path):
    for number, simds in enumerate((0, 1216, 1216)):
        name = f"sys/class/kfd/kfd/topology/nodes/{number}/properties"
        make(tmp_path, name)
        (tmp_path / name).write_text(f"cpu_cores_count 0\nsimd_count {simds}\n")
    assert gpu_count(tmp_path, {}) == 2


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("CUDA_VISIBLE_DEVICES", "0,2,5", 3),
        ("CUDA_VISIBLE_DEVICES", "", 0),
        ("HIP_VISIBLE_DEVICES", "1", 1),
    ],
)
def test_visible_devices(tmp_path, name, value, count):
    make(tmp_path, "dev/nvidia0", "dev/nvidia1", "dev/nvidia2", "dev/nvidia3")
    assert gpu_count(tmp_path, {name: value}) == count


def test_only_tools_that_are_installed_and_succeed_are_quoted():
    found = printed_by_tools((("echo", "a", "b"), ("false",), ("no-such-tool-anywhere", "x")))
    assert found == {"echo a b": "a b"}
