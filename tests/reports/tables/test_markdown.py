from __future__ import annotations

from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.results.tables import escape_markdown as escape
from gemmetry.results.tables import markdown_text


def test_columns_of_numbers_are_aligned_on_the_right_and_texts_escaped():
    columns = (Column("a|b"), Column("t_ns", ColumnType.NUMBER, "ns", format="{} ns".format))
    table = Table("times", columns, [("*x*", 1.5), (None, 2)])
    lines = ["| a\\|b | t |", "| --- | ---: |", "| \\*x\\* | 1.5 ns |", "|  | 2 ns |"]
    assert markdown_text([table]).splitlines() == lines
    both = markdown_text([table, Table("<none>", columns)])
    assert both.startswith("## times\n\n| a")
    assert "\n\n## &lt;none>\n\n| a\\|b | t |\n| --- | ---: |\n" in both


def test_escaping_covers_links_and_entities():
    assert escape("[a](b) &lt; \\") == "\\[a\\](b) &amp;lt; \\\\"
