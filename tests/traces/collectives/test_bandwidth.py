from __future__ import annotations

import pytest

from gemmetry.traces.collectives.summary import (
    ELEMENT_BYTES,
    element_type,
    exchanged_elements,
    message_elements,
)


@pytest.mark.parametrize(
    ("spelling", "name", "size"),
    [
        ("BFloat16", "BFloat16", 2), ("c10::BFloat16", "BFloat16", 2), ("bf16", "BFloat16", 2),
        ("float", "Float", 4), ("f32", "Float", 4), ("c10::Half", "Half", 2),
        ("ComplexFloat", "ComplexFloat", 8), ("c10::Float8_e5m2", "Float8_e5m2", 1),
        ("e4m3fnuz", "Float8_e4m3fnuz", 1), ("signed char", "Char", 1), ("Char", "Char", 1),
        ("unsigned char", "Byte", 1), ("long int", "Long", 8), ("u64", "UInt64", 8),
        ("c10::complex<double>", "ComplexDouble", 16), ("Float2_future", "Float2_future", None),
        (None, None, None), ("", None, None),
    ],
)  # fmt: skip
def test_element_types_whatever_the_spelling(spelling, name, size):
    assert element_type(spelling) == name
    assert ELEMENT_BYTES.get(name) == size


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


@pytest.mark.parametrize(
    ("op", "ins", "outs", "whole", "without_size"),
    [
        ("all_reduce", 100, 100, 100, 100), ("broadcast", 100, 100, 100, 100),
        ("all_gather", 100, 400, 400, 400), ("all_gather", 100, None, 400, None),
        ("reduce_scatter", 400, 100, 400, 400), ("reduce_scatter", None, 100, 400, None),
        ("gather", 100, 0, 400, None), ("scatter", 0, 100, 400, None),
        ("all_to_all", 100, 130, 130, 130), ("send", 100, None, 100, 100),
        ("all_gather", 0, 0, 0, 0), ("all_reduce", None, None, None, None),
        (None, 100, 100, None, None),
    ],
)  # fmt: skip
def test_the_whole_message_of_four_ranks(op, ins, outs, whole, without_size):
    assert message_elements(op, ins, outs, 4) == whole
    assert message_elements(op, ins, outs, None) == without_size


def test_what_leaves_a_rank_in_an_all_to_all():
    assert exchanged_elements(400, (), 0, 4) == 300
    assert exchanged_elements(400, (10, 90, 100, 200), 1, 4) == 310
    # Parts that do not fit the group, or an unknown place in it: equal parts.
    assert exchanged_elements(400, (10, 390), 1, 4) == 300
    assert exchanged_elements(400, (10, 90, 100, 200), None, 4) == 300
