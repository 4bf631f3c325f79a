from __future__ import annotations

import shutil
import subprocess

import pytest

import gemmetry
from gemmetry.hardware import detect as environment
from gemmetry.hardware.detect import (
    GpuFacts,
    GpuList,
    _variables,
    capture_environment,
    git_revision,
    masked_words,
)


def test_this_machine_is_described():
    found = capture_environment({"numpy": "1.2.3"})
    assert found.hostname
    assert found.cpu
    assert found.cpu_count >= 1
    assert found.packages == {"gemmetry": gemmetry.__version__, "numpy": "1.2.3"}
    assert found.id == capture_environment({"numpy": "1.2.3"}).id
    assert found.id != capture_environment({"numpy": "1.2.4"}).id


def test_two_cards_of_one_model_are_two_environments(monkeypatch):
    def here(uuid):
        gpus = GpuList((GpuFacts(kind="cuda", index=0, name="NVIDIA H200", uuid=uuid),), "", "")
        monkeypatch.setattr(environment, "nvidia_gpus", lambda: gpus)
        return capture_environment({})

    one, other = here("GPU-1"), here("GPU-2")
    assert one.devices == other.devices == ("NVIDIA H200",)
    assert one.differences(other) == ["device_ids: GPU-1 vs GPU-2"]


def test_memory_and_power_limits_are_part_of_the_environment_where_they_are_known(monkeypatch):
    def here(**facts):
        gpus = GpuList((GpuFacts(kind="cuda", index=0, name="NVIDIA H200", **facts),), "", "")
        monkeypatch.setattr(environment, "nvidia_gpus", lambda: gpus)
        return capture_environment({})

    full, less, unknown = (
        here(memory_bytes=150 * 10**9, power_limit_w=700.0),
        here(memory_bytes=150 * 10**9, power_limit_w=500.0),
        here(),
    )
    assert full.power_limits_w == (700.0,)
    assert full.device_memory_bytes == (150 * 10**9,)
    assert (unknown.power_limits_w, unknown.device_memory_bytes) == ((), ())
    assert full.id != less.id
    assert not full.agrees_with(less)
    assert full.differences(less) == ["power_limits_w: 700.0 vs 500.0"]
    assert full.agrees_with(unknown), "an environment that was stored before limits were read"
    assert unknown.agrees_with(full)


def test_versions_are_stored_as_plain_text():
    class Version(str):
        """The class of torch's version."""

    packages = capture_environment({"torch": Version("2.13.0")}).packages
    assert type(packages["torch"]) is str


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


@pytest.mark.parametrize(
    ("words", "stored"),
    [
        (["--url", "https://me:hidden@host:80/x?y=1"], ["--url", "https://***@host:80/x?y=1"]),
        (["run", "TOKEN=hidden", "DB_PASSWORD=hidden"], ["run", "TOKEN=***", "DB_PASSWORD=***"]),
        (["--password", "hidden", "--api-key=hidden"], ["--password", "***", "--api-key=***"]),
        (["hf_hiddenhiddenhidden", "ghp_hidden0123456789"], ["***", "***"]),
        (["sh", "-c", "curl redis://:hidden@x/ --token hidden"],
         ["sh", "-c", "curl redis://***@x/ --token ***"]),
        (["--token-file", "t", "--set", "seed=7", "a@b", "--kernel", "x/key.py:f", "keys=8"],
         ["--token-file", "t", "--set", "seed=7", "a@b", "--kernel", "x/key.py:f", "keys=***"]),
    ],
)  # fmt: skip
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


def test_without_git_there_is_no_revision(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_revision(tmp_path) == ""
