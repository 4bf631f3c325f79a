"""Makes names mangled by the Itanium C++ ABI readable, as far as classifying kernels requires.

Source: the grammar of the ABI, https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling. This is
not a full demangler: the function's qualified name is exact, and the rest is a flat list of the
names, numbers and arithmetic types that occur.

Parses a kernel's name into its function and a short form for display.

CUTLASS kernels named by their template arguments.

Source: the parameters of ``cutlass::gemm::collective::CollectiveMma`` (NVIDIA/cutlass,
``include/cutlass/gemm/collective``): policy with stages and cluster, tile, A, stride of A, B ...;
in CUTLASS 2 the first ``GemmShape`` is the tile of a block.

Classifies by words the kernels that are neither GEMMs of a known grammar nor communication.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemmetry.traces.names.words import (
    APPLIED,
    ATTENTION,
    CONVOLUTION,
    DRIVERS,
    FAMILIES,
    FUNCTIONS,
    KV_CACHE,
    KernelKind,
    KernelName,
    format_arguments,
    number_format,
    pattern,
)

_QUALIFIERS = pattern(r"_Z+(?:L(?=\d))?(N)?[rVKRO]*(?:St)?")
_SUBSTITUTION = pattern(r"S[0-9A-Z]*_|St|[CD][0-9]")
_LENGTH = pattern(r"L?(\d{1,4})")
_TOKEN = pattern(
    r"L(?P<type>[a-z])(?P<value>n?\d+)E"
    r"|S[0-9A-Z]*_|S[tabsiod]|T[0-9A-Z]*_|U[lt]|E\d*_|A\d+_"
    r"|(?P<half>DF16[_b])"
    r"|(?P<length>\d{1,4})"
    r"|(?P<literal>L)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_ENUMERATOR = pattern(r"E?(n?\d+)E")
_ARITHMETIC = {"f": "float", "d": "double", "t": "unsigned short"}
_HALF = {"DF16_": "_Float16", "DF16b": "__bf16"}


def readable(mangled: str) -> str:
    """``_ZN2ns4funcILi4EfEEvPT_`` -> ``ns::func<4, float>``; any other text unchanged."""
    start = _QUALIFIERS.match(mangled)
    if not start:
        return mangled
    parts, at = _function(mangled, start.end(), nested=start.group(1) is not None)
    if not parts:
        return mangled
    name = "::".join(parts)
    inside = _arguments(mangled, at) if mangled.startswith("I", at) else []
    return f"{name}<{', '.join(inside)}>" if inside else name


def _function(text: str, at: int, *, nested: bool) -> tuple[list[str], int]:
    """The parts of the qualified name, and the position where they end."""
    parts: list[str] = []
    while True:
        skipped = _SUBSTITUTION.match(text, at)
        length = _LENGTH.match(text, at)
        if skipped and nested:
            at = skipped.end()
        elif length and (nested or not parts):
            name, at = _source_name(text, length)
            if not name:
                return parts, at
            if not name.startswith("_GLOBAL__N_"):
                parts.append(name)
        else:
            return parts, at


def _source_name(text: str, length: re.Match[str]) -> tuple[str, int]:
    end = length.end() + int(length.group(1))
    name = text[length.end() : end]
    return (name, end) if name.isidentifier() else ("", length.end())


def _arguments(text: str, at: int) -> list[str]:
    found: list[str] = []
    in_literal = False
    while at < len(text):
        if in_literal:
            number = _ENUMERATOR.match(text, at)
            if number:
                found.append(number.group(1).replace("n", "-"))
                at, in_literal = number.end(), False
                continue
        token = _TOKEN.match(text, at)
        if token is None:
            break
        at = token.end()
        if token["type"]:
            found.append(token["value"].replace("n", "-"))
        elif token["half"]:
            found.append(_HALF[token["half"]])
        elif token["length"]:
            name, at = _source_name(text, _LENGTH.match(text, token.start()) or token)
            if name and not name.startswith("_GLOBAL__N_"):
                found.append(name)
        elif token["literal"]:
            in_literal = text[at : at + 1].isupper() or text[at : at + 1].isdigit()
        elif token["other"] in _ARITHMETIC:
            found.append(_ARITHMETIC[token["other"]])
    return found


MOST_CHARACTERS = 8192
"""Number of characters of a name that are read. The longest of 20,000 real names has 5123
characters; a longer one is damaged or malicious."""

HEAD_CHARACTERS = 512
SHORT_CHARACTERS = 60

_BRACKETS = pattern(r"[<>(){}]")
_ANONYMOUS = pattern(r"(?:\(anonymous namespace\)|<unnamed>|\(anonymous\))::")
_PREFIXES = pattern(r"\A(?:at::native::|at_cuda_detail::)+")
_EMPTY_SCOPES = pattern(r":{3,}")
_HASH = pattern(r"\.(?:intern|llvm)\.[0-9a-fA-F]+\Z")
_WORK = pattern(
    r"(?<![\w:])(?:\w{1,60}::){0,6}"
    r"(\w{1,60}(?:Functor|_functor|Ops|_kernel_cuda|_cuda_kernel|_kernel_impl|_kernel|KernelImpl)"
    r"\w{0,20})"
)
_WRAPPERS = {
    "gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_index_kernel", "AUnaryFunctor",
    "BUnaryFunctor", "BinaryFunctor", "multi_tensor_apply_kernel", "UnaryOpFunctor",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Symbol:
    """A parsed kernel name."""

    text: str
    """The readable name on one line, without suffixes that loaders add (``.kd``)."""
    head: str
    """The beginning of `text`: names that encode their parameters do so there."""
    function: str
    """Qualified name without template arguments: ``at::native::reduce_kernel``."""
    base: str
    """Last part of `function`."""
    lower: str
    """The beginning of `function` in lower case."""
    short: str


def read_symbol(name: str) -> Symbol:
    """Parse `name`; of a malicious name only the first `MOST_CHARACTERS` are read."""
    text = _without_marks(_one_line(name[:MOST_CHARACTERS]))
    while text.startswith("void "):
        text = text[5:].lstrip()
    if text.startswith("_Z"):
        plain = _without_marks(readable(text))
        # A function whose own name looks mangled is left unchanged.
        text = text if plain.startswith("_Z") else plain
    text = _without(_ANONYMOUS, text)
    function = function_of(text)
    return Symbol(
        text=text,
        head=text[:HEAD_CHARACTERS],
        function=function,
        base=function.rpartition("::")[2][:HEAD_CHARACTERS],
        lower=function[:HEAD_CHARACTERS].lower(),
        short=_short(text, function),
    )


def function_of(text: str) -> str:
    """The qualified name of the function in a demangled `text`, without return type, template
    arguments and parameters; a text without brackets is returned unchanged."""
    pieces: list[str] = []
    depth = begin = 0
    for match in _BRACKETS.finditer(text):
        bracket, at = match.group(), match.start()
        if bracket in "<({":
            if depth == 0:
                pieces.append(text[begin:at])
                if bracket == "(" and "".join(pieces).strip():
                    break
            depth += 1
        elif depth and text[at - 1] != "-":
            depth -= 1
            begin = match.end()
    else:
        if depth == 0:
            pieces.append(text[begin:])
    if pieces == [text]:
        return text
    words = "".join(pieces).split()
    return _EMPTY_SCOPES.sub("::", words[-1]).lstrip(":") if words else text


def cut(text: str) -> str:
    """`text` shortened to at most `SHORT_CHARACTERS`."""
    return text if len(text) <= SHORT_CHARACTERS else text[: SHORT_CHARACTERS - 1] + "…"


def settled(short: str) -> str:
    """`short`, shortened until it is its own short name, which only unusual texts require."""
    for _ in range(SHORT_CHARACTERS):
        again = read_symbol(short)
        if again.short == short or again.text != again.function:
            break
        short = again.short
    return short


def _short(text: str, function: str) -> str:
    name = _PREFIXES.sub("", function) or function
    if "<" in text:
        inside = (found[1] for found in _WORK.finditer(text[:3000], len(function)))
        work = next((w for w in inside if w not in _WRAPPERS and w not in name), None)
        if work:
            name = f"{name}[{work}]"
    return cut(name)


def _one_line(text: str) -> str:
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())


def _without(pattern: re.Pattern[str], text: str) -> str:
    while (shorter := pattern.sub("", text)) != text:
        text = shorter
    return text


def _without_marks(text: str) -> str:
    while True:
        before = text
        text = text.removesuffix(" (.kd)").removesuffix(".kd")
        if text.endswith("]") and " [clone " in text:
            text = text[: text.rindex(" [clone ")]
        text = text[:-80] + _HASH.sub("", text[-80:])
        if text == before:
            return text


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


_TRANSFER = pattern(
    r"\A(?:\[CUDA )?mem(?P<memory>cpy|set)"
    r"|\A__amd_rocclr_(?P<rocclr>copy|fill)"
    r"|\ACopy(?:Host|Device)To",
    re.IGNORECASE,
)


def transfer(symbol: Symbol) -> KernelName | None:
    """``Memcpy HtoD (Pinned -> Device)``, ``Memset (Device)``, ``__amd_rocclr_copyBuffer``."""
    found = _TRANSFER.match(symbol.text)
    if not found:
        return None
    is_fill = (found["memory"] or found["rocclr"] or "").lower() in ("set", "fill")
    return KernelName(
        kind=KernelKind.FILL if is_fill else KernelKind.COPY,
        family="rocclr" if found["rocclr"] else "",
        short=cut(symbol.text),
    )


_CONTAINERS = pattern(
    r"(?:device_kernel|Kernel2?|kentry|kentry_kernel|kernel|launch_kernel|global_kernel)\Z"
)
_PYTORCH_CONVOLUTION = pattern(r"conv_depthwise|slow_conv|im2col|col2im|vol2col")
_IGEMM = pattern(r"igemm_[a-z]+_gtcx?\d?_[a-z]+_(?P<format>[a-z]+\d+)_\w{0,20}?bt(\d+)x(\d+)x(\d+)")


def attention_or_convolution(symbol: Symbol) -> KernelName | None:
    """Attention and convolutions, matched before GEMMs: both are built from GEMMs, and their names
    contain the word."""
    lower = symbol.lower
    if _CONTAINERS.search(symbol.base):
        lower = symbol.text[:4096].lower()
    if KV_CACHE.search(lower) and "attention" not in lower and "fmha" not in lower:
        return KernelName(kind=KernelKind.COPY, family=family_of(symbol), short=symbol.short)
    if lower.startswith("at::native::") and not _PYTORCH_CONVOLUTION.search(lower):
        return None
    if ATTENTION.search(lower):
        return KernelName(
            kind=KernelKind.ATTENTION, family=_attention_family(symbol), short=symbol.short
        )
    if not CONVOLUTION.search(lower):
        return None
    igemm = _IGEMM.search(symbol.head)
    return KernelName(
        kind=KernelKind.CONVOLUTION,
        family=family_of(symbol),
        tile=(int(igemm[2]), int(igemm[3]), int(igemm[4])) if igemm else None,
        dtype=number_format(igemm["format"]) if igemm else None,
        short=symbol.short,
    )


def _attention_family(symbol: Symbol) -> str:
    lower = symbol.text[:4096].lower()
    if re.search(r"flash::|flash_(?:fwd|bwd)|flashattn", lower):
        return "flash_attention"
    if "pytorchmemeffattention" in lower or lower.startswith("fmha_cutlass"):
        return "xformers"
    if re.match(r"attn_fwd|bwd_kernel_|bwd_preprocess", lower):
        return "aotriton"
    return family_of(symbol)


def family_of(symbol: Symbol) -> str:
    """The library, by namespace or naming convention."""
    return next((family for family, words in FAMILIES if words.match(symbol.lower)), "")


def by_words(symbol: Symbol) -> KernelName:
    """The kind that the words of the name indicate; ``other`` where they indicate none.

    Functions that apply another function are classified by their first template arguments, and so
    are containers (``ck_tile::kentry``, ``rocprim::...::trampoline_kernel``).
    """
    if DRIVERS.search(symbol.lower):
        kind = _first(APPLIED, symbol.text[:600].lower()) or KernelKind.ELEMENTWISE
    else:
        inside = symbol.text[len(symbol.function) : 1000].lower()
        kind = _first(FUNCTIONS, symbol.lower) or _first(FUNCTIONS[:-1], inside) or KernelKind.OTHER
    return KernelName(kind=kind, family=family_of(symbol), short=symbol.short)


def _first(table: tuple[tuple[KernelKind, re.Pattern[str]], ...], text: str) -> KernelKind | None:
    return next((kind for kind, words in table if words.search(text)), None)
