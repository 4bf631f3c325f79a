from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.storage import numpy_dtype, same_bytes
from gemmetry.verification.comparison import ARRAYS_NAME, Evidence, load, save


def evidence_of(name):
    operation = parse_operation(name)
    spec = operation.output
    output = np.arange(spec.elements, dtype=np.float64).reshape(spec.storage_shape)
    return Evidence(
        check="values",
        operation=operation,
        inputs=make_inputs(operation, distribution="normal", seed=3),
        output=output.astype(numpy_dtype(spec.dtype)),
        expected=output + 1,
        bad=output % 2 == 0,
    )


@pytest.mark.parametrize(
    "name",
    [
        "matmul_3x5x7_f32t_f32t_f32t",
        "matmul_3x5x7_bf16t_bf16n_bf16t_bias",
        "matmul_16x16x16_e4m3t_e5m2n_bf16t_scalerow",
        "matmul_16x16x16_e4m3fnuzt_e4m3fnuzn_bf16t",
        "matmul_4x4x4_s8t_s8t_s32t",
    ],
)
def test_what_is_saved_comes_back_bit_for_bit(tmp_path, name):
    saved = evidence_of(name)
    save(tmp_path / "a" / "b", saved)
    found = load(tmp_path / "a" / "b")
    assert (found.check, found.operation) == (saved.check, saved.operation)
    for one, other in zip(found.inputs, saved.inputs, strict=True):
        assert same_bytes(one, other)
    assert same_bytes(found.output, saved.output)
    assert same_bytes(found.expected, saved.expected)
    assert np.array_equal(found.bad, saved.bad)


def test_expectation_and_mask_may_be_missing_and_the_output_of_another_form(tmp_path):
    saved = dataclasses.replace(
        evidence_of("matmul_3x5x7_f32t_f32t_f32t"),
        expected=None, bad=None, output=np.ones((2, 2), np.float16),
    )  # fmt: skip
    save(tmp_path, saved)
    found = load(tmp_path)
    assert found.expected is None
    assert found.bad is None
    assert found.output.dtype == np.float16


def test_numpy_reads_the_file_without_us(tmp_path):
    path = save(tmp_path, evidence_of("matmul_3x5x7_bf16t_bf16t_f32t"))
    with np.load(path, allow_pickle=False) as arrays:
        assert {"header", "input_lhs", "input_rhs", "output", "expected", "bad"} == set(arrays)
        assert arrays["input_lhs"].dtype == np.uint16


def test_bytes_count_every_array():
    found = evidence_of("matmul_3x5x7_f32t_f32t_f32t")
    assert found.nbytes == 4 * (3 * 7 + 7 * 5 + 3 * 5) + 8 * 15 + 15


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, evidence_of("matmul_3x5x7_f32t_f32t_f32t"))
    assert list(tmp_path.iterdir()) == []


def test_missing_and_damaged_files_are_reported(tmp_path):
    with pytest.raises(RequestError, match="contains no"):
        load(tmp_path)
    (tmp_path / ARRAYS_NAME).write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(StorageError, match="cannot be read"):
        load(tmp_path)
