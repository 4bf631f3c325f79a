"""What a log shows of the end of a run."""

from __future__ import annotations

import pytest

from gemmetry.analysis.sweeps.logs import crash_in


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        ("step 1: loss 0.1\nerror rate 0\n", ""),
        ("RuntimeError: no\nretried\nfinished\n", ""),
        ("[rank3]: Traceback (most recent call last):\n[rank3]: torch.OutOfMemoryError: CUDA out "
         "of memory\n\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
         "torch.OutOfMemoryError: CUDA out of memory"),
        ("Segmentation fault (core dumped)\n", "Segmentation fault (core dumped)"),
    ],
)  # fmt: skip
def test_the_crash_in_a_log(tmp_path, text, reason):
    log = tmp_path / "run_output.log"
    log.write_text(text)
    assert crash_in(log) == reason
    assert crash_in(tmp_path / "none") == ""
