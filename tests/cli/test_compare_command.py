from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_compare_of_equals_finds_no_regression(experiments):
    ended = experiments("compare", "a", "b", "--json", "-o", "c.md")
    assert ended.status == 0
    document = json.loads(ended.stdout)
    assert document["has_regression"] is False
    assert Path("c.md").exists()
    assert experiments("compare", "a", "b").stdout
    assert experiments("compare", "a").status == 2


def test_dispatches_of_one_experiment_are_compared_with_a_baseline(cli):
    names = ",".join(f"matmul_64x64x64_f32t_f32t_f32t_{one}" for one in ("default", "factor_2"))
    request = ("profile", "--providers", "null", "--dispatches", names, "--experiment", "a")
    assert cli(*request).status == 0
    ended = cli("compare", "a", "--baseline", "null:default", "--json")
    assert ended.status == 0, "slower than the baseline is no regression"
    [change] = json.loads(ended.stdout)["candidates"][0]["changes"]
    assert change["verdict"] == "slower"
    assert change["ratio"] == pytest.approx(2.0, rel=0.02)
    assert change["family"] == 1
    assert cli("compare", "a", "--baseline", "nobody").status == 2
    assert cli("compare", "a", "a", "--baseline", "null").status == 2


def test_other_inputs_are_compared_only_on_request(cli):
    request = ("profile", "--providers", "null", "--shapes", "64x64x64")
    assert cli(*request, "--experiment", "a").status == 0
    assert cli(*request, "--experiment", "b", "--distribution", "normal").status == 0
    refused = cli("compare", "a", "b")
    assert refused.status == 2
    assert "distribution" in refused.stderr
    assert cli("compare", "a", "b", "--across-distributions").status == 0


def test_a_kernel_that_became_wrong_is_a_regression(cli):
    kernel = Path("mine.py")
    request = ("profile", "--kernel", "mine.py:mine", "--providers", "user", "--shapes", "16x16x16")
    kernel.write_text("import numpy as np\n\ndef mine(a, b):\n    return np.matmul(a, b)\n")
    assert cli(*request, "--experiment", "a", "--time-budget", "100ms").status == 0
    kernel.write_text("import numpy as np\n\ndef mine(a, b):\n    return np.matmul(a, b) + 1\n")
    assert cli(*request, "--experiment", "b", "--time-budget", "100ms").status == 1
    ended = cli("compare", "a", "b", "--json")
    assert ended.status == 1
    assert json.loads(ended.stdout)["has_regression"] is True


def test_what_is_undecided_fails_unless_it_may_pass(cli):
    """Three samples per side decide nothing, however similar they are."""
    request = ("profile", "--providers", "null", "--shapes", "64x64x64", "--default-config")
    few = ("--benchmark-repetitions", "3")
    assert cli(*request, *few, "--experiment", "a").status == 0
    assert cli(*request, *few, "--experiment", "b").status == 0
    ended = cli("compare", "a", "b", "--json", "-o", "c.xml")
    assert ended.status == 1
    document = json.loads(ended.stdout)
    assert (document["has_regression"], document["has_undecided"]) == (False, True)
    [change] = document["candidates"][0]["changes"]
    assert (change["verdict"], change["ratio_low"], change["adjusted_p_value"]) == (
        "undecided", None, None,
    )  # fmt: skip
    assert 'failures="1"' in Path("c.xml").read_text()
    passed = cli("compare", "a", "b", "--undecided", "pass", "-o", "c.xml")
    assert passed.status == 0
    assert "≷ 1 undecided: too little was measured to decide" in passed.stdout
    assert 'failures="0"' in Path("c.xml").read_text()
    refused = cli("compare", "a", "b", "--undecided", "maybe")
    assert refused.status == 2
    assert "fail" in refused.stderr
    assert "pass" in refused.stderr
    enough = cli(*request, "--benchmark-repetitions", "6", "--experiment", "c")
    assert enough.status == 0
    assert cli("compare", "c", "c").status == 0


def test_a_name_in_the_default_folder_is_suggested(experiments):
    Path("gemmetry-out").mkdir()
    Path("b").rename("gemmetry-out/later")
    ended = experiments("compare", "a", "later")
    assert (ended.status, ended.stdout) == (2, "")
    assert ended.stderr == (
        "error: no experiment in later: there is no such folder\n"
        "hint: Did you mean gemmetry-out/later?\n"
    )
    assert experiments("report", "later").stderr == ended.stderr


def test_an_experiment_against_itself_says_so_first(experiments):
    ended = experiments("compare", "a", "./a")
    assert ended.status == 0
    assert ended.stdout.splitlines()[1].startswith("! B is the same experiment as A")
    assert "same experiment" not in experiments("compare", "a", "b").stdout


def test_a_threshold_has_its_unit(experiments):
    for text in ("5%", "0.05"):
        ended = experiments("compare", "a", "b", "--threshold", text, "--json")
        assert json.loads(ended.stdout)["threshold"] == 0.05
    assert (
        "differences of up to 5 % count as none"
        in experiments("compare", "a", "b", "--threshold", "5%").stdout
    )
    refused = experiments("compare", "a", "b", "--threshold", "5")
    assert refused.status == 2
    assert "error: '5' has no unit: as a fraction it is 500 %" in refused.stderr
    assert "hint: Write 5% or 0.05" in refused.stderr


def test_against_a_baseline_nothing_fails(cli):
    names = ",".join(f"matmul_64x64x64_f32t_f32t_f32t_{one}" for one in ("default", "factor_2"))
    request = ("profile", "--providers", "null", "--dispatches", names, "--experiment", "a")
    assert cli(*request, "--benchmark-repetitions", "2").status == 0
    ended = cli("compare", "a", "--baseline", "null:default", "-o", "c.xml")
    assert ended.status == 0
    assert "1 undecided" in ended.stdout
    assert 'failures="0"' in Path("c.xml").read_text()


def test_files_are_checked_before_any_work(experiments):
    refused = experiments("compare", "a", "b", "-o", "c.pdf")
    assert (refused.status, refused.stdout) == (2, "")
    for suffix in ("csv", "json", "parquet", "xlsx", "md", "html", "xml"):
        assert experiments("compare", "a", "b", "-o", f"c.{suffix}").status == 0
        assert Path(f"c.{suffix}").exists()
