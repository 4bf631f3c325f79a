"""Rows: one declaration is the document, its schema, the tables and the page."""

from __future__ import annotations

import json
import math

import pytest
from jsonschema import Draft202012Validator

from gemmetry.domain.errors import RequestError
from gemmetry.domain.rows import Row, Rows, columns, fact, inline, schema, table
from gemmetry.domain.tables import ColumnType
from gemmetry.results.emit import Result, emit


class Keys(Row, digits=6):
    rank: int | None = fact("rank of the process", page="rank")


class Effect(Row, digits=6):
    slowdown: float | None = fact("ratio", page="slower", show="{:.1f}".format)
    verdict: str = fact("what is shown")


class Step(Row, digits=6):
    median: float = fact("median step", "ms", column="step_ms")
    ci_low: float | None = fact("lower end", "ms", column="step_ci_low_ms", default=None)


class Kernel(Keys):
    name: str = fact("name of the kernel", page="kernel")
    step: Step | None = fact()
    effect: Effect | None = inline()
    parts: tuple[Effect, ...] = fact("effects", default=())
    axes: dict[str, str] = fact("settings")
    is_slow: bool = fact("whether it is slow", column="", default=False)
    hidden: int = 0


ROW = Kernel(
    rank=3, name="=a", step=Step(median=1 / 3), effect=Effect(slowdown=math.nan, verdict="slower"),
    parts=(Effect(slowdown=2.0, verdict="faster"),), axes={"NCCL_ALGO": "Ring"}, hidden=7,
)  # fmt: skip


def test_the_record_is_plain_rounded_json_without_internal_fields() -> None:
    record = ROW.record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record == {
        "rank": 3, "name": "=a", "step": {"median": 0.333333, "ci_low": None}, "slowdown": None,
        "verdict": "slower", "parts": [{"slowdown": 2.0, "verdict": "faster"}],
        "axes": {"NCCL_ALGO": "Ring"}, "is_slow": False,
    }  # fmt: skip


def test_a_record_is_read_back_and_older_ones_have_defaults() -> None:
    record = ROW.record()
    assert Kernel.of(record).record() == record
    old = Kernel.of({"name": "b", "rank": None})
    assert (old.parts, old.step, old.is_slow) == ((), None, False)


def test_the_schema_describes_every_record() -> None:
    found = schema(Kernel)
    Draft202012Validator.check_schema(found)
    Draft202012Validator(found).validate(ROW.record())
    absent = Kernel(rank=None, name="", step=None, effect=None, axes={})
    Draft202012Validator(found).validate(absent.record())
    with_text = {**ROW.record(), "rank": "three"}
    assert not Draft202012Validator(found).is_valid(with_text)


def test_tables_have_a_column_for_each_fact_and_pages_those_with_a_heading() -> None:
    found = columns(Kernel)
    assert [one.name for one in found] == [
        "rank", "name", "step_ms", "step_ci_low_ms", "slowdown", "verdict", "axes"
    ]  # fmt: skip
    assert [one.unit for one in found][2] == "ms"
    assert found[-1].type is ColumnType.MAPPING
    assert table("kernels", Kernel, [ROW]).rows == table("kernels", Kernel, [ROW.record()]).rows
    page = table("kernels", Kernel, [ROW], page=True)
    assert page.names == ("rank", "kernel", "slower")
    assert page.columns[2].text(1.25) == "1.2"
    assert page.columns[2].text(None) == "–"


@pytest.fixture
def result() -> Result:
    return Result(
        kind="sweep", rows={"kernels": Rows(Kernel, [ROW]), "effects": Rows(Effect)},
        notes={"folder": "here"}, forms={".html": lambda: "<p>page", ".xml": lambda: b"<junit/>"},
    )  # fmt: skip


def test_one_result_is_written_in_every_format(result, tmp_path) -> None:
    for name in ("a.json", "a.xlsx", "a.md", "a.htm", "a.xml", "folder"):
        result.write(tmp_path / name)
    document = json.loads((tmp_path / "a.json").read_text())
    assert document == {
        "schema_version": 1, "folder": "here", "kernels": [ROW.record()], "effects": []
    }  # fmt: skip
    assert (tmp_path / "a.htm").read_text() == "<p>page"
    assert (tmp_path / "a.xml").read_bytes() == b"<junit/>"
    lines = (tmp_path / "folder" / "sweep_effects.csv").read_text().splitlines()
    assert lines == ["slowdown,verdict"]
    assert "'=a" in (tmp_path / "folder" / "sweep_kernels.csv").read_text()
    assert result.frame("kernels").columns == list(result.table("kernels").names)
    with pytest.raises(RequestError):
        result.write(tmp_path / "a.csv")  # Two tables.
    with pytest.raises(RequestError):
        result.write(tmp_path / "a.png")


def test_rows_are_appended_to_csv_only(tmp_path) -> None:
    result = Result(kind="", rows={"kernels": Rows(Kernel, [ROW])})
    path = tmp_path / "a.csv"
    for _ in range(2):
        emit(result, path, append=True)
    assert len(path.read_text().splitlines()) == 3
    with pytest.raises(RequestError):
        emit(result, tmp_path / "a.json", append=True)
    assert not (tmp_path / "a.json").exists()
