"""Operations as linalg functions: the text of the reviewable ``.mlir`` files.

A function takes the operation's inputs in their storage shapes and the output's memory last
(``iree.abi.output``), so that the result is written to a caller's buffer and an invocation
allocates nothing. The product is always accumulated in the operation's accumulator type and rounded
to the result type once, at the end; by default, IREE accumulates in the type of the result.

A column-major C is the row-major C^T = B^T A^T, so there the operands swap places and tiles count
columns of C first.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmetry.domain.operation import (
    F32,
    Conv2dShape,
    DType,
    EpilogueStep,
    Layout,
    Operation,
    OperationKind,
    TensorSpec,
)

MLIR_TYPES = {
    "f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16",
    "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "e4m3fnuz": "f8E4M3FNUZ", "e5m2fnuz": "f8E5M2FNUZ",
    "s8": "i8", "s32": "i32",
}  # fmt: skip
"""gemmetry's dtype names -> MLIR's; missing dtypes have no MLIR type (tf32)."""

_SQRT_HALF = "0.70710678118654757"


def tensor_type(shape: tuple[int, ...], dtype: DType) -> str:
    """``tensor<512x256xf32>``."""
    return f"tensor<{'x'.join(map(str, shape))}x{MLIR_TYPES[dtype.name]}>"


def storage_type(spec: TensorSpec) -> str:
    """The MLIR type of a tensor in its storage layout."""
    return tensor_type(spec.storage_shape, spec.dtype)


def function_text(operation: Operation, name: str, compilation_info: str | None) -> str:
    """One ``func.func`` that computes `operation`; it ends with a line that is just ``}``.

    Args:
        operation: what to compute; its dtypes must be keys of ``MLIR_TYPES``.
        name: the function's symbol.
        compilation_info: the attribute of the contraction; None leaves all choices to the compiler.
    """
    return _LinalgWriter(operation, name, compilation_info).text()


def contraction_indexing_maps(operation: Operation) -> tuple[str, str, str]:
    """Affine maps of the emitted contraction, in the order lhs, rhs, result."""
    lhs, rhs = _operands(operation)
    split = operation.kind is OperationKind.MATMUL_SPLITK
    leads = {OperationKind.BATCH_MATMUL: "b", OperationKind.MATMUL_SPLITK: "s"}
    lead = leads.get(operation.kind, "")
    dims = {letter: f"d{position}" for position, letter in enumerate(f"{lead}mnk")}

    def one(subscripts: str) -> str:
        results = ", ".join(dims[letter] for letter in subscripts)
        return f"affine_map<({', '.join(dims.values())}) -> ({results})>"

    def operand(rows: str, columns: str, is_transposed: bool) -> str:
        # The dimension of split-K slices comes right before the remaining K.
        subscripts = columns + rows if is_transposed else rows + columns
        return one(subscripts.replace("k", "sk") if split else lead + subscripts)

    return (
        operand("m", "k", lhs.is_transposed),
        operand("k", "n", rhs.is_transposed),
        one(lead + "mn"),
    )


def contraction_types(operation: Operation) -> tuple[str, str]:
    """MLIR element types of the emitted contraction's operands."""
    lhs, rhs = _operands(operation)
    return MLIR_TYPES[lhs.spec.dtype.name], MLIR_TYPES[rhs.spec.dtype.name]


@dataclass(frozen=True, slots=True)
class _Operand:
    """A matrix as the emitted product uses it."""

    value: str
    spec: TensorSpec
    is_transposed: bool
    """True if memory holds (columns, rows) of the emitted product's operand."""


def _operands(operation: Operation) -> tuple[_Operand, _Operand]:
    layout = Layout.COLUMN if operation.output.layout is Layout.ROW else Layout.ROW
    lhs, rhs = (
        _Operand(f"%{spec.role}", spec, spec.layout is layout) for spec in operation.inputs[:2]
    )
    return (lhs, rhs) if layout is Layout.COLUMN else (rhs, lhs)


