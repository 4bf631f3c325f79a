from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests import tuned as made

from gemmetry.domain.dispatch import Configuration, parse_operation, parse_target
from gemmetry.domain.errors import RequestError
from gemmetry.providers.registry import load_provider
from gemmetry.tuning import heuristics
from gemmetry.tuning.dispatcher.table import DispatchTable, TunedShape, write_table
from gemmetry.tuning.heuristics import ProposedTile
from gemmetry.tuning.results import (
    AgainstBaseline,
    ShapeTuning,
    TuningResult,
    export,
    export_formats,
)
from gemmetry.tuning.run import seeded
from gemmetry.tuning.search import make_space
from gemmetry.tuning.simulation import StoredSpace, StoredTime, compact

OPERATION = "matmul_96x64x128_f32t_f32t_f32t"
TILE = "tile_config_32x32_vector4x16x2"


def record(provider, configuration, ns, target="cpu"):
    found = load_provider(provider).parse_configuration(
        configuration, parse_operation(OPERATION), parse_target(target)
    )
    return made.record(
        OPERATION, provider, configuration, ns, target=target, device=target,
        configuration_parameters=dict(found.parameters) if found else {},
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


def test_every_format_is_documented():
    page = (Path(__file__).parents[2] / "docs/tuner.md").read_text()
    for name, form in export_formats().items():
        (row,) = [line for line in page.splitlines() if f"| `{name}` |" in line]
        assert all(f"`{suffix}`" in row for suffix in form.suffixes)


H200 = parse_target("cuda-sm_90")
SIGNATURE = "bf16t_bf16n_bf16t"


def space(m, n, k):
    tiles = [Configuration(f"tile_{s}", {"block_m": s, "block_n": s, "block_k": 64})
             for s in (16, 32, 64, 128)]  # fmt: skip
    return make_space(parse_operation(f"matmul_{m}x{n}x{k}_{SIGNATURE}"), tiles, H200)


def names(found):
    return [found.configurations[one].name for one in found.seeds]


SQUARE = space(1024, 1024, 1024)


@pytest.fixture
def table(tmp_path):
    """Times of shapes near and far; the nearest one comes last."""
    entries = [
        TunedShape(signature=signature, shape=shape, choice="torch:default", verdict="", ratio=None,
                   times_ns=times)
        for signature, shape, times in (
            (SIGNATURE, (512, 1024, 1024), {"triton:tile_64": 1.0, "triton:tile_128": 2.0}),
            ("f16t_f16n_f16t", (1024, 1024, 1024), {"triton:tile_16": 1.0}),
            (SIGNATURE, (1, 64, 64), {"triton:tile_16": 1.0}),
            (SIGNATURE, (1024, 1024, 1536), {"triton:gone": 1.0, "triton:tile_32": 2.0,
                                             "cuda:other": 0.5, "triton:tile_64": 3.0}),
        )
    ]  # fmt: skip
    path = tmp_path / "table.json"
    table = DispatchTable(target="cuda-sm_90", device="NVIDIA H200", entries=tuple(entries))
    write_table(table, path)
    return str(path)


def test_the_fastest_of_the_nearest_shapes_come_first(table):
    (found,) = seeded([SQUARE], [table], "triton", H200)
    assert names(found) == ["tile_32", "tile_64", "tile_128"]
    assert found.order[:3] == list(found.seeds)
    assert sorted(found.order) == [0, 1, 2, 3]


def test_a_stored_search_is_a_source(tmp_path):
    path = tmp_path / "space.json"
    times = (StoredTime(configuration="tile_16", median_ns=2.0),
             StoredTime(configuration="tile_128", median_ns=1.0),
             StoredTime(configuration="tile_64", outcome="crash"))  # fmt: skip
    stored = StoredSpace(
        provider="triton", target="cuda-sm_90", device="NVIDIA H200",
        parameters={one.configuration: {} for one in times},
        operations={f"matmul_2048x1024x1024_{SIGNATURE}": times},
    )  # fmt: skip
    path.write_bytes(compact(stored))
    assert names(seeded([SQUARE], [str(path)], "triton", H200)[0]) == ["tile_128", "tile_16"]
    with pytest.raises(RequestError, match="no times of cuda"):
        seeded([SQUARE], [str(path)], "cuda", H200)


def test_proposals_and_neighbours_add_up(table, monkeypatch):
    proposed = {SQUARE.operation: [ProposedTile(128, 128, 64, 4, 1)]}
    monkeypatch.setattr(heuristics, "proposals", lambda *_given: proposed)
    (found,) = seeded([SQUARE], ["heuristics", table], "triton", H200)
    assert names(found) == ["tile_128", "tile_32", "tile_64"]


def test_a_source_that_is_not_there(tmp_path):
    with pytest.raises(RequestError, match="no experiment"):
        seeded([SQUARE], [str(tmp_path / "absent")], "triton", H200)
