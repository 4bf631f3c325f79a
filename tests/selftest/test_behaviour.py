"""What every kernel of the host does in the same situations, against ``tests/data/mutants.txt``.

A line of that file has a character for each situation: ``.`` right, ``+`` wrong in places, ``#``
wrong everywhere, ``z`` bytes around the output changed, ``E`` an exception, ``?`` left to chance.
``GEMMETRY_WRITE_GOLDEN=1`` writes it again; a cell that has varied stays ``?``.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.errors import DispatchError
from gemmetry.domain.operation import Conv2dShape
from gemmetry.numerics.references import compute_reference, to_logical
from gemmetry.numerics.storage import Array, to_float64
from gemmetry.selftest import rare
from gemmetry.selftest.branches import Plans
from gemmetry.selftest.provider import Carrier, Mutant, all_mutants

from .conftest import DEVICE, SENTINEL, drawn

GOLDEN = Path(__file__).parent.parent / "data" / "mutants.txt"
ITEMS = [one for one in all_mutants() if one.carrier is Carrier.HOST and one.slug != "hangs"]
SHAPES = (
    (67, 45, 37), (64, 1, 20), (1, 72, 40), (20, 20, 20), (128, 200, 8), (8, 8, 1), (70, 130, 31),
)  # fmt: skip


def _again(bench: Any) -> None:
    """The same launch once more."""


def _over_its_result(bench: Any) -> None:
    bench.sentinel = None


def _over_zeros(bench: Any) -> None:
    bench.sentinel = 0


def _other_inputs(bench: Any) -> None:
    new = drawn(bench.operation, "uniform_signed", 99)
    for buffer, array in zip(bench.buffers, new, strict=True):
        buffer[...] = array


def _one_of_a(bench: Any) -> None:
    flat = bench.buffers[0].reshape(-1)
    flat[flat.size // 3] = flat[flat.size // 3] + flat.dtype.type(7)


def _rows_of_a_exchanged(bench: Any) -> None:
    bench.buffers[0][..., [0, 1], :] = bench.buffers[0][..., [1, 0], :]


def _all_of_b(bench: Any) -> None:
    bench.buffers[1][...] = -bench.buffers[1]


def _tiny_row(bench: Any) -> None:
    bench.buffers[0][..., -1, :] *= bench.buffers[0].dtype.type(2.0**-8)


def _nan(bench: Any) -> None:
    bench.buffers[0][..., -1, :] = np.nan


def _infinity(bench: Any) -> None:
    bench.buffers[1][..., 0] = np.inf


def _unaligned(bench: Any) -> None:
    for place, (spec, old) in enumerate(zip(bench.operation.inputs, bench.buffers, strict=True)):
        size = spec.dtype.itemsize
        new = DEVICE.allocate_with_red_zones(spec, zone_bytes=4096, offset_bytes=size)
        new[...] = old
        bench.buffers[place] = new


def _in_a_thread(bench: Any) -> None:
    bench.in_thread = True


CHANGES: tuple[Callable[[Any], None], ...] = (
    _again, _over_its_result, _over_zeros, _other_inputs, _one_of_a, _rows_of_a_exchanged,
    _all_of_b, _tiny_row, _nan, _infinity, _unaligned, _in_a_thread,
)  # fmt: skip


def _launched(bench: Any, change: Callable[[Any], None]) -> str:
    """One launch after a change of what it finds, as a character."""
    bench.sentinel, bench.in_thread = SENTINEL, False
    try:
        with np.errstate(all="ignore"):
            change(bench)
            if bench.sentinel is not None:
                DEVICE.fill_bytes(bench.output, bench.sentinel)
            found: list[Any] = []
            thread = threading.Thread(target=lambda: found.append(_result(bench)))
            if bench.in_thread:
                thread.start()
                thread.join()
            result = found[0] if bench.in_thread else _result(bench)
            if isinstance(result, str):
                return result
            near = _near(bench, to_float64(to_logical(np.array(result), bench.operation.output)))
    except (OverflowError, TypeError, ValueError):
        return "-"  # the format or the operation has nothing like it
    if not DEVICE.red_zones_intact(bench.output):
        return "z"
    return "." if near.all() else "+" if near.any() else "#"


_WANTED: dict[tuple[str, ...], tuple[Array, Array]] = {}
"""References and errors that are allowed, of an operation and the contents of its inputs."""


def _near(bench: Any, got: Array) -> Array:
    """Which elements are right."""
    digests = [hashlib.blake2b(buffer.tobytes()).hexdigest() for buffer in bench.buffers]
    key = (str(bench.operation), *digests)
    if key not in _WANTED:
        reference = compute_reference(bench.operation, tuple(map(np.array, bench.buffers)))
        wanted = to_float64(reference.value)
        unit = bench.operation.output.dtype.unit_roundoff
        _WANTED[key] = wanted, 2 * unit * np.abs(wanted) + 1e-6 * reference.magnitude
    wanted, allowed = _WANTED[key]
    near = np.abs(got - wanted) <= allowed
    special = ~np.isfinite(wanted)
    near[special] = ~np.isfinite(got[special]) | (wanted[special] < 0)
    return near


def _result(bench: Any) -> Any:
    """What a launch returns; "E" for an exception or another form."""
    try:
        result = np.asarray(bench.executable.run(bench.buffers, bench.output))
    except (ArithmeticError, AssertionError, AttributeError, DispatchError, LookupError,
            RecursionError, TypeError, ValueError):  # fmt: skip
        return "E"
    return result if result.shape == bench.output.shape else "E"


def _line(plant: Any, item: Mutant) -> str:
    def bench(shape: tuple[int, int, int] | None) -> Any:
        made = plant(item.slug, shape, item=item)
        made.kernel.chance.seed(item.slug)
        return made

    Plans.kept.clear()
    own = bench(None)
    line = "".join(_launched(own, change) for change in CHANGES)
    shapes = [] if isinstance(own.operation.shape, Conv2dShape) else list(SHAPES)
    for shape in shapes:
        try:
            line += _launched(bench(shape), _again)
        except (DispatchError, AssertionError, LookupError, ArithmeticError, ValueError):
            line += "E"
    return line


@cache
def _golden() -> dict[str, str]:
    lines = GOLDEN.read_text("utf-8").splitlines() if GOLDEN.exists() else []
    return dict(line.split() for line in lines)


@pytest.fixture(autouse=True)
def without_slow_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow starts change no result."""
    monkeypatch.setattr(rare, "SLOW_START_S", 0.0)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.configuration)
