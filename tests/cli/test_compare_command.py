from __future__ import annotations

import json
from pathlib import Path

import pytest


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


