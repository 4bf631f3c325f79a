from __future__ import annotations

import dataclasses

from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import BuildFacts, Record
from gemmetry.engine.journal import save_commands


def make_record(dispatch: str) -> Record:
    return Record(
        dispatch=dispatch, provider="iree", target="cpu", device="cpu", operation="o",
        configuration="c", outcome=Outcome.COMPILE_ERROR, reason="error: bad tile",
        output_tail="more", distribution="normal", seed=1, flops=1, bytes=1,
        facts=BuildFacts(compile_command="iree-compile x", run_command="iree-benchmark-module x"),
        reproduce="gemmetry profile x",
    )  # fmt: skip


def test_the_file_holds_every_command_and_what_was_printed(tmp_path):
    path = save_commands(tmp_path / "commands", make_record("matmul_x"), tmp_path)
    assert path == tmp_path / "commands" / "cpu" / "iree" / "matmul_x.txt"
    assert [entry.name for entry in path.parent.iterdir()] == ["matmul_x.txt"]
    assert path.read_text() == (
        "# again with gemmetry\ngemmetry profile x\n\n# compile\niree-compile x\n\n"
        "# run\niree-benchmark-module x\n\n# outcome: compile_error\n\n"
        "# output\nerror: bad tile\nmore\n"
    )


def test_the_output_of_tools_lies_next_to_the_commands(tmp_path):
    (tmp_path / "generated").mkdir()
    (tmp_path / "generated" / "x.log").write_bytes(b"// $ iree-compile x\nerror: \xff bad tile\n")
    record = make_record("matmul_x")
    facts = dataclasses.replace(record.facts, tool_output_path="generated/x.log")
    record = dataclasses.replace(record, facts=facts)
    path = save_commands(tmp_path / "commands", record, tmp_path)
    kept = path.with_name("matmul_x.stdout")
    assert kept.read_bytes() == b"// $ iree-compile x\nerror: \xff bad tile\n"
    assert path.read_text().endswith("\n# what the tools printed: matmul_x.stdout\n")
    (tmp_path / "generated" / "x.log").unlink()
    kept.unlink()
    save_commands(tmp_path / "commands", record, tmp_path)
    assert not kept.exists()


def test_long_names_are_shortened_and_stay_different(tmp_path):
    paths = {save_commands(tmp_path, make_record("m" * 300 + tail), tmp_path) for tail in "ab"}
    assert len(paths) == 2
    assert all(len(path.name) < 255 for path in paths)
