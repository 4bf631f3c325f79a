from __future__ import annotations

import csv
from pathlib import Path

import gpu_table

from gemmetry.dispatches.profile import read_spec
from gemmetry.providers.base import best_baseline

FIELDS = ("operation", "provider", "configuration", "median_ns", "ci_low_ns", "ci_high_ns",
          "gflops", "roofline_fraction", "lhs_dtype", "result_dtype", "m", "n", "k")  # fmt: skip


def _row(size: int, provider: str, configuration: str, median_ns: float | str) -> dict[str, object]:
    return {
        "operation": f"x{size}", "provider": provider, "configuration": configuration,
        "median_ns": median_ns, "ci_low_ns": 990 if median_ns else "",
        "ci_high_ns": 1010 if median_ns else "", "gflops": 5000, "roofline_fraction": 0.5,
        "lhs_dtype": "bf16", "result_dtype": "bf16", "m": size, "n": size, "k": size,
    }  # fmt: skip


def test_both_baselines_have_their_columns(tmp_path: Path, capsys):
    with (tmp_path / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows((
            _row(4096, "torch", "default", 1000),
            _row(4096, "torch", "cublaslt", 1100),
            _row(4096, "cublaslt", "best", 800),
            _row(4096, "triton", "default", 1600),
            _row(512, "torch", "default", 1000),
            _row(512, "cublaslt", "best", ""),
            _row(512, "triton", "tile", 2000),
        ))  # fmt: skip
    gpu_table.main([file.name])
    text = capsys.readouterr().out
    headings, _, large, small, *_ = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()
    )
    assert len({len(headings), len(large), len(small)}) == 1
    assert large[2] == "1 ± 1.0%" and large[5] == "0.8 ± 1.2%"
    assert large[8] == "1.25" and large[12:] == ["0.62", "0.50", "`default`"]
    assert small[5:9] == ["–"] * 4 and small[12:] == ["0.50", "–", "`tile`"]
    assert "The best of cuBLASLt × cuBLAS: bf16 1.25" in text
    assert "Triton × cuBLAS: bf16 0.56" in text
    assert "Triton × the best of cuBLASLt: bf16 0.50" in text


def test_the_spec_measures_what_the_table_shows():
    spec = read_spec(Path(gpu_table.__file__).with_name("gpu_gemm.yaml"))
    measured = {f"{one.name}:{name}" for one in spec.providers for name in one.configurations}
    assert best_baseline() in measured
    assert {"torch", "triton"} <= {one.name for one in spec.providers}
