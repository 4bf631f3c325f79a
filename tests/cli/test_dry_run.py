from __future__ import annotations

import json
from pathlib import Path

from gemmetry.cli.console import print_plan
from gemmetry.dispatches.profile import prepare
from gemmetry.domain.specs.model import ProfileSpec


def test_counts_and_first_names(capsys):
    spec = ProfileSpec(providers="null,numpy", device="cpu,cuda-sm_80", shapes="8x8x8", name="x")
    prepared = prepare(spec)
    print_plan(prepared, as_json=False)
    text = capsys.readouterr().out
    assert "numpy on cuda-sm_80: 1 (1 unsupported)" in text
    assert "numpy:matmul_8x8x8_f32t_f32t_f32t_default\n" in text
    assert f"experiment: gemmetry-out/x-{prepared.plan.hash}" in text


def test_the_whole_plan_as_json(capsys):
    prepared = prepare(ProfileSpec(providers="null", shapes="squares"))
    print_plan(prepared, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["dispatches"] == 12
    assert document["operations"] == 6
    assert document["plan_hash"] == prepared.plan.hash
    assert document["plan"] == prepared.plan.document


def test_one_of_each_is_shown_in_the_singular(cli):
    ended = cli("profile", "--providers", "null", "--shapes", "8x8x8", "--dtypes", "f32",
                "--dispatches", "*_default", "--dry-run")  # fmt: skip
    assert ended.stdout.startswith("1 dispatch of 1 operation would run:\n  null on null: 1\n")
    assert not list(Path().iterdir())


def test_what_nodes_may_support_is_not_called_unsupported(capsys):
    spec = ProfileSpec(providers="torch,numpy", device="cuda-sm_90", shapes="8x8x8", executor="ray")
    print_plan(prepare(spec), as_json=False)
    text = capsys.readouterr().out
    assert "torch on cuda-sm_90: 2\n" in text
    assert "numpy on cuda-sm_90: 1 (1 unsupported)" in text, "on no host at all"


def test_what_a_cluster_cannot_do_is_refused_as_in_a_run(cli):
    ended = cli("profile", "--providers", "null", "--device", "cpu,null", "--shapes", "8x8x8",
                "--executor", "ray", "--dry-run")  # fmt: skip
    assert ended.status == 2
    assert "serves one target" in ended.stderr
