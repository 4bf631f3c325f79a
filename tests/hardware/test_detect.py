from __future__ import annotations

import shutil
import subprocess
from unittest.mock import Mock

import pytest
from tests.hardware.conftest import may_run_on
from tests.vendors import amdsmi, nvml

import gemmetry
from gemmetry.hardware import detect as environment
from gemmetry.hardware.detect import (
    GpuFacts,
    GpuList,
    _variables,
    amd_gpus,
    capture_environment,
    cpu_facts,
    git_revision,
    gpu_count,
    has_amd_driver,
    has_gpu_driver,
    masked_words,
    nvidia_free_bytes,
    nvidia_gpus,
    printed_by_tools,
    processor_identity,
)

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
    may_run_on(monkeypatch, range(6))
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
    # Flags are those of every processor that may be used, and the highest clock goes before.
    may_run_on(monkeypatch, {0})
    assert "amx_bf16" in cpu_facts(host_tree.root).flags
    may_run_on(monkeypatch, {1})
    assert cpu_facts(host_tree.root).name == "something else"
    may_run_on(monkeypatch, {0, 1, 2})
    for cpu, kilohertz in ((0, 3800000), (1, 3900000), (2, 2900000), (3, 9900000)):
        host_tree.write(f"{CPUS}/cpu{cpu}/cpufreq/cpuinfo_max_freq", str(kilohertz))
    facts = cpu_facts(host_tree.root)
    assert facts.flags == {"fpu", "fma"}
    assert (facts.clock_hz, facts.clock_source) == (3.9e9, "highest of cpufreq")
    assert not facts.clock_is_highest, "acpi-cpufreq may stop at the base clock"
    host_tree.write(f"{CPUS}/cpu0/cpufreq/scaling_driver", "intel_pstate")
    assert cpu_facts(host_tree.root).clock_is_highest
    assert processor_identity(host_tree.root) == (
        "model name\t: Intel(R) Xeon(R) Platinum 8480C\nflags\t\t: fpu fma avx512f amx_bf16"
    )


def test_facts_of_an_arm_and_of_a_system_without_those_files(host_tree, monkeypatch):
    may_run_on(monkeypatch, {0, 1})
    facts = cpu_facts(host_tree.root)
    assert facts.name and processor_identity(host_tree.root)
    assert facts.usable_cores >= facts.physical_cores >= 1
    host_tree.write("proc/cpuinfo", ARM_CPUINFO)
    facts = cpu_facts(host_tree.root)
    assert facts.arm_part == 0xD4F
    assert facts.flags == {"fp", "asimd", "bf16", "i8mm"}
    assert (facts.clock_hz, facts.last_level_caches, facts.total_cache_bytes) == (None, (), 0)
    little = ARM_CPUINFO.replace("processor\t: 0", "processor\t: 1").replace("0xd4f", "0xd46")
    host_tree.write("proc/cpuinfo", f"{ARM_CPUINFO}\n{little}")
    assert cpu_facts(host_tree.root).arm_part is None, "two kinds of cores have no one peak"


H200 = "NVIDIA H200"


