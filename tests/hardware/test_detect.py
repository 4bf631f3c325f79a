from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from gemmetry.hardware.detect import amd_gpus, cpu_facts, nvidia_gpus, processor_identity

CPUINFO = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480C
cpu MHz\t\t: 2000.123
flags\t\t: fpu fma avx512f amx_bf16

processor\t: 1
model name\t: something else
flags\t\t: fpu fma avx2
"""

ARM_CPUINFO = """\
processor\t: 0
Features\t: fp asimd bf16 i8mm
CPU implementer\t: 0x41
CPU part\t: 0xd4f
"""


CPUS = "sys/devices/system/cpu"


def test_facts_of_an_x86(host_tree, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(6)), raising=False)
    host_tree.write("proc/cpuinfo", CPUINFO)
    for cpu in range(6):
        host_tree.cache(cpu, 0, 1, "48K", str(cpu), "Data")
        host_tree.cache(cpu, 1, 1, "32K", str(cpu), "Instruction")
        host_tree.cache(cpu, 3, 3, "105M", "0-3" if cpu < 4 else "4-7")
        host_tree.siblings(cpu, f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}")
    facts = cpu_facts(host_tree.root)
    assert facts.name == "Intel(R) Xeon(R) Platinum 8480C"
    assert (facts.vendor, facts.family, facts.model) == ("GenuineIntel", 6, 143)
    assert facts.last_level_caches == (105 * 2**20,) * 2
    assert facts.total_cache_bytes == 210 * 2**20
    assert (facts.usable_cores, facts.physical_cores) == (6, 3)
    assert facts.clock_hz == pytest.approx(2.000123e9)
    assert facts.clock_source == "TSC; boost may exceed"
    assert not facts.clock_is_highest


def test_flags_are_those_of_every_processor_that_may_be_used(host_tree, monkeypatch):
    host_tree.write("proc/cpuinfo", CPUINFO)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1}, raising=False)
    assert cpu_facts(host_tree.root).flags == {"fpu", "fma"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0}, raising=False)
    assert "amx_bf16" in cpu_facts(host_tree.root).flags
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {1}, raising=False)
    assert cpu_facts(host_tree.root).name == "something else"


def test_the_highest_clock_of_cpufreq_goes_before_the_present_one(host_tree, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2}, raising=False)
    host_tree.write("proc/cpuinfo", CPUINFO)
    for cpu, kilohertz in ((0, 3800000), (1, 3900000), (2, 2900000), (3, 9900000)):
        host_tree.write(f"{CPUS}/cpu{cpu}/cpufreq/cpuinfo_max_freq", str(kilohertz))
    facts = cpu_facts(host_tree.root)
    assert (facts.clock_hz, facts.clock_source) == (3.9e9, "highest of cpufreq")
    assert not facts.clock_is_highest, "acpi-cpufreq may stop at the base clock"
    host_tree.write(f"{CPUS}/cpu0/cpufreq/scaling_driver", "intel_pstate")
    assert cpu_facts(host_tree.root).clock_is_highest


def test_facts_of_an_arm(host_tree, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1}, raising=False)
    host_tree.write("proc/cpuinfo", ARM_CPUINFO)
    facts = cpu_facts(host_tree.root)
    assert facts.arm_part == 0xD4F
    assert facts.flags == {"fp", "asimd", "bf16", "i8mm"}
    assert facts.clock_hz is None
    assert facts.last_level_caches == ()
    assert facts.total_cache_bytes == 0
    little = ARM_CPUINFO.replace("processor\t: 0", "processor\t: 1").replace("0xd4f", "0xd46")
    host_tree.write("proc/cpuinfo", f"{ARM_CPUINFO}\n{little}")
    assert cpu_facts(host_tree.root).arm_part is None, "two kinds of cores have no one peak"


def test_a_system_without_those_files_still_has_a_name(tmp_path):
    facts = cpu_facts(tmp_path)
    assert facts.name
    assert facts.usable_cores >= facts.physical_cores >= 1
    assert processor_identity(tmp_path)


def test_the_identity_of_a_processor_is_its_model_and_features(host_tree):
    host_tree.write("proc/cpuinfo", CPUINFO)
    assert processor_identity(host_tree.root) == (
        "model name\t: Intel(R) Xeon(R) Platinum 8480C\nflags\t\t: fpu fma avx512f amx_bf16"
    )


class FakeNvml:
    class NVMLError(Exception):
        pass

    def __init__(self, count=1, failing=""):
        self.count, self.failing, self.shut_down = count, failing, False

    def __getattr__(self, name):
        answers = {
            "nvmlInit": None,
            "nvmlSystemGetDriverVersion": "575.57",
            "nvmlDeviceGetCount": self.count,
            "nvmlDeviceGetHandleByIndex": object(),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_754_820_096),
            "nvmlDeviceGetPowerManagementLimit": 700_000,
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUUID": "GPU-1",
        }

        def call(*_arguments):
            if name == self.failing:
                raise self.NVMLError("no")
            if name == "nvmlShutdown":
                self.shut_down = True
                return None
            return answers[name]

        return call


def test_nvidia_gpus_are_listed():
    nvml = FakeNvml(2)
    found = nvidia_gpus(nvml)
    assert [gpu.index for gpu in found.gpus] == [0, 1]
    assert found.gpus[0].architecture == "sm_90"
    assert found.gpus[0].memory_bytes == 150_754_820_096
    assert found.gpus[0].driver == "575.57"
    assert found.reason == ""
    assert nvml.shut_down


def test_a_gpu_that_hides_its_memory_is_listed_without():
    assert nvidia_gpus(FakeNvml(failing="nvmlDeviceGetMemoryInfo")).gpus[0].memory_bytes is None


def test_the_power_limit_that_is_set_is_read_where_the_driver_reports_it():
    assert nvidia_gpus(FakeNvml()).gpus[0].power_limit_w == 700.0
    virtual = FakeNvml(failing="nvmlDeviceGetPowerManagementLimit")
    assert nvidia_gpus(virtual).gpus[0].power_limit_w is None


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (FakeNvml(failing="nvmlInit"), "NVML does not start"),
        (FakeNvml(failing="nvmlDeviceGetName"), "NVML cannot list"),
        (FakeNvml(0), "the driver shows no NVIDIA GPU"),
    ],
)
def test_no_nvidia_gpu_has_a_reason_and_a_next_step(nvml, reason):
    found = nvidia_gpus(nvml)
    assert found.gpus == ()
    assert found.reason.startswith(reason)
    assert found.next_step


class FakeAmdSmi:
    class AmdSmiException(Exception):  # amdsmi's name
        pass

    def __init__(self, count=1, failing=""):
        self.count, self.failing = count, failing

    def __getattr__(self, name):
        answers = {
            "amdsmi_init": None,
            "amdsmi_shut_down": None,
            "amdsmi_get_processor_handles": list(range(self.count)),
            "amdsmi_get_gpu_asic_info": {
                "market_name": "AMD Instinct MI300X",
                "target_graphics_version": "gfx942",
            },
            "amdsmi_get_gpu_driver_info": {"driver_version": "6.14"},
            "amdsmi_get_gpu_device_uuid": "ff",
        }

        def call(*_arguments):
            if name == self.failing:
                raise self.AmdSmiException("no")
            return answers[name]

        return call


def test_amd_gpus_are_listed():
    [gpu] = amd_gpus(FakeAmdSmi()).gpus
    assert (gpu.kind, gpu.name, gpu.architecture) == ("hip", "AMD Instinct MI300X", "gfx942")


@pytest.mark.parametrize(
    ("amdsmi", "reason"),
    [
        (FakeAmdSmi(failing="amdsmi_init"), "amdsmi does not start"),
        (FakeAmdSmi(failing="amdsmi_get_gpu_asic_info"), "amdsmi cannot list"),
        (FakeAmdSmi(0), "the driver shows no AMD GPU"),
    ],
)
def test_no_amd_gpu_has_a_reason_and_a_next_step(amdsmi, reason):
    found = amd_gpus(amdsmi)
    assert found.gpus == ()
    assert found.reason.startswith(reason)
    assert found.next_step


@pytest.mark.parametrize(
    ("error", "nvidia", "amd"),
    [
        (ImportError("x"), "the NVML bindings are not installed", "amdsmi is not installed"),
        (KeyError("libamd_smi.so"), None, "amdsmi does not load"),
    ],
)
def test_bindings_that_do_not_import_are_a_reason(monkeypatch, error, nvidia, amd):
    def fail(name):
        raise error

    monkeypatch.setattr("gemmetry.hardware.detect.importlib.import_module", fail)
    if nvidia is not None:
        assert nvidia_gpus().reason == nvidia
    assert amd_gpus().reason.startswith(amd)
