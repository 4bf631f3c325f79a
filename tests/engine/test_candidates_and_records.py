from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import (
    CompileError,
    LaunchError,
    Outcome,
    OutOfMemoryError,
    UnknownNameError,
    UnsupportedError,
    Verification,
)
from gemmetry.domain.record import BuildFacts, DispatchFinished, Message, Record, Verdict
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine.candidates import Compiling, Measuring, Verifying, job_of
from gemmetry.engine.journal import Journal, save_commands
from gemmetry.engine.protocol import (
    HUNG_REASON,
    describe,
    ending_of,
    ending_of_death,
    first_useful_line,
)
from gemmetry.engine.recording import Recording
from gemmetry.engine.session import RunSummary

GPU = Target(TargetKind.CUDA, "sm_90", 0)


@pytest.mark.parametrize(("settings", "kind"), [
    ({}, Measuring),
    ({"verify": False}, Measuring),
    ({"measure": False}, Verifying),
    ({"measure": False, "verify": False}, Compiling),
    ({"measure": False, "trace": TraceSchedule()}, Recording),
    ({"measure": False, "verify": False, "trace": TraceSchedule()}, Recording),
])  # fmt: skip
def test_settings_decide_on_the_job(settings, kind):
    job = job_of(RunSettings(processes=3, **settings))
    assert type(job) is kind
    assert job.samples is (kind is Measuring)
    assert job.uses_device is (kind is not Compiling)
    assert job.process_count(GPU) == (3 if kind is Measuring else 1)


def test_a_record_is_durable_before_it_is_reported_and_no_rounds_need_no_transaction():
    record = SimpleNamespace(verdict=Verdict(status=Verification.PASSED))
    store = Mock()
    journal = Journal(store, store.listen)
    journal.add_rounds([], {})
    journal.warn("careful")
    journal.finish({1: record})
    assert store.mock_calls == [
        call.listen(Message("careful", "warning")), call.finish({1: record}),
        call.listen(DispatchFinished(record)),
    ]  # fmt: skip


@pytest.mark.parametrize(("others", "lacks_ok", "failure", "status"), [
    ([], False, "", 0),
    ([Outcome.COMPILE_ERROR, Outcome.LAUNCH_ERROR], False, "", 0),
    ([Outcome.UNSUPPORTED, Outcome.SKIPPED], False, "", 0),
    ([Outcome.COMPILE_ERROR], True, "", 1),
    *(([bad], False, "", 1) for bad in (Outcome.WRONG, Outcome.CRASH, Outcome.TIMEOUT)),
    ([Outcome.OUT_OF_MEMORY], False, "", 1),
    ([Outcome.WRONG], False, "device lost", 3),
])  # fmt: skip
def test_exit_status(others, lacks_ok, failure, status):
    summary = RunSummary(
        experiment=Path("x"), total=9, outcomes={Outcome.OK: 2, **dict.fromkeys(others, 1)},
        lacks_ok=lacks_ok, failure=failure,
    )  # fmt: skip
    assert (summary.exit_status, summary.finished) == (status, 2 + len(others))


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
    assert list(path.parent.iterdir()) == [path]
    parts = ("gemmetry profile x", "iree-compile x", "iree-benchmark-module x", "compile_error",
             "error: bad tile\nmore")  # fmt: skip
    places = [path.read_text().find(part) for part in parts]
    assert places == sorted(places) and places[0] >= 0


def test_the_output_of_tools_lies_next_to_the_commands(tmp_path):
    output = tmp_path / "x.log"
    output.write_bytes(b"// $ iree-compile x\nerror: \xff bad tile\n")
    record = make_record("matmul_x")
    facts = dataclasses.replace(record.facts, tool_output_path="x.log")
    record = dataclasses.replace(record, facts=facts)
    path = save_commands(tmp_path / "commands", record, tmp_path)
    kept = path.with_name("matmul_x.stdout")
    assert kept.read_bytes() == output.read_bytes()
    assert path.read_text().endswith("\n# what the tools printed: matmul_x.stdout\n")
    output.unlink()
    kept.unlink()
    save_commands(tmp_path / "commands", record, tmp_path)
    assert not kept.exists()


def test_long_names_are_shortened_and_stay_different(tmp_path):
    paths = {save_commands(tmp_path, make_record("m" * 300 + tail), tmp_path) for tail in "ab"}
    assert len(paths) == 2 and all(len(path.name) < 255 for path in paths)


class _OwnCompileError(CompileError):
    """A provider's own."""


@pytest.mark.parametrize(("error", "outcome"), [
    (CompileError("x"), Outcome.COMPILE_ERROR),
    (_OwnCompileError("x"), Outcome.COMPILE_ERROR),
    (LaunchError("x"), Outcome.LAUNCH_ERROR),
    (OutOfMemoryError("x"), Outcome.OUT_OF_MEMORY),
    (MemoryError(), Outcome.OUT_OF_MEMORY),
    (UnsupportedError("x"), Outcome.UNSUPPORTED),
    (UnknownNameError("configuration", "x", []), Outcome.UNSUPPORTED),
    (ZeroDivisionError("x"), Outcome.CRASH),
])  # fmt: skip
def test_exceptions_become_outcomes(error, outcome):
    ending = ending_of(describe(error), "")
    assert ending.outcome is outcome
    assert ending.reason


def test_the_hint_is_kept_and_a_long_message_goes_to_the_tail():
    error = CompileError("command failed\nin.mlir:3:5: error: bad tile\nmore", hint="Fix it.")
    ending = ending_of(describe(error), "printed")
    assert ending.reason == "in.mlir:3:5: error: bad tile (Fix it.)"
    assert ending.output_tail == "printed\ncommand failed\nin.mlir:3:5: error: bad tile\nmore"


def test_an_unexpected_exception_keeps_its_traceback():
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        ending = ending_of(describe(error), "")
    assert ending.reason == "ZeroDivisionError: division by zero"
    assert "test_candidates_and_records.py" in ending.output_tail


@pytest.mark.parametrize(("status", "tail", "memory_ran_out", "outcome", "words"), [
    (-11, "", False, Outcome.CRASH, ["SIGSEGV"]),
    (-9, "", True, Outcome.OUT_OF_MEMORY, ["memory"]),
    (-9, "", False, Outcome.CRASH, ["SIGKILL"]),
    (-6, "free(): invalid pointer\nFatal Python error: Aborted", False, Outcome.CRASH,
     ["abort()", "SIGABRT", ": Fatal Python error: Aborted"]),
    (-14, "File x", False, Outcome.TIMEOUT, [HUNG_REASON]),
    (3, "", False, Outcome.CRASH, ["status 3"]),
])  # fmt: skip
def test_deaths_become_outcomes(status, tail, memory_ran_out, outcome, words):
    ending = ending_of_death(status, tail, memory_ran_out=memory_ran_out)
    assert (ending.outcome, ending.output_tail) == (outcome, tail)
    assert all(word in ending.reason for word in words)


@pytest.mark.parametrize(("text", "line"), [
    ("", ""),
    ("\n  \n", ""),
    ("one\ntwo", "one"),
    ("note\nx: error: bad\nerror: later", "x: error: bad"),
    ("compile_error is a name\nreal", "compile_error is a name"),
])  # fmt: skip
def test_first_useful_line(text, line):
    assert first_useful_line(text) == line