def test_free_memory_is_that_of_the_gpu_or_unknown():
    bindings = nvml(H200)
    assert nvidia_free_bytes("GPU-0", bindings) == 7
    assert bindings.called[-1] == ("nvmlShutdown",)
    for missing in ("nvmlInit", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMemoryInfo"):
        assert nvidia_free_bytes("GPU-0", nvml(H200, missing=[missing])) == 0
    assert nvidia_free_bytes("MIG-0", nvml(H200, missing=["nvmlDeviceGetMigMode"])) == 7
    assert nvidia_free_bytes("GPU-0", nvml(H200, nvmlDeviceGetMigMode=(1, 1))) == 0


def test_gpus_are_listed_with_what_the_driver_reports():
    bindings = nvml(H200, H200)
    first, second = nvidia_gpus(bindings).gpus
    assert (first.index, second.index) == (0, 1)
    assert (first.architecture, first.driver) == ("sm_90", "575.57")
    assert (first.memory_bytes, first.power_limit_w) == (150_754_820_096, 700.0)
    assert bindings.called[-1] == ("nvmlShutdown",)
    [hidden] = nvidia_gpus(nvml(H200, missing=["nvmlDeviceGetMemoryInfo"])).gpus
    assert (hidden.memory_bytes, hidden.power_limit_w) == (None, 700.0)
    [virtual] = nvidia_gpus(nvml(H200, missing=["nvmlDeviceGetPowerManagementLimit"])).gpus
    assert virtual.power_limit_w is None
    [gpu] = amd_gpus(amdsmi()).gpus
    assert (gpu.kind, gpu.name, gpu.architecture) == ("hip", "AMD Instinct MI300X", "gfx942")


@pytest.mark.parametrize(("listed", "bindings", "reason"), [
    (nvidia_gpus, nvml(H200, missing=["nvmlInit"]), "does not start"),
    (nvidia_gpus, nvml(H200, missing=["nvmlDeviceGetName"]), "cannot list"),
    (nvidia_gpus, nvml(), "no NVIDIA GPU"),
    (amd_gpus, amdsmi(missing=["amdsmi_init"]), "does not start"),
    (amd_gpus, amdsmi(missing=["amdsmi_get_gpu_asic_info"]), "cannot list"),
    (amd_gpus, amdsmi(0), "no AMD GPU"),
])  # fmt: skip
def test_no_gpu_has_a_reason_and_a_next_step(listed, bindings, reason):
    found = listed(bindings)
    assert found.gpus == ()
    assert reason in found.reason
    assert found.next_step


@pytest.mark.parametrize(("bindings", "error"), [
    (nvidia_gpus, ImportError), (amd_gpus, ImportError), (amd_gpus, KeyError("libamd_smi.so")),
])  # fmt: skip
def test_bindings_that_do_not_import_are_a_reason(monkeypatch, bindings, error):
    monkeypatch.setattr("gemmetry.hardware.detect.importlib.import_module", Mock(side_effect=error))
    found = bindings()
    assert ("not installed" in found.reason) is (error is ImportError)
    assert found.reason


def test_this_machine_is_described():
    class Version(str):
        """The class of torch's version; what is stored is plain text."""

    found = capture_environment({"numpy": Version("1.2.3")})
    assert found.hostname and found.cpu and found.cpu_count >= 1
    assert found.packages == {"gemmetry": gemmetry.__version__, "numpy": "1.2.3"}
    assert type(found.packages["numpy"]) is str
    assert found.id == capture_environment({"numpy": "1.2.3"}).id
    assert found.id != capture_environment({"numpy": "1.2.4"}).id


def test_cards_of_one_model_differ_in_what_is_known_of_them(monkeypatch):
    def here(uuid="GPU-1", **facts):
        gpu = GpuFacts(kind="cuda", index=0, name="NVIDIA H200", uuid=uuid, **facts)
        monkeypatch.setattr(environment, "nvidia_gpus", lambda: GpuList((gpu,), "", ""))
        return capture_environment({})

    unknown, other = here(), here("GPU-2")
    assert unknown.devices == other.devices == ("NVIDIA H200",)
    assert unknown.differences(other) == ["device_ids: GPU-1 vs GPU-2"]
    full, less = (here(memory_bytes=150 * 10**9, power_limit_w=limit) for limit in (700.0, 500.0))
    assert (full.power_limits_w, full.device_memory_bytes) == ((700.0,), (150 * 10**9,))
    assert (unknown.power_limits_w, unknown.device_memory_bytes) == ((), ())
    assert full.id != less.id
    assert not full.agrees_with(less)
    assert full.differences(less) == ["power_limits_w: 700.0 vs 500.0"]
    # An environment that was stored before limits were read.
    assert full.agrees_with(unknown) and unknown.agrees_with(full)


def test_only_variables_that_change_speed_are_kept_and_no_secrets():
    environ = {
        "OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "1", "NCCL_MIN_NCHANNELS": "8",
        "TRITON_CACHE_DIR": "x", "HIP_VISIBLE_DEVICES": "0", "ONEDNN_MAX_CPU_ISA": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "AVX512F", "GEMMETRY_IREE_TARGET_CPU": "haswell",
        "HOME": "/home/me", "MY_OMP_X": "1", "NVIDIA_TF32_OVERRIDE": "1",
        "NVIDIA_REQUIRE_CUDA": "what a container asks of its host", "CUDA_API_KEY": "hidden",
        "TORCH_HUB_TOKEN": "hidden", "NCCL_AUTH": "hidden", "NCCL_NET_AUTH_TOKEN": "hidden",
        "TORCH_PASSWD": "hidden", "AMD_ACCESS_KEY": "hidden", "IREE_PRIVATE_KEY": "hidden",
        "TORCH_ANYTHING": "nobody knows what it is",
        "NCCL_NET_PLUGIN": "https://me:hidden@example.org/plugin.so",
    }  # fmt: skip
    assert "hidden" not in str(_variables(environ))
    assert sorted(_variables(environ)) == [
        "CUDA_VISIBLE_DEVICES", "GEMMETRY_IREE_TARGET_CPU", "HIP_VISIBLE_DEVICES",
        "NCCL_MIN_NCHANNELS", "NCCL_NET_PLUGIN", "NPY_DISABLE_CPU_FEATURES",
        "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS",
        "ONEDNN_MAX_CPU_ISA", "TRITON_CACHE_DIR",
    ]  # fmt: skip


@pytest.mark.parametrize(("words", "stored"), [
    (["--url", "https://me:hidden@host:80/x?y=1"], ["--url", "https://***@host:80/x?y=1"]),
    (["run", "TOKEN=hidden", "DB_PASSWORD=hidden"], ["run", "TOKEN=***", "DB_PASSWORD=***"]),
    (["--password", "hidden", "--api-key=hidden"], ["--password", "***", "--api-key=***"]),
    (["hf_hiddenhiddenhidden", "ghp_hidden0123456789"], ["***", "***"]),
    (["sh", "-c", "curl redis://:hidden@x/ --token hidden"],
     ["sh", "-c", "curl redis://***@x/ --token ***"]),
    (["--token-file", "t", "--set", "seed=7", "a@b", "--kernel", "x/key.py:f", "keys=8"],
     ["--token-file", "t", "--set", "seed=7", "a@b", "--kernel", "x/key.py:f", "keys=***"]),
])  # fmt: skip
def test_stored_commands_have_no_passwords(words, stored):
    assert masked_words(words) == stored


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_revision_of_a_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    repository = tmp_path / "repository"
    repository.mkdir()
    assert git_revision(repository) == ""

    def git(*arguments):
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, timeout=30)

    git("init", "--quiet")
    (repository / "file").write_text("1")
    git("add", "file")
    git("commit", "--quiet", "--message", "first")
    clean = git_revision(repository)
    assert len(clean) == 12
    assert int(clean, 16) > 0
    (repository / "file").write_text("2")
    assert git_revision(repository) == f"{clean}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_revision(repository) == "", "without git"


