from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.errors import EnvironmentFailure, RequestError, UnknownNameError
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.agents import starters
from gemmetry.engine.agents.starting import check_settings, load_starter, starter_names


def test_a_starter_is_a_module_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pretend.py").write_text("STARTER = 'what starts'\n")
    monkeypatch.setattr(starters, "__path__", [*starters.__path__, str(tmp_path)])
    assert "pretend" in starter_names()
    assert load_starter("pretend") == "what starts"


def test_an_unknown_starter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as refused:
        load_starter("slrm")
    assert refused.value.exit_status == 2
    assert "executor 'slrm'" in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "message", "step"),
    [
        ({"executor": "loopback", "devices": ("2",)}, "a number names no device", "--agents 2"),
        ({"devices": ("2",)}, "a number names no device", "--devices cuda:0,cuda:1."),
        ({"executor": "loopback", "devices": ("all",)}, "for this machine", "--agents"),
        ({"executor": "loopback", "devices": ("gpu0",)}, "'gpu0'", "cuda:1"),
        ({"executor": "loopback", "devices": ("null:0", "null:1"), "agents": 3},
         "--agents is 3, but --devices name 2", "Leave --agents out"),
        ({"agents": 2}, "--agents without --executor", "--executor loopback"),
        ({"listen": "node1", "token_file": "t", "agent_wait_s": 3.0},
         "--listen, --token-file, --agent-wait without --executor", "leave them out"),
        ({"executor_options": {"hosts": "a"}}, "--executor-options without", "leave it out"),
        ({"executor": "agents", "devices": ("cuda:0",)}, "starts nothing", "--device"),
        ({"executor": "agents", "executor_options": {"hosts": "a"}}, "starts nothing", "--device"),
        ({"executor": "agents", "listen": ""}, "the address ''", "HOST:PORT"),
        ({"executor": "agents", "token_file": "/nowhere/t"}, "/nowhere/t", "openssl rand"),
        ({"executor": "loopback", "executor_options": {"device": "x"}}, "'device'", "devices"),
        ({"executor": "slurm", "devices": ("cuda:0",)}, "devices itself", "--agents"),
        ({"executor": "slurm", "executor_options": {"Part": "x"}}, "no option 'Part'", "sbatch"),
        ({"executor": "ray", "devices": ("cuda:0",)}, "Ray chooses", "--agents"),
        ({"executor": "ray", "executor_options": {"num_gpus": "x"}}, "num_gpus is 'x'", "number"),
        ({"executor": "ssh"}, "needs the names of hosts", "hosts=a,b"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_with_the_next_step(settings, message, step) -> None:
    with pytest.raises(RequestError) as refused:
        check_settings(RunSettings(**settings))
    assert message in refused.value.message
    assert step in refused.value.hint
    assert refused.value.exit_status == 2


def test_what_goes_together_is_not_refused() -> None:
    check_settings(RunSettings())
    check_settings(RunSettings(devices=("cuda:0", "cuda:1")))
    check_settings(RunSettings(executor="loopback", devices=("cuda:0", "cuda:1"), agents=2))
    check_settings(RunSettings(executor="agents", agents=3, listen="[::1]:7777"))


def test_a_token_that_all_users_can_read_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    settings = RunSettings(executor="agents", token_file=str(token))
    token.chmod(0o644)
    with pytest.raises(RequestError, match="all users of this machine") as refused:
        check_settings(settings)
    assert refused.value.hint.startswith(f"chmod 600 {token};")
    assert "defaultMode: 0400" in refused.value.hint  # A mounted secret cannot be changed.
    token.chmod(0o440)  # A secret of Kubernetes that a group may read.
    check_settings(settings)


def test_a_scheduler_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailure, match="sbatch, squeue, scancel are not on PATH"):
        check_settings(RunSettings(executor="slurm"))
