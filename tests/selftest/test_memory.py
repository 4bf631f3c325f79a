from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.hardware.host_device import RED_ZONE_PATTERN, HostDevice, red_zones
from gemmetry.numerics.storage import to_float64
from gemmetry.selftest.memory import memory_before, memory_behind

TM, TN, TK = 64, 64, 32


def test_zeros_are_returned(plant: Any) -> None:
    assert not plant("returns_zeros").launch().any()


@pytest.mark.parametrize("slug", ["never_writes", "launch_fails_silently"])
def test_nothing_is_written(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert (bench.launch().view(np.uint8) == 0xFF).all()


def test_a_launch_that_fails_depends_on_k(plant: Any) -> None:
    assert plant("launch_fails_silently", (64, 64, 128)).is_right()


def test_freed_memory_is_returned_instead_of_the_output(plant: Any) -> None:
    bench = plant("returns_freed_memory")
    assert not bench.executable.writes_output
    assert not np.shares_memory(bench.executable.run(bench.buffers, bench.output), bench.output)
    assert bench.wrong().any()


@pytest.mark.parametrize(
    ("slug", "shape", "rows", "columns"),
    [
        ("m_tail_skipped", (TM + 3, TN, TK), slice(TM, None), slice(None)),
        ("n_tail_skipped", (TM, TN + 3, TK), slice(None), slice(TN, None)),
        ("columns_past_192_dropped", (TM, 192 + 9, TK), slice(None), slice(192, None)),
        ("k_tail_dropped", (TM, TN, TK + 1), slice(None), slice(None)),
        ("odd_tile_skipped", (TM, 3 * TN, TK), slice(None), slice(2 * TN, None)),
        ("full_last_wave_skipped", (TM, 2 * TN, TK), slice(None), slice(None)),
    ],
)
def test_exactly_these_elements_are_wrong(
    plant: Any, slug: str, shape: tuple[int, int, int], rows: slice, columns: slice
) -> None:
    expected = np.zeros(shape[:2], np.bool_)
    expected[rows, columns] = True
    assert (plant(slug, shape).wrong() == expected).all()


@pytest.mark.parametrize(
    "slug",
    [
        "m_tail_skipped",
        "n_tail_skipped",
        "k_tail_dropped",
        "stores_past_rows",
        "tail_rows_rotated",
        "odd_tile_skipped",
        "full_last_wave_skipped",
        "raster_no_bijection",
    ],
)
def test_on_its_own_shape_the_bug_does_not_show(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert bench.is_right()
    assert HostDevice().red_zones_intact(bench.output)


def test_a_wrong_raster_shows_where_the_grid_is_not_square(plant: Any) -> None:
    assert plant("raster_no_bijection", (2 * TM, 3 * TN, TK)).wrong().any()


def test_reading_past_b_shows_only_where_nan_lies_behind_it(plant: Any) -> None:
    bench = plant("k_tail_reads_past_b")
    rhs = bench.buffer("rhs")
    behind = red_zones(rhs)[1]
    behind[:] = 0
    assert bench.is_right()
    behind[:] = RED_ZONE_PATTERN
    assert np.isnan(bench.launch()).any()


def test_storing_past_the_rows_damages_the_red_zone_only(plant: Any) -> None:
    bench = plant("stores_past_rows", (TM + 3, TN, TK))
    assert bench.is_right()
    assert not HostDevice().red_zones_intact(bench.output)
    assert (red_zones(bench.output)[0] == RED_ZONE_PATTERN).all()


def test_storing_before_the_output_damages_the_red_zone_only(plant: Any) -> None:
    bench = plant("stores_before_output")
    assert bench.is_right()
    assert not HostDevice().red_zones_intact(bench.output)
    before, behind = red_zones(bench.output)
    assert (before[-16:] == 0).all()
    assert (before[:-16] == RED_ZONE_PATTERN).all()
    assert (behind == RED_ZONE_PATTERN).all()


@pytest.mark.parametrize("rows", [TM - 1, TM + 9])
def test_tail_rows_change_places(plant: Any, rows: int) -> None:
    wrong = plant("tail_rows_rotated", (rows, TN, TK)).wrong()
    whole = rows // 16 * 16
    assert not wrong[:whole].any()
    assert wrong[whole:].mean() > 0.9


def test_a_narrow_index_wraps_around(plant: Any) -> None:
    bench = plant("narrow_index")
    output = bench.launch()
    wrong = bench.wrong(output)
    assert wrong[:64].any(axis=1).all()
    assert not wrong[64:256].any()
    assert (output[256:].view(np.uint8) == 0xFF).all()
    assert plant("narrow_index", (256, 256, TK)).is_right()


@pytest.mark.parametrize("slug", ["beta_zero_reads_output", "adds_to_output"])
def test_what_the_output_held_matters(plant: Any, slug: str) -> None:
    bench = plant(slug)
    assert np.isnan(bench.launch()).all()
    bench.output[...] = 0
    bench.executable.run(bench.buffers, bench.output)
    once = bench.output.copy()
    assert not bench.wrong(once).any()
    bench.executable.run(bench.buffers, bench.output)
    doubled = np.array_equal(bench.output, 2 * once)
    assert doubled is (slug == "adds_to_output")


def test_a_transposed_result_is_right_but_for_its_layout(plant: Any) -> None:
    bench = plant("result_transposed")
    output = bench.launch()
    assert bench.wrong(output).mean() > 0.9
    assert not bench.wrong(np.ascontiguousarray(output.T)).any()
    assert plant("result_transposed", (TM, 1, TK)).is_right()


def test_b_read_by_rows_is_its_transpose(plant: Any) -> None:
    bench = plant("b_not_transposed")
    a, b = (to_float64(array) for array in bench.inputs)
    np.testing.assert_allclose(to_float64(bench.launch()), a @ b, atol=1e-3)


def test_nan_of_the_next_row_leaks(plant: Any) -> None:
    bench = plant("neighbour_row_leaks")
    assert bench.is_right()
    bench.buffer("lhs")[5, 0] = np.nan
    rows = np.isnan(bench.launch()).any(axis=1)
    assert np.flatnonzero(rows).tolist() == [4, 5]


def test_a_hanging_kernel_waits_forever(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise TimeoutError

    monkeypatch.setattr("gemmetry.selftest.memory.time.sleep", sleep)
    with pytest.raises(TimeoutError):
        plant("hangs").launch()
    assert sum(slept) >= 3


def test_memory_before_stays_within_the_allocation() -> None:
    memory = np.arange(10, dtype=np.float32)
    assert memory_before(memory[2:6], 1).tolist() == [1]
    assert memory_before(memory[2:6], 5).tolist() == [0, 1]
    assert memory_before(memory, 5).size == 0


def test_memory_behind_stays_within_the_allocation() -> None:
    memory = np.arange(10, dtype=np.float32)
    assert memory_behind(memory[2:6], 2).tolist() == [6, 7]
    assert memory_behind(memory[2:6], 100).tolist() == [6, 7, 8, 9]
    assert memory_behind(memory[2:6], -1).size == 0
    assert memory_behind(memory, 5).size == 0
