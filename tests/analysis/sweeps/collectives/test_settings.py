"""Whether settings took effect, for launches as NCCL's sources give them and for planted ones."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from gemmetry.sweeps.nccl_settings import setting_verdicts, sweep_verdicts
from gemmetry.sweeps.points import PointSelection, analyse_sweep

_SPEC = importlib.util.spec_from_file_location("cases", Path(__file__).parents[3] / "cases.py")
cases = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(cases)

SETTINGS = Path(__file__).with_name("settings.txt")


def judged(lines, point, facts, launch):
    """Verdicts on each point; after a line ``sweep`` also on all of them."""
    made = []
    for line in lines:
        what, _, given = cases.arguments(line)
        if what == "point":
            made.append((point(**given), {}, []))
        elif what == "rank":
            made[-1][1].update(given)
        elif what == "launch":
            made[-1][2].append(launch(**given))
    points = []
    for one, head, launches in made:
        ranks = [facts(*launches, **head)]
        points.append((one, setting_verdicts(one, ranks), ranks))
        yield f"{one.label}:"
        for found in points[-1][1]:
            values = {name: getattr(found, name) for name in ("seen", "verdict", "reason")}
            yield cases.shown(found.name, values)
            for kind in found.collectives:
                yield cases.shown(f"  {kind.operation}", {"verdict": kind.verdict})
    for found in sweep_verdicts(points) if "sweep" in lines else ():
        values = {name: getattr(found, name) for name in ("values", "verdict", "reason")}
        yield cases.shown(f"all: {found.name}", values)


@pytest.mark.parametrize("title", cases.read(SETTINGS))
def test_verdicts(title, point, facts, launch):
    lines = cases.read(SETTINGS)[title][0]
    cases.check(SETTINGS, title, list(judged(lines, point, facts, launch)))


ROOT = Path(__file__).parents[4]
FOLDER = Path(os.environ.get("GEMMETRY_TRACES", "") or ROOT.parent / "shared" / "data")


@pytest.mark.skipif(not (FOLDER / "sweep_h200x4").is_dir(), reason="needs sweep_h200x4")
def test_the_settings_of_a_real_sweep_are_in_effect():
    selection = PointSelection(channels=[4], ranks=[0])
    found = analyse_sweep(FOLDER / "sweep_h200x4", selection=selection, processes=1)
    assert {one.verdict for point in found.points for one in point.settings} == {"in effect"}
    kinds = [one for point in found.points for one in point.settings[1].collectives]
    assert {one.operation for one in kinds} == {"all_gather", "reduce_scatter"}
    assert {one.block for one in kinds} == {288, 544}
