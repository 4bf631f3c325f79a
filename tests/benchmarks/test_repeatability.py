from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import repeatability
from repeatability import Repeat

import gemmetry
from gemmetry.domain.record import Record

NULL = {"providers": "null", "device": "null", "shapes": "64x64x64", "verification_level": "quick"}


def test_agreement_and_marks(record: Callable[..., Record]) -> None:
    def repeat(first: Record, second: Record) -> Repeat:
        return Repeat("torch", first.operation, "default", first.measurement, second.measurement)

    near = repeat(record(1000), record(1009))
    assert near.agrees and near.marks == ()
    throttled = "throttled: why"
    far = repeat(record(1000, marks=(throttled,)), record(980, marks=(throttled, "noisy: much")))
    assert not far.agrees
    assert far.apart == pytest.approx(-0.02)
    assert far.marks == ("throttled", "noisy")
    assert "| no | throttled, noisy |" in far.row()
    assert "1 ± 1.0% | 0.98 ± 1.0% | -2.00% |" in far.row()


def test_equal_runs_repeat_and_different_plans_are_refused(tmp_path, capsys, monkeypatch) -> None:
    first, second, other = (str(tmp_path / name) for name in ("first", "second", "other"))
    for folder in (first, second):
        gemmetry.profile(NULL, experiment=folder)
    gemmetry.profile({**NULL, "shapes": "32x32x32"}, experiment=other)
    monkeypatch.setattr("sys.argv", ["repeatability.py", first, second])
    repeatability.main()
    assert "within 1%: 2 of 2" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="32x32x32"):
        repeatability.repeats(tmp_path / "first", tmp_path / "other")


def test_spec_names_twenty_dispatches() -> None:
    from gemmetry.dispatches.profile import read_spec

    spec = read_spec(Path(repeatability.__file__).with_name("repeatability.yaml"))
    assert len(spec.shapes) * len(spec.providers) == 20