def test_a_kernel_does_what_it_did(plant: Any, item: Mutant) -> None:
    found, known = _line(plant, item), _golden().get(item.configuration, "")
    if os.environ.get("GEMMETRY_WRITE_GOLDEN"):
        pairs = zip(found, known or found, strict=True)
        _golden()[item.configuration] = "".join(a if a == b else "?" for a, b in pairs)
        GOLDEN.write_text("".join(f"{name} {text}\n" for name, text in _golden().items()), "utf-8")
        return
    assert len(found) == len(known)
    assert [now for now, before in zip(found, known, strict=True) if before not in (now, "?")] == []


def _of_slug(plant: Any, slug: str) -> Any:
    """A kernel that may be an unseen one."""
    return plant(slug, item=next(one for one in ITEMS if one.slug == slug))


def test_what_the_addend_leaves_is_rounded_before(plant: Any) -> None:
    """The unseen kernel that no check kills is wrong."""
    bench = _of_slug(plant, "rounds_before_addend")
    for buffer, number in zip(bench.buffers, (0, 1, -256), strict=True):
        buffer[...] = number
    bench.buffers[0][:, :3] = (128, 128, 1)
    assert not bench.launch().any()


def test_each_eleventh_launch_is_lost(plant: Any) -> None:
    bench = _of_slug(plant, "every_eleventh_after_slow_start")
    assert [number for number in range(1, 23) if not bench.is_right()] == [11, 22]
