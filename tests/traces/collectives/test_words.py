"""What operations, types of elements and kernels are called, and sizes of messages:
``words.txt``."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.traces.collectives.summary import (
    ELEMENT_BYTES,
    collectives_of,
    element_type,
    exchanged_elements,
    message_elements,
    operation_name,
)

SAMPLES = Path(__file__).parents[2] / "data" / "collectives"


def _type(spelling):
    name = element_type(spelling)
    return f"{name} {ELEMENT_BYTES.get(name)}"


def _message(op, ins, outs):
    """The elements of a message in a group of four, and in one of unknown size."""
    return f"{message_elements(op, ins, outs, 4)} {message_elements(op, ins, outs, None)}"


FUNCTIONS = {
    "type": _type, "operation": operation_name, "message": _message,
    "exchanged": lambda whole, parts, place: exchanged_elements(whole, tuple(parts), place, 4),
}  # fmt: skip


def test_words(case, recording):
    found = []
    for what, values, _ in case.calls():
        if what == "kernel":
            made = recording()
            made.kernel(*values, 0, 5)
            (one,) = collectives_of(made.trace())
            found.append(f"{one.algorithm} {one.protocol}")
        else:
            found.append(str(FUNCTIONS[what](*values)))
    case.check(found)


def test_every_real_number_format_of_pytorch_has_its_size():
    torch = pytest.importorskip("torch")
    real = {
        "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32,
        "Long": torch.int64, "Half": torch.half, "Float": torch.float, "Double": torch.double,
        "BFloat16": torch.bfloat16, "ComplexHalf": torch.complex32, "Bool": torch.bool,
        "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128,
        "Float8_e5m2": torch.float8_e5m2, "Float8_e4m3fn": torch.float8_e4m3fn,
        "Float8_e5m2fnuz": torch.float8_e5m2fnuz, "Float8_e4m3fnuz": torch.float8_e4m3fnuz,
        "Float8_e8m0fnu": torch.float8_e8m0fnu, "Float4_e2m1fn_x2": torch.float4_e2m1fn_x2,
        "UInt16": torch.uint16, "UInt32": torch.uint32, "UInt64": torch.uint64,
    }  # fmt: skip
    assert {name: dtype.itemsize for name, dtype in real.items()} == {
        name: ELEMENT_BYTES[name] for name in real
    }


def test_a_real_job_without_metadata_on_kernels(read_real):
    # Recorded only by nccl:* and c10d::* operators of PyTorch 1.13; the kernels' names contain
    # SendRecv.
    ones = collectives_of(read_real(SAMPLES / "hta_2of128/rank-0.json.gz"))
    assert [(one.op, one.dtype, one.elements) for one in ones[:5]] == [
        ("all_to_all", "Long", 384),
        ("all_to_all", "Byte", 419430400),
        ("all_reduce", "Float", 19618307),
        ("all_reduce", "Float", 26955536),
        ("all_gather", "Char", 1073741824),
    ]
    assert {one.source for one in ones} == {"operator"}
