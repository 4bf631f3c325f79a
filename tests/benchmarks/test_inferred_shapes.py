from __future__ import annotations

from pathlib import Path

import inferred_shapes

DATA = Path(__file__).parents[1] / "data" / "traces"


def test_each_row_names_its_trace_in_full(tmp_path, monkeypatch, capsys):
    """Ranks of several jobs have the same file name."""
    source = DATA / "h200_fsdp_rank0of4_part.pt.trace.json.gz"
    paths = [tmp_path / f"a_job_whose_name_is_not_a_short_one_{i}" / source.name for i in range(2)]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(source.read_bytes())
    monkeypatch.setattr("sys.argv", ["inferred_shapes.py", str(tmp_path), "--shares", "0.9"])
    inferred_shapes.main()
    how, _, *rows, total = capsys.readouterr().out.splitlines()
    assert "0.9" in how
    assert [row.split()[3] for row in rows] == [str(path) for path in paths]
    counts = [[int(value) for value in row.split()[:3]] for row in (*rows, total)]
    assert counts[2] == [a + b for a, b in zip(*counts[:2], strict=True)]
    assert counts[2][0] > 0
