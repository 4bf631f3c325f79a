from __future__ import annotations

import dataclasses

import pytest
from tests import tuned

from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.record import Environment, ResultSet
from gemmetry.domain.settings import DISTRIBUTIONS, RunSettings

OPERATION = "matmul_4x4x4_f32t_f32t_f32t"


def make_record(median_ns=None, **changes):
    return tuned.record(
        OPERATION, "numpy", "default", median_ns, **{"flops": 128, "bytes": 192, **changes}
    )


def test_a_record_is_one_line_at_a_prompt():
    measured = make_record(12_345.0, device="cpu:0")
    assert repr(measured) == f"<Record numpy:{OPERATION}_default on cpu:0: ok, 12.3 µs>"
    failed = make_record(outcome=Outcome.CRASH, reason="it died", device="")
    assert repr([failed]) == f"[<Record numpy:{OPERATION}_default on cpu: crash>]"


def test_rates_are_per_nanosecond_of_the_median():
    record = make_record(64.0)
    assert record.gflops == 2.0
    assert record.bandwidth_gb_per_s == 3.0
    assert record.key == ("cpu", "numpy", f"{OPERATION}_default")
    for record in (make_record(), make_record(0.0)):
        assert record.gflops is record.bandwidth_gb_per_s is None


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.OK])
def test_only_ok_carries_a_time_and_all_else_a_reason(outcome):
    with pytest.raises(ValueError, match="carries no measurement"):
        make_record(1.0, outcome=outcome, reason="x")
    with pytest.raises(ValueError, match="needs a reason"):
        make_record(outcome=outcome)
    assert make_record(outcome=outcome, reason="x", stage=Stage.VERIFY).reason == "x"


def test_environments_are_equal_by_content_and_differ_by_key():
    packages = {"numpy": "2", "torch": "3"}
    first = Environment(hostname="a", packages=packages)
    assert first.id == Environment(hostname="a", packages=dict(reversed(packages.items()))).id
    other = Environment(hostname="b", packages=packages)
    assert first.id != other.id
    assert first.differences(other) == ["hostname: a vs b"]
    first = Environment(packages=packages, devices=("H100", "H200"))
    second = Environment(packages={"numpy": "2", "triton": "3"}, variables={"OMP_NUM_THREADS": "1"})
    assert first.differences(second) == [
        "devices: H100, H200 vs none", "packages.torch: 3 vs none", "packages.triton: none vs 3",
        "variables.OMP_NUM_THREADS: none vs 1",
    ]  # fmt: skip
    # Packages that only one side lists are no contradiction.
    one = Environment(hostname="here", packages={"numpy": "2.0"})
    more = dataclasses.replace(one, packages={"numpy": "2.0", "torch": "2.13"})
    assert one.agrees_with(more) and more.agrees_with(one)
    assert not dataclasses.replace(one, packages={"numpy": "1.26"}).agrees_with(more)
    assert not dataclasses.replace(one, hostname="there").agrees_with(more)


def test_readers_are_shown_the_second_in_which_an_experiment_was_created():
    for created in ("2026-11-24T04:46:26.342811+00:00", "2026-11-24T04:46:26+00:00"):
        results = ResultSet(title="demo", records=[], environments={}, created=created)
        assert results.created_second == "2026-11-24T04:46:26+00:00"


def test_default_settings_are_sane():
    settings = RunSettings()
    assert settings.distribution in DISTRIBUTIONS
    assert set(settings.deadlines_s) == set(Stage)
    assert all(seconds > settings.time_budget_s for seconds in settings.deadlines_s.values())
    assert settings.seed == 42
    assert RunSettings().deadlines_s is not RunSettings().deadlines_s
