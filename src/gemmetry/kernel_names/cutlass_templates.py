"""CUTLASS kernels named by their template arguments.

Source: the parameters of ``cutlass::gemm::collective::CollectiveMma`` (NVIDIA/cutlass,
``include/cutlass/gemm/collective``): policy with stages and cluster, tile, A, stride of A, B ...;
in CUTLASS 2 the first ``GemmShape`` is the tile of a block.
"""

from __future__ import annotations

from gemmetry.kernel_names.kinds import KernelKind, KernelName
from gemmetry.kernel_names.number_formats import format_arguments
from gemmetry.kernel_names.patterns import pattern
from gemmetry.kernel_names.symbols import Symbol

_CONTAINER = pattern(r"cutlass\w*::(?:device_kernel|Kernel2?)\Z")
_SIZE = r"(?:cute::)?(?:C<(?:\(int\))?|_)(\d{1,6})>?"
_TUPLE = pattern(rf"cute::tuple<{_SIZE}, ?{_SIZE}, ?{_SIZE} ?>")
_MAINLOOP = pattern(r"::Mainloop\w{1,80}<(?:\(int\))?(\d{1,3})\b")
_SHAPE = pattern(
    r"GemmShape<(?:\(int\))?(\d{1,5}), ?(?:\(int\))?(\d{1,5}), ?(?:\(int\))?(\d{1,5})>"
)
_STRIDE = pattern(
    rf"cute::tuple<(?:{_SIZE}|long|int|l|long long), ?(?:{_SIZE}|long|int|long long),"
)


def cutlass_template(symbol: Symbol) -> KernelName | None:
    """``cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<...>>`` and similar; other
    kernels (attention, convolution) are left to other grammars."""
    text = symbol.text
    if not _CONTAINER.search(symbol.function) and "kernel_cutlass_" not in symbol.base:
        return None
    if "ReduceSplitK" in text:
        return KernelName(
            kind=KernelKind.CONVOLUTION
            if "cudnn" in symbol.function
            else KernelKind.GEMM_REDUCTION,
            family="cudnn" if "cudnn" in symbol.function else "cutlass2",
            short="cutlass::ReduceSplitK",
        )
    if "gemm" not in text.lower():
        return None
    if symbol.base == "device_kernel":
        return _cutlass3(symbol)
    shape = next((s for s in _SHAPE.finditer(text) if int(s[1]) > 1), None)
    formats = format_arguments(text[:4000])
    return KernelName(
        kind=KernelKind.GEMM,
        family="cutlass2" if "kernel_cutlass_" not in symbol.base else "cutlass3",
        tile=(int(shape[1]), int(shape[2]), int(shape[3])) if shape else None,
        dtype=formats[0] if formats else None,
        short=symbol.short,
    )


def _cutlass3(symbol: Symbol) -> KernelName:
    text = symbol.text
    mainloop = _MAINLOOP.search(text)
    cluster = _TUPLE.search(text, mainloop.end()) if mainloop else None
    tile = _TUPLE.search(text, cluster.end()) if cluster else None
    formats: list[str] = []
    layout = None
    if tile:
        operands = text[tile.end() : tile.end() + 600]
        formats = format_arguments(operands)
        strides = _STRIDE.findall(operands)
        if len(strides) >= 2:
            # The strides of (M, K) and (N, K): for BLAS, A is transposed where K is contiguous, B
            # where it is not.
            layout = ("n" if strides[0][0] else "t") + ("t" if strides[1][0] else "n")
    return KernelName(
        kind=KernelKind.GEMM,
        family="cutlass3",
        tile=(int(tile[1]), int(tile[2]), int(tile[3])) if tile else None,
        stages=int(mainloop[1]) if mainloop else None,
        cluster=(int(cluster[1]), int(cluster[2])) if cluster else None,
        layout=layout,
        dtype=formats[0] if formats else None,
        short="cutlass::GemmUniversal",
    )
