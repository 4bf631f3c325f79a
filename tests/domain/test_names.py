from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_number, parse_operation, split_dispatch_name
from gemmetry.domain.errors import NameSyntaxError, RequestError
from gemmetry.domain.operation import (
    DTYPES,
    F32,
    SCALE_FORMATS,
    BlockScaling,
    Conv2dShape,
    EpilogueStep,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Scaling,
    Signature,
    check_shape,
    operation_name,
    operation_namer,
    parse_block_scaling,
    parse_dtype,
    parse_scaling,
    print_number,
)

PAGE = (Path(__file__).parents[2] / "docs" / "names.md").read_text(encoding="utf-8")


def _rows(heading, columns):
    """Cells of the rows of the table under a heading of the page, backticks taken off."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    rows = [tuple(cell.strip().strip("`") for cell in line.strip("|").split("|")) for line in lines]
    assert all(len(row) == columns for row in rows)
    return rows


LIST = Path(__file__).parents[1] / "data" / "operation_names.csv"
EXAMPLES = [tuple(line.split("|")) for line in LIST.read_text(encoding="utf-8").splitlines()[1:]]
"""Names with what they mean; the page shows some of them."""


# The page


def test_there_are_enough_examples_of_everything():
    assert len(EXAMPLES) >= 30
    assert {row[1] for row in EXAMPLES} == set(OperationKind)
    signatures = [parse_operation(row[0]).signature for row in EXAMPLES]
    used = {dtype for one in signatures for dtype in (one.lhs, one.rhs, one.result)}
    factors = {one.blocks.dtype for one in signatures if one.blocks}
    assert used | factors == set(DTYPES.values())
    assert {step for one in signatures for step in one.epilogue} == set(EpilogueStep)
    assert {one.scaling for one in signatures} > set(Scaling)
    assert factors == set(SCALE_FORMATS)
    assert {one.layout_pair for one in signatures} >= {"tt", "tn", "nt", "nn"}
    assert len({row[0] for row in EXAMPLES}) == len(EXAMPLES)
    shown = _rows("Examples", 9)
    assert len(shown) >= 8
    assert set(shown) <= set(EXAMPLES)
    assert {row[1] for row in shown} == set(OperationKind)


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row[0])
def test_examples_are_printed_and_read_as_the_list_says(row):
    """Build the operation from the other columns; its name must be the first column."""
    name, kind, shape, dtypes, accumulator, layouts, modifiers, flops, size = row
    words = {} if modifiers == "–" else dict(part.split(" ", 1) for part in modifiers.split("; "))
    signature = Signature(
        OperationKind(kind), *(parse_dtype(text) for text in re.split(r", | → ", dtypes)),
        *(Layout(text) for text in re.split(r", | → ", layouts)),
        accumulator=parse_dtype(accumulator), split_k_slices=int(words.get("slices", "1")),
        scaling=parse_scaling(words.get("scaling", "none")), alpha=float(words.get("alpha", "1")),
        beta=float(words.get("beta", "0")),
        epilogue=tuple(EpilogueStep(s) for s in words.get("then", "").split(", ") if s),
    )  # fmt: skip
    operation = Operation(signature, _shape_of(kind, shape))
    assert operation_name(operation) == str(operation) == name
    assert parse_operation(name) == operation
    assert (str(operation.flops), str(operation.bytes)) == (flops, size)


@pytest.mark.parametrize(("read", "printed"), _rows("Other spellings that are understood", 2))
def test_other_spellings_are_the_same_operation(read, printed):
    assert parse_operation(read) == parse_operation(printed)
    assert operation_name(parse_operation(read)) == printed


@pytest.mark.parametrize(("name", "why"), _rows("Names that are refused", 2))
def test_refused_names_say_why(name, why):
    with pytest.raises(NameSyntaxError, match=re.escape(why)) as caught:
        split_dispatch_name(name)
    assert "gemmetry help names" in caught.value.hint


def test_every_dtype_and_layout_of_the_grammar_exists():
    grammar = PAGE.split("```ebnf")[1].split("```")[0]
    dtypes = grammar.split("dtype         =")[1].split(";")[0]
    assert {*re.findall(r'"(\w+)"', dtypes), "e8m0"} == set(DTYPES)
    factors = grammar.split("factors       =")[1].split(";")[0]
    assert set(re.findall(r'"(\w+)"', factors)) == set(map(str, SCALE_FORMATS))
    layouts = grammar.split("layout        =")[1].split(";")[0]
    assert set(re.findall(r'"(\w+)"', layouts)) == set(Layout)


# Any operation


_EXTENT = st.sampled_from([1, 16, 32, 128]) | st.integers(1, 999_999)
_BLOCKS = st.builds(BlockScaling, _EXTENT, st.sampled_from(SCALE_FORMATS), _EXTENT, _EXTENT)


@given(_BLOCKS)
def test_blocks_parse_back(blocks):
    assert parse_block_scaling(str(blocks)) == blocks == parse_scaling(str(blocks))


ACCUMULATORS = ("f64", "f32", "f16", "bf16")


def _signatures() -> st.SearchStrategy[Signature]:
    floats = [dtype for dtype in DTYPES.values() if not dtype.is_integer]
    finite = st.floats(allow_nan=False, allow_infinity=False)
    matrix = st.sampled_from([Layout.ROW, Layout.COLUMN])
    usual = {
        "layouts": st.tuples(matrix, matrix, matrix),
        "scaling": st.sampled_from(list(Scaling)) | _BLOCKS,
        "alpha": finite | st.just(1.0), "beta": finite | st.just(0.0),
    }  # fmt: skip
    of_convolutions = {
        "layouts": st.just((Layout.NHWC, Layout.HWCF, Layout.NHWC)),
        "scaling": st.just(Scaling.NONE), "alpha": st.just(1.0), "beta": st.just(0.0),
    }  # fmt: skip

    def complete(kind: OperationKind) -> st.SearchStrategy[Signature | None]:
        return st.builds(
            _signature_or_none,
            st.just(kind),
            st.tuples(*[st.sampled_from(floats)] * 3)
            | st.just((DTYPES["s8"], DTYPES["s8"], DTYPES["s32"])),
            accumulator=st.none() | st.sampled_from([DTYPES[name] for name in ACCUMULATORS]),
            slices=st.integers(2, 64) if kind is OperationKind.MATMUL_SPLITK else st.just(1),
            steps=st.lists(st.sampled_from(list(EpilogueStep)), unique=True).map(tuple),
            **(of_convolutions if kind is OperationKind.CONV2D else usual),
        )

    kinds = st.sampled_from(list(OperationKind))
    return kinds.flatmap(complete).filter(lambda signature: signature is not None)


def _signature_or_none(kind, dtypes, *, layouts, accumulator, slices, scaling, alpha, beta, steps):
    if dtypes[0].is_integer:
        accumulator, scaling, alpha, beta = None, Scaling.NONE, 1.0, float(beta != 0)
        steps = tuple(step for step in steps if step is not EpilogueStep.GELU)
    if isinstance(scaling, BlockScaling) and not dtypes[0].is_integer:
        narrow = {64: "e2m1", 32: "e4m3", 16: "e5m2"}
        lhs, rhs = (DTYPES[narrow.get(d.storage_bits, "e2m1")] for d in dtypes[:2])
        dtypes = (lhs, rhs, dtypes[2])
    try:
        return Signature(
            kind, *dtypes, *layouts, accumulator=accumulator, split_k_slices=slices,
            scaling=scaling, alpha=alpha, beta=beta, epilogue=steps,
        )  # fmt: skip
    except RequestError:
        return None


_SIZE = st.integers(1, 10**9)


@st.composite
def operations(draw) -> Operation:
    signature = draw(_signatures())
    if signature.kind is OperationKind.CONV2D:
        r, s = draw(st.integers(1, 9)), draw(st.integers(1, 9))
        small = st.integers(1, 9)
        shape = Conv2dShape(
            draw(_SIZE), r + draw(st.integers(0, 500)), s + draw(st.integers(0, 500)),
            draw(_SIZE), r, s, draw(_SIZE), draw(small), draw(small),
            draw(st.integers(0, 9)), draw(st.integers(0, 9)),
        )  # fmt: skip
    else:
        batch = draw(_SIZE) if signature.kind is OperationKind.BATCH_MATMUL else 1
        k = draw(_SIZE) * signature.split_k_slices
        shape = MatmulShape(draw(_SIZE), draw(_SIZE), k, batch)
    check_shape(signature, shape)
    return Operation(signature, shape)


_CONFIGURATION = st.from_regex(r"(tile|x|default|[A-Z0-9])[A-Za-z0-9_]{0,40}", fullmatch=True)


@given(operations(), _CONFIGURATION)
@settings(max_examples=120)
def test_every_operation_and_dispatch_parses_back(operation, configuration):
    name = operation_name(operation)
    assert re.fullmatch(r"[a-z0-9_]+", name)
    assert parse_operation(name) == operation
    assert operation_namer(operation.signature)(operation.shape) == name
    assert split_dispatch_name(f"{name}_{configuration}") == (operation, configuration)
    with pytest.raises(NameSyntaxError, match="follows the operation"):
        parse_operation(f"{name}_{configuration}")
    m, n, k, batch = operation.matmul_shape
    assert operation.flops == 2 * batch * m * n * k
    tensors = (*operation.inputs, operation.output)
    assert operation.bytes == sum(-(-t.elements * t.dtype.storage_bits // 8) for t in tensors)


@pytest.mark.parametrize("suffix", ["\n", " ", "\t", "\x00"])
def test_nothing_may_follow_an_operand_and_digits_are_those_of_ascii(suffix):
    with pytest.raises(NameSyntaxError, match="is not an operand"):
        parse_operation(f"matmul_1x1x1_f16t_f16t_f16t{suffix}")
    with pytest.raises(NameSyntaxError):
        parse_operation("matmul_٣x1x1_f16t_f16t_f16t")
    _, configuration = split_dispatch_name("matmul_1x1x1_f16t_f16t_f16t_alpha٣")
    assert configuration == "alpha٣"


# Hostile names

_PIECES = st.sampled_from(
    ["matmul", "batch_matmul", "matmul_splitk", "conv2d", "_", "x", "1x2x3", "4x1x2x3", "3x3x8",
     "f16t", "f32n", "s8t", "s32t", "bf16nhwc", "f32hwcf", "slices2", "accf16", "scalerow",
     "vs16", "vs1x128", "vs0", "e8m0", "alpha", "alpha1e999",
     "betam0p5", "bias", "relu", "stride2x2", "pad1x1", "0", "-1", "٣",
     "９" * 3, "\n", "\x00", "9" * 5000, "slices" + "9" * 5000, "<script>", "../..", "é"]
)  # fmt: skip


@given(
    st.text(max_size=60)
    | st.text(alphabet=string.printable, max_size=60).map(lambda t: f"matmul_{t}")
    | st.lists(_PIECES, max_size=12).map("_".join)
    | st.lists(_PIECES, max_size=12).map("".join)
)
@example("matmul_1x1x1_f16t_f16t_f16t\n")
@example("matmul_splitk_8x8x8_f16t_f16t_f16t_slices" + "9" * 5000)
@example("matmul_1x1x1_f32t_f32t_f32t_alpha" + "9" * 5000)
@example("matmul_" + "9" * 5000 + "x1x1_f32t_f32t_f32t")
@example("matmul_splitk" + "9" * 10000)
@example("")
@settings(max_examples=500)
def test_hostile_names_are_refused_or_understood_but_never_crash(name):
    try:
        operation, configuration = split_dispatch_name(name)
    except NameSyntaxError as error:
        assert len(str(error)) < 1200
        return
    canonical = operation_name(operation)
    assert parse_operation(canonical) == operation
    assert configuration == "" or name.endswith(configuration)


# Numbers


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_parse_back(value):
    text = print_number(value)
    assert re.fullmatch(r"m?\d+(p\d+)?(em?\d+)?", text)
    assert parse_number(text) == value


@pytest.mark.parametrize(("value", "text"), [
    (1, "1"), (-0.5, "m0p5"), (1e-5, "1em05"), (1.5e300, "1p5e300"), (100000.0, "100000"),
    (1e16, "1e16"), (-0.0, "m0"),
])  # fmt: skip
def test_golden_numbers(value, text):
    assert print_number(value) == text


def test_names_of_many_shapes_share_one_signature():
    signature = Signature(OperationKind.MATMUL, F32, F32, F32)
    name = operation_namer(signature)
    first, second = (parse_operation(name(MatmulShape(m, 8, 8))).signature for m in (1, 2))
    assert first is second


def _shape_of(kind, text):
    sizes = [int(size) for size in re.findall(r"\d+", text)]
    return (Conv2dShape if kind == OperationKind.CONV2D else MatmulShape)(*sizes)
