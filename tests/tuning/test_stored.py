from __future__ import annotations

import json

import pytest
from tests import tuned

from gemmetry.domain.errors import Outcome, RequestError, Verification
from gemmetry.domain.record import Environment, ResultSet, Verdict
from gemmetry.tuning.simulation import (
    StoredSpace,
    StoredTime,
    compact,
    median_of,
    open_space,
    read_compact,
    stored_space,
)

OPERATION = "matmul_4096x4096x4096_bf16t_bf16n_bf16t"


def record(configuration, ns=None, provider="triton", outcome=Outcome.OK, passed=True):
    status = Verification.PASSED if passed else Verification.NOT_VERIFIED
    return tuned.record(
        OPERATION, provider, configuration, ns, target="cuda-sm_90", device="cuda:0",
        outcome=outcome, reason="" if outcome is Outcome.OK else "it broke",
        verdict=Verdict(status=status), environment_id="e",
        configuration_parameters={"block_m": 64, "block_n": 64, "block_k": int(ns or 32)},
    )  # fmt: skip


def results(*records):
    devices = {"e": Environment(devices=("NVIDIA H200",))}
    return ResultSet(title="t", records=records, environments=devices, command="gemmetry tune")


def tiles(step):
    """25 configurations, and one that crashed."""
    tiled = [record(f"tile_{i}", step * (100 + 10 * i)) for i in range(25)]
    return [*tiled, record("bad", outcome=Outcome.CRASH)]


def test_only_a_verified_result_has_a_time():
    assert median_of(record("a", 7.0)) == 7.0
    assert median_of(record("a", 7.0, passed=False)) is None
    assert median_of(record("a", outcome=Outcome.WRONG)) is None


def test_an_experiment_becomes_a_space_of_the_provider_with_most_configurations():
    found = stored_space(results(*tiles(10.0), record("default", 5.0, "torch")))
    described = (found.provider, found.device, found.command)
    assert described == ("triton", "NVIDIA H200", "gemmetry tune")
    (space,) = found.measured()
    assert (len(space.space), space.best_ns, space.times_ns[-1]) == (26, 1000, None)
    assert space.errors[0] == pytest.approx(0.002 / 2 / 1.96)


def test_a_compact_file_holds_the_same(tmp_path):
    found = stored_space(results(*tiles(100.0)))
    path = tmp_path / "space.json"
    path.write_bytes(compact(found))
    assert read_compact(path) == open_space(path) == found
    assert json.loads(path.read_bytes())["operations"][OPERATION][-1] == [25, "crash"]


def test_too_few_configurations_are_refused():
    with pytest.raises(RequestError, match="20 configurations"):
        stored_space(results(record("a", 5.0))).measured()
    with pytest.raises(RequestError, match="no results"):
        stored_space(results())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=9), "version 9"),
        (lambda d: d["operations"].update({"nonsense": []}), "damaged"),
        (lambda d: d["operations"].update({OPERATION: [[7, 1.0, 1.0, 1.0]]}), "damaged"),
        (lambda d: d["operations"].update({OPERATION: [[0, -1.0, 1.0, 1.0]]}), "not positive"),
        (lambda d: d["operations"].update({OPERATION: [[0]]}), "damaged"),
        (lambda d: d.pop("target"), "damaged"),
        (lambda d: d.pop("operations"), "damaged"),
    ],
)
def test_damaged_files(tmp_path, change, message):
    times = (StoredTime(configuration="a", median_ns=1.0),)
    space = StoredSpace(provider="triton", target="cuda-sm_90", device="", parameters={"a": {}},
                        operations={OPERATION: times})  # fmt: skip
    document = json.loads(compact(space))
    change(document)
    path = tmp_path / "space.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RequestError, match=message):
        read_compact(path)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(RequestError, match="damaged"):
        read_compact(path)
    with pytest.raises(RequestError, match=r"absent\.json"):
        read_compact(tmp_path / "absent.json")
