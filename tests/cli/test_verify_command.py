from __future__ import annotations

import json


ACCUMULATES_IN_BF16 = """
import ml_dtypes
import numpy as np


def product(a, b, out_dtype):
    total = np.zeros((a.shape[0], b.shape[1]), ml_dtypes.bfloat16)
    for k in range(0, a.shape[1], 8):
        part = a[:, k : k + 8].astype(np.float32) @ b[k : k + 8].astype(np.float32)
        total = (total.astype(np.float32) + part).astype(ml_dtypes.bfloat16)
    return total.astype(out_dtype)
"""


def test_a_kernel_that_accumulates_in_bf16_passes_with_the_suggested_option(cli, tmp_path):
    (tmp_path / "narrow.py").write_text(ACCUMULATES_IN_BF16)
    request = ("verify", "run", "--kernel", "narrow.py:product", "--providers", "user",
               "--shapes", "33x47x96", "--dtypes", "bf16", "--device", "cpu", "--json")  # fmt: skip
    ended = cli(*request)
    (record,) = json.loads(ended.stdout)["records"]
    assert (ended.status, record["outcome"]) == (1, "wrong")
    reported = record["reason"].rpartition("accumulates in bf16: ")[2].split()
    assert reported == ["--accumulator", "bf16"]
    again = cli(*request, *reported)
    (record,) = json.loads(again.stdout)["records"]
    assert (again.status, record["verification"]) == (0, "passed")
