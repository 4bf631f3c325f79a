"""The document of a sweep's analysis, and its tables."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from gemmetry.domain.rows import columns, schema
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.rows import sweep_result


@pytest.fixture
def analysis(tmp_path, sweeps):
    """Two points that ran and one without traces."""
    points = [
        sweeps.MadePoint(channels=4, layers=2),
        sweeps.MadePoint(channels=8, axes={"NCCL_ALGO": "Ring"}, slowdown={sweeps.UP.kernel: 1.3}),
        sweeps.MadePoint(channels=16, missing=(0, 1)),
    ]
    return analyse_sweep(sweeps.write_sweep(tmp_path, points))


@pytest.fixture
def document(analysis):
    return json.loads(json.dumps(sweep_result(analysis).document(), allow_nan=False))


def test_every_entry_fits_the_schema_of_its_kind(document, analysis):
    result = sweep_result(analysis)
    assert document["schema_version"] == 1
    assert document.keys() == {"schema_version", *result.notes, *result.rows}
    assert all(document[name] for name in ("points", "gemms", "pooled_gemms", "collectives"))
    for name, found in result.rows.items():
        for entry in document[name]:
            Draft202012Validator(schema(found.kind)).validate(entry)
            assert found.kind.of(entry).record() == entry


def test_every_table_opens_in_every_format(analysis, tmp_path):
    result = sweep_result(analysis)
    for name in ("tables", "tables.xlsx", "tables.md"):
        result.write(tmp_path / name)
    for name, found in result.rows.items():
        made = result.table(name)
        assert all(column.description for column in made.columns)
        assert all(column.description for column in columns(found.kind, page=True))
        assert len(result.frame(name)) == len(made.rows) == len(found.rows)
        lines = (tmp_path / "tables" / f"sweep_{name}.csv").read_text().splitlines()
        assert lines[0] == ",".join(made.names)