NVIDIA = ("dev/nvidiactl", "dev/nvidia0", "dev/nvidia7", "dev/nvidia-uvm")


@pytest.mark.parametrize(("files", "has_gpu", "is_amd", "count"), [
    ((), False, False, 0),
    (NVIDIA, True, False, 2),
    (("dev/kfd",), True, True, 0),
    (("dev/kfd", *NVIDIA), True, False, 2),
])  # fmt: skip
def test_drivers_and_devices(host_tree, files, has_gpu, is_amd, count):
    for name in files:
        host_tree.write(name, "")
    assert has_gpu_driver(host_tree.root) is has_gpu
    assert has_amd_driver(host_tree.root) is is_amd
    assert gpu_count(host_tree.root, {}) == count


def test_gpus_of_amd_are_the_nodes_with_simds(host_tree):
    for number, simds in enumerate((0, 1216, 1216)):
        name = f"sys/class/kfd/kfd/topology/nodes/{number}/properties"
        host_tree.write(name, f"cpu_cores_count 0\nsimd_count {simds}")
    assert gpu_count(host_tree.root, {}) == 2
    for environ, count in (
        ({"CUDA_VISIBLE_DEVICES": "0,2,5"}, 3),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"HIP_VISIBLE_DEVICES": "1"}, 1),
    ):
        assert gpu_count(host_tree.root, environ) == count


def test_only_tools_that_are_installed_and_succeed_are_quoted():
    found = printed_by_tools((("echo", "a", "b"), ("false",), ("no-such-tool-anywhere", "x")))
    assert found == {"echo a b": "a b"}
