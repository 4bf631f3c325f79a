from __future__ import annotations

import json


def test_nothing_is_timed_and_wrong_ends_with_1(cli):
    name = "matmul_16x16x16_f32t_f32t_f32t"
    ended = cli("verify", "run", "--providers", "null", "--json",
                "--dispatches", f"{name}_default,{name}_partial")  # fmt: skip
    assert ended.status == 1
    by_name = {r["configuration"]: r for r in json.loads(ended.stdout)["records"]}
    assert by_name["default"]["verification"] == "passed"
    assert by_name["partial"]["outcome"] == "wrong"
    assert all(record["median_ns"] is None for record in by_name.values())


def test_the_table_is_about_errors(cli):
    ended = cli("verify", "run", "--providers", "null", "--shapes", "16x16x16")
    assert ended.status == 0
    assert "frobenius" in ended.stdout
    assert "GFLOP/s" not in ended.stdout


def test_dry_run(cli):
    ended = cli("verify", "run", "--providers", "null", "--dry-run")
    assert ended.stdout.startswith("6 dispatches")