class _LinalgWriter:
    def __init__(self, operation: Operation, name: str, compilation_info: str | None) -> None:
        self.operation, self.signature = operation, operation.signature
        self.name, self.attribute = name, compilation_info
        self.accumulator = MLIR_TYPES[self.signature.accumulator.name]
        self.lines: list[str] = []

    def text(self) -> str:
        output = storage_type(self.operation.output)
        self.lines = [f"func.func @{self.name}("]
        self.lines += [f"    %{spec.role}: {storage_type(spec)}," for spec in self.operation.inputs]
        self.lines += [f"    %out: {output} {{iree.abi.output = 0 : i32}}", f") -> {output} {{"]
        zero = "0" if self.accumulator == "i32" else "0.0"
        self._emit(f"%zero = arith.constant {zero} : {self.accumulator}")
        if self.operation.kind is OperationKind.CONV2D:
            self._convolution()
        elif self.operation.kind is OperationKind.MATMUL_SPLITK:
            self._split_k()
        else:
            self._matmul()
        self._epilogue()
        self._emit(f"return %result : {output}")
        self.lines.append("}")
        return "\n".join(self.lines) + "\n"

    def _emit(self, *lines: str) -> None:
        self.lines += [f"  {line}" for line in lines]

    def _filled(self, shape: tuple[int, ...], prefix: str) -> tuple[str, str]:
        """A tensor of zeros of the accumulator type: its name and type."""
        kind = f"tensor<{'x'.join(map(str, shape))}x{self.accumulator}>"
        self._emit(
            f"%{prefix}_empty = tensor.empty() : {kind}",
            f"%{prefix}_zeros = linalg.fill ins(%zero : {self.accumulator}) "
            f"outs(%{prefix}_empty : {kind}) -> {kind}",
        )
        return f"%{prefix}_zeros", kind

    def _attributes(self, *others: str) -> str:
        own = [f"compilation_info = {self.attribute}"] if self.attribute else []
        attributes = ", ".join([*others, *own])
        return f" {{{attributes}}}" if attributes else ""

    def _matmul(self) -> None:
        lhs, rhs = _operands(self.operation)
        zeros, kind = self._filled(self.operation.output.storage_shape, "acc")
        maps = ""
        if lhs.is_transposed or rhs.is_transposed:
            maps = f" indexing_maps = [{', '.join(contraction_indexing_maps(self.operation))}]"
        self._emit(
            f"%acc = linalg.{self.operation.kind}{maps}{self._attributes()}",
            f"    ins({lhs.value}, {rhs.value} : "
            f"{storage_type(lhs.spec)}, {storage_type(rhs.spec)})",
            f"    outs({zeros} : {kind}) -> {kind}",
        )

    def _split_k(self) -> None:
        """One product per slice of K, then the sum of the slices in a fixed order."""
        slices = self.signature.split_k_slices
        lhs, rhs = _operands(self.operation)
        left, left_type = self._sliced(lhs, slices, k_is_last=not lhs.is_transposed)
        right, right_type = self._sliced(rhs, slices, k_is_last=rhs.is_transposed)
        rows_columns = self.operation.output.storage_shape
        partial_zeros, partial_type = self._filled((slices, *rows_columns), "partial")
        maps = ", ".join(contraction_indexing_maps(self.operation))
        extend = [
            convert("a", "%a", lhs.spec.dtype, self.signature.accumulator),
            convert("b", "%b", rhs.spec.dtype, self.signature.accumulator),
        ]
        multiply, add = ("muli", "addi") if self.accumulator == "i32" else ("mulf", "addf")
        left_element, right_element = contraction_types(self.operation)
        self._emit(
            "%partial = linalg.generic {"
            f"indexing_maps = [{maps}], "
            'iterator_types = ["parallel", "parallel", "parallel", "reduction"]}',
            f"    ins({left}, {right} : {left_type}, {right_type})",
            f"    outs({partial_zeros} : {partial_type})"
            + (f" attrs = {self._attributes()}" if self.attribute else "")
            + " {",
            f"^bb0(%a: {left_element}, %b: {right_element}, %c: {self.accumulator}):",
            *(f"  {line}" for lines, _ in extend for line in lines),
            f"  %product = arith.{multiply} {extend[0][1]}, {extend[1][1]} : {self.accumulator}",
            f"  %sum = arith.{add} %c, %product : {self.accumulator}",
            f"  linalg.yield %sum : {self.accumulator}",
            f"}} -> {partial_type}",
        )
        zeros, kind = self._filled(rows_columns, "acc")
        self._emit(
            f"%acc = linalg.reduce {{ arith.{add} }} ins(%partial : {partial_type})",
            f"    outs({zeros} : {kind}) dimensions = [0]",
        )

    def _sliced(self, operand: _Operand, slices: int, *, k_is_last: bool) -> tuple[str, str]:
        """Split the K of a stored (rows, columns) matrix into (slices, K / slices)."""
        first, last = operand.spec.storage_shape
        shape = (first, slices, last // slices) if k_is_last else (slices, first // slices, last)
        groups = "[[0], [1, 2]]" if k_is_last else "[[0, 1], [2]]"
        kind = tensor_type(shape, operand.spec.dtype)
        name = f"{operand.value}_slices"
        self._emit(
            f"{name} = tensor.expand_shape {operand.value} {groups} "
            f"output_shape [{', '.join(map(str, shape))}]",
            f"    : {storage_type(operand.spec)} into {kind}",
        )
        return name, kind

    def _convolution(self) -> None:
        c = self.operation.shape
        assert isinstance(c, Conv2dShape)
        lhs, rhs = self.operation.inputs[:2]
        image, image_type = "%lhs", storage_type(lhs)
        if c.pad_h or c.pad_w:
            image = "%padded"
            image_type = tensor_type((c.n, c.h + 2 * c.pad_h, c.w + 2 * c.pad_w, c.c), lhs.dtype)
            element = MLIR_TYPES[lhs.dtype.name]
            pads = f"[0, {c.pad_h}, {c.pad_w}, 0]"
            self._emit(
                f"%pad_value = arith.constant {'0' if element == 'i8' else '0.0'} : {element}",
                f"%padded = tensor.pad %lhs low{pads} high{pads} {{",
                "^bb0(%i0: index, %i1: index, %i2: index, %i3: index):",
                f"  tensor.yield %pad_value : {element}",
                f"}} : {storage_type(lhs)} to {image_type}",
            )
        zeros, kind = self._filled(self.operation.output.storage_shape, "acc")
        strides = f"strides = dense<[{c.stride_h}, {c.stride_w}]> : tensor<2xi64>"
        self._emit(
            "%acc = linalg.conv_2d_nhwc_hwcf"
            + self._attributes("dilations = dense<1> : tensor<2xi64>", strides),
            f"    ins({image}, %rhs : {image_type}, {storage_type(rhs)})",
            f"    outs({zeros} : {kind}) -> {kind}",
        )

    def _epilogue(self) -> None:
        """alpha, beta, the fused steps and the one rounding, in one element-wise operation."""
        output = self.operation.output
        acc_type = f"tensor<{'x'.join(map(str, output.storage_shape))}x{self.accumulator}>"
        s = self.signature
        if (s.alpha, s.beta, s.epilogue) == (1, 0, ()) and s.result is s.accumulator:
            self.lines = [line.replace("%acc = ", "%result = ") for line in self.lines]
            return
        body = _EpilogueBody(self.operation)
        self._emit(*body.constants)
        rank = len(output.shape)
        dims = [f"d{index}" for index in range(rank)]
        identity = f"affine_map<({', '.join(dims)}) -> ({', '.join(dims)})>"
        channel = dims[-2] if output.layout is Layout.COLUMN else dims[-1]
        bias_map = f"affine_map<({', '.join(dims)}) -> ({channel})>"
        extras = self.operation.inputs[2:]
        maps = [identity, *(bias_map if x.role == "bias" else identity for x in extras), identity]
        operands = ", ".join(["%acc", *(f"%{x.role}" for x in extras)])
        types = ", ".join([acc_type, *(storage_type(x) for x in extras)])
        parallel = ", ".join(['"parallel"'] * rank)
        result = MLIR_TYPES[s.result.name]
        block = [f"%acc_element: {self.accumulator}"]
        block += [f"%{x.role}_element: {MLIR_TYPES[x.dtype.name]}" for x in extras]
        self._emit(
            f"%result_empty = tensor.empty() : {storage_type(output)}",
            f"%result = linalg.generic {{indexing_maps = [{', '.join(maps)}], "
            f"iterator_types = [{parallel}]}}",
            f"    ins({operands} : {types})",
            f"    outs(%result_empty : {storage_type(output)}) {{",
            f"^bb0({', '.join(block)}, %unused: {result}):",
            *(f"  {line}" for line in body.lines),
            f"  linalg.yield {body.value} : {result}",
            f"}} -> {storage_type(output)}",
        )


def convert(name: str, value: str, source: DType, target: DType) -> tuple[list[str], str]:
    """Lines that convert `value` to `target`'s type, and the name of the result."""
    if source is target:
        return [], value
    if source.is_integer:
        operation = "extsi"
    elif source.storage_bits == target.storage_bits:
        # There is no direct conversion between f16 and bf16; f32 can represent both.
        up = f"%{name}_f32 = arith.extf {value} : {MLIR_TYPES[source.name]} to f32"
        down = f"%{name}_{target} = arith.truncf %{name}_f32 : f32 to {MLIR_TYPES[target.name]}"
        return [up, down], f"%{name}_{target}"
    else:
        operation = "extf" if source.storage_bits < target.storage_bits else "truncf"
    types = f"{MLIR_TYPES[source.name]} to {MLIR_TYPES[target.name]}"
    return [f"%{name}_{target} = arith.{operation} {value} : {types}"], f"%{name}_{target}"


class _EpilogueBody:
    """The scalar code of the element-wise part, computed in f32 or wider."""

    def __init__(self, operation: Operation) -> None:
        s = operation.signature
        self.constants: list[str] = []
        self.lines: list[str] = []
        wide = s.accumulator if s.accumulator.storage_bits >= 32 else F32
        self.compute = wide
        self.type = MLIR_TYPES[wide.name]
        self.suffix = "i" if wide.is_integer else "f"
        self.value = self._extended("acc", s.accumulator)
        if s.alpha != 1:
            self._binary("mulf", "scaled", self._constant("alpha", s.alpha))
        if s.beta != 0:
            addend = self._extended("addend", s.result)
            if s.beta != 1:
                beta = self._constant("beta", s.beta)
                self.lines.append(f"%addend_scaled = arith.mulf {addend}, {beta} : {self.type}")
                addend = "%addend_scaled"
            self._binary(f"add{self.suffix}", "added", addend)
        for step in s.epilogue:
            self._step(step, s.result)
        lines, self.value = convert("result", self.value, wide, s.result)
        self.lines += lines

    def _extended(self, role: str, source: DType) -> str:
        lines, value = convert(role, f"%{role}_element", source, self.compute)
        self.lines += lines
        return value

    def _constant(self, name: str, value: float) -> str:
        number = "0" if self.compute.is_integer else float_literal(value)
        self.constants.append(f"%{name} = arith.constant {number} : {self.type}")
        return f"%{name}"

    def _binary(self, operation: str, name: str, other: str) -> None:
        self.lines.append(f"%{name} = arith.{operation} {self.value}, {other} : {self.type}")
        self.value = f"%{name}"

    def _step(self, step: EpilogueStep, result: DType) -> None:
        if step in (EpilogueStep.BIAS, EpilogueStep.RESIDUAL):
            self._binary(f"add{self.suffix}", f"with_{step}", self._extended(step.value, result))
        elif step is EpilogueStep.RELU:
            operation = "maxsi" if self.compute.is_integer else "maximumf"
            self._binary(operation, "relu", self._constant("relu_floor", 0.0))
        else:
            # x * 0.5 * (1 + erf(x / sqrt(2)))
            half, one = self._constant("half", 0.5), self._constant("one", 1.0)
            root = "%sqrt_half"
            self.constants.append(f"{root} = arith.constant {_SQRT_HALF} : {self.type}")
            x, kind = self.value, self.type
            self.lines += [
                f"%gelu_argument = arith.mulf {x}, {root} : {kind}",
                f"%gelu_erf = math.erf %gelu_argument : {kind}",
                f"%gelu_sum = arith.addf %gelu_erf, {one} : {kind}",
                f"%gelu_half = arith.mulf {x}, {half} : {kind}",
                f"%gelu = arith.mulf %gelu_half, %gelu_sum : {kind}",
            ]
            self.value = "%gelu"


def float_literal(value: float) -> str:
    """A float as MLIR reads it: a point before any exponent (``1e-05`` -> ``1.0e-05``)."""
    text = repr(float(value))
    if "." in text:
        return text
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}.0e{exponent}" if exponent else f"{mantissa}.0"
