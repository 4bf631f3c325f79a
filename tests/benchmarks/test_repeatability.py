from __future__ import annotations

from pathlib import Path

import pytest
import repeatability
from repeatability import Repeat

import gemmetry
from gemmetry.domain.record import Measurement

NULL = {"providers": "null", "device": "null", "shapes": "64x64x64",
        "verification_level": "quick"}  # fmt: skip


def measurement(median: float, *marks: str) -> Measurement:
    return Measurement(
        median_ns=median,
        ci_low_ns=median * 0.99,
        ci_high_ns=median * 1.01,
        min_ns=median,
        p95_ns=median,
        sample_count=9,
        marks=marks,
    )


def test_agreement_and_marks() -> None:
    operation = "matmul_8x8x8_f32t_f32t_f32t"
    near = Repeat("torch", operation, "default", measurement(1000), measurement(1009))
    assert near.agrees
    assert near.marks == ()
    far = Repeat(
        "torch",
        operation,
        "default",
        measurement(1000, "throttled: why"),
        measurement(980, "throttled: why", "noisy: much"),
    )
    assert not far.agrees
    assert far.apart == pytest.approx(-0.02)
    assert far.marks == ("throttled", "noisy")
    assert "| no | throttled, noisy |" in far.row()
    assert "1 ± 1.0% | 0.98 ± 1.0% | -2.00% |" in far.row()


def test_equal_runs_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        gemmetry.profile(NULL, experiment=tmp_path / name)
    monkeypatch.setattr(
        "sys.argv", ["repeatability.py", str(tmp_path / "first"), str(tmp_path / "second")]
    )
    repeatability.main()
    assert "within 1%: 2 of 2" in capsys.readouterr().out


def test_different_plans_are_refused(tmp_path: Path) -> None:
    gemmetry.profile(NULL, experiment=tmp_path / "first")
    gemmetry.profile({**NULL, "shapes": "32x32x32"}, experiment=tmp_path / "second")
    with pytest.raises(SystemExit, match="32x32x32"):
        repeatability.repeats(tmp_path / "first", tmp_path / "second")


def test_spec_names_twenty_dispatches() -> None:
    from gemmetry.dispatches.profile import read_spec

    spec = read_spec(Path(repeatability.__file__).with_name("repeatability.yaml"))
    assert len(spec.shapes) * len(spec.providers) == 20
