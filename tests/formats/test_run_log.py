"""What a log shows of the end of a run."""

from __future__ import annotations

import pytest

from gemmetry.formats.run_log import crash_in, last_line, log_tail


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        ("step 1: loss 0.1\nerror rate 0\n", ""),
        ("RuntimeError: no\nretried\nfinished\n", ""),
        ("[rank3]: Traceback (most recent call last):\n[rank3]: torch.OutOfMemoryError: CUDA out "
         "of memory\n\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
         "torch.OutOfMemoryError: CUDA out of memory"),
        ("rank 1: error: no GPU\nhint: use gloo\nTraceback (most recent call last):\n"
         "gemmetry.domain.errors.RequestError: no GPU\n",
         "rank 1: error: no GPU"),
        ("terminate called without an active exception\nFatal Python error: Aborted\n"
         "Traceback (most recent call last):\ntorch.distributed.elastic.ChildFailedError: \n"
         "  traceback : Signal 6 (SIGABRT) received by PID 22611\n", "Fatal Python error: Aborted"),
        ("torch.distributed.elastic.ChildFailedError: \n"
         "  traceback : Signal 15 (SIGTERM) received by PID 12\nRoot Cause\n"
         "  traceback : Signal 9 (SIGKILL) received by PID 11\n",
         "Signal 9 (SIGKILL) received by PID 11"),
        ("Segmentation fault (core dumped)\n", "Segmentation fault (core dumped)"),
    ],
)  # fmt: skip
def test_the_crash_in_a_log(tmp_path, text, reason):
    log = tmp_path / "run_output.log"
    log.write_text(text)
    assert crash_in(log) == reason
    assert crash_in(tmp_path / "none") == ""


def test_the_end_of_a_log_begins_with_a_whole_line(tmp_path):
    log = tmp_path / "run_output.log"
    log.write_text("first line\nsecond line\nthird\n\n")
    assert last_line(log) == "third"
    assert log_tail(log) == "first line\nsecond line\nthird\n\n"
    assert log_tail(log, 14) == "third\n\n"
    assert (last_line(tmp_path / "none"), log_tail(tmp_path / "none")) == ("", "")
