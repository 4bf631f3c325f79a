from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import parse_target
from gemmetry.domain.errors import Outcome, RequestError, UnknownNameError, Verification
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Measurement, Record, Verdict
from gemmetry.providers.registry import load_provider
from gemmetry.tuning.results import (
    AgainstBaseline,
    ShapeTuning,
    TuningResult,
    check_exports,
    export,
    export_formats,
)

OPERATION = "matmul_96x64x128_f32t_f32t_f32t"
TILE = "tile_config_32x32_vector4x16x2"


def record(provider, configuration, ns, target="cpu"):
    found = load_provider(provider).parse_configuration(
        configuration, parse_operation(OPERATION), parse_target(target)
    )
    measured = Measurement(
        median_ns=ns, ci_low_ns=ns, ci_high_ns=ns, min_ns=ns, p95_ns=ns, sample_count=9
    )
    return Record(
        dispatch=f"{OPERATION}_{configuration}", provider=provider, target=target, device=target,
        operation=OPERATION, configuration=configuration, outcome=Outcome.OK, flops=1, bytes=1,
        distribution="normal", seed=1, verdict=Verdict(status=Verification.PASSED),
        measurement=measured, configuration_parameters=dict(found.parameters) if found else {},
    )  # fmt: skip


def tuned(provider="iree", configuration=TILE, target="cpu"):
    against = AgainstBaseline(
        baseline="torch:default", record=record("torch", "default", 2e6), comparison=None
    )
    shape = ShapeTuning(
        operation=OPERATION, space=9, tried=9, failed=0, evaluations=9,
        winner=record(provider, configuration, 1e6, target), against=(against,),
    )  # fmt: skip
    return TuningResult(
        provider=provider, strategy="model", limit="all", seed=1, baselines=("torch:default",),
        shapes=(shape,), is_complete=True, device="a device",
    )  # fmt: skip


def test_the_suffix_picks_the_format(tmp_path):
    for name, part in (
        ("x.mlir", "vector_common_parallel = [4, 16, 0]"),
        ("x.csv", "GemmTunableOp_float_NN,nn_64_96_128_ld_64_128_64,Default,2\n"),
        ("x.md", TILE),
        ("x.html", TILE),
    ):
        export(tuned(), tmp_path / name, None)
        assert part in (tmp_path / name).read_text()
    export(tuned(), tmp_path / "x.json", "results")
    document = json.loads((tmp_path / "x.json").read_text())
    assert document["winners"][0]["configuration"] == TILE
    assert document["winners"][0]["verdict"] == "undecided"
    export(tuned(), tmp_path / "y.csv", "table")
    assert TILE in (tmp_path / "y.csv").read_text()


def test_configurations_of_triton(tmp_path):
    tile = "tile_64x64x32_warps4_stages3_group8"
    found = tuned("triton", tile, "cuda-sm_90")
    export(found, tmp_path / "x.py", None)
    assert 'gemmetry tuned on a device."""' in (tmp_path / "x.py").read_text()
    export(found, tmp_path / "x.json", "triton")
    (rows,) = json.loads((tmp_path / "x.json").read_text())["configurations"].values()
    assert rows[0]["name"] == tile


def test_a_table_needs_finals(tmp_path):
    with pytest.raises(RequestError, match="no finals"):
        export(tuned(), tmp_path / "x.json", None)


@pytest.mark.parametrize(
    ("path", "name", "error", "message"),
    [
        ("x.txt", None, RequestError, "unknown suffix"),
        ("x.md", "iree", RequestError, "unknown suffix"),
        ("x.py", None, RequestError, "configurations of triton, not of iree"),
        ("x.json", "nothing", UnknownNameError, "nothing"),
    ],
)
def test_what_could_not_be_written_is_refused_before_anything_runs(path, name, error, message):
    with pytest.raises(error, match=message):
        check_exports([Path(path)], name, "iree")


def test_every_format_is_documented():
    page = (Path(__file__).parents[3] / "docs/tuner.md").read_text()
    for name, form in export_formats().items():
        (row,) = [line for line in page.splitlines() if f"| `{name}` |" in line]
        assert all(f"`{suffix}`" in row for suffix in form.suffixes)
