from __future__ import annotations

from gemmetry.domain.resultset import ResultSet
from gemmetry.reports.dispatches.markdown import to_markdown

NAME = "matmul_8x8x8_f32t_f32t_f32t"


def test_table_has_a_row_a_record_and_the_command(small_result_set):
    text = to_markdown(small_result_set)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(small_result_set.records)
    assert len({row.count("|") for row in rows}) == 1
    assert "| 62.0 µs |" in text
    assert rows[0].endswith(
        "| verification | median | ci_low | ci_high | speed | roofline_fraction |"
    )
    assert text.endswith("    gemmetry profile --providers iree,torch\n")


def test_names_cannot_break_the_table_or_the_page(make_record):
    record = make_record(NAME, tags={"a|b": "<script>x</script> `c` *d*\n| e"})
    rows = to_markdown(ResultSet(title="t", records=[record]), ["provider"]).splitlines()
    rows = [row for row in rows if row.startswith("|")]
    assert rows[0] == "| a\\|b | provider |"
    assert rows[2] == "| &lt;script>x&lt;/script> \\`c\\` \\*d\\* \\| e | torch |"


def test_rows_are_sorted_and_marked_as_on_the_terminal(make_record):
    records = [
        make_record(NAME, "slow", gflops=1.0),
        make_record("matmul_16x8x8_f32t_f32t_f32t"),
        make_record(NAME, "fast", gflops=2.0, marks=("drift: slower", "noisy: wide")),
    ]
    text = to_markdown(ResultSet(title="t", records=records), ["configuration", "median_ns"])
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert rows == ["| fast | **512 ns** ! |", "| slow | 1.02 µs |", "| default | **10.2 ns** |"]
    assert "\n\n! 1 less trustworthy: 1 drift, 1 noisy\n" in text
    assert text.splitlines()[2].startswith("fast has the shortest time on the one operation")
