"""Parses the machine code that ``iree-compile`` can dump, by dispatch.

One file holds the code of every function of a call: x86 or ARM assembly (``.s``), PTX (``.ptx``) or
AMD assembly (``.rocmasm``). A kernel's symbol is ``<function>_dispatch_<number>_<what it does>``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.providers.base import matrix_instruction

SUFFIXES = {".s": ".s", ".ptx": ".ptx", ".rocmasm": ".amdgcn"}
"""Suffix of the compiler's file -> suffix of a dispatch's own."""

_DISPATCH = re.compile(r"[_$]+(?:async_)?dispatch_\d+(?=_|$)")
"""Ends the function's name in a symbol."""
_LABEL = re.compile(r'"?[A-Za-z_$][\w$.]*"?:')
_NOISE = re.compile(
    r"\s*(?:\.(?:loc|cfi_\w+|file|p2align|prefalign|type|size|globl)\b.*|\.L(?:tmp|func_)\w+:.*)"
)
"""Lines for debuggers, unwinders and linkers."""

_CPU_MATRIX = re.compile(r"tdp\w+|\w*mmla|\w*mop[as]")
"""Mnemonics of whole-matrix products: AMX; Arm i8mm, bf16 and SME."""
_CPU_MULTIPLY_ADD = re.compile(
    r"v?pdp\w+|vdp\w+|vp?madd\w+|vfn?m(?:add|sub)\w+"  # x86: VNNI, bf16, pmaddwd, FMA
    r"|vpmull[dq]|v?mul[ps][sdh]"  # x86 without a fused form: 32-bit integers, old SSE
    r"|[us]{1,2}dot|bfdot|f?ml[as]l?\w*|fn?madd|fn?msub"  # Arm
)
_X86_REGISTER = re.compile(r"%([xyzt]mm)\d+\s*(?:\{[^}]*\}\s*)*$")
_ARM_ARRANGEMENT = re.compile(r"\s[vz]\d+\.(\w+)")


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The code of all kernels of one dispatch, and facts read from it."""

    text: str
    suffix: str
    """Suffix of a file with the text: ``.s``, ``.ptx`` or ``.amdgcn``."""
    matrix_instruction: str
    registers: int | None = None
    """Registers per thread of the kernel that uses the most; likewise for the next two fields."""
    spill_bytes: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage of one kernel on a GPU; None where it is not reported."""

    registers: int | None = None
    spill_bytes: int | None = None
    shared_memory_bytes: int | None = None


def read_machine_code(
    folder: Path, functions: Sequence[str], usage: Mapping[str, Usage] | None = None
) -> dict[str, MachineCode]:
    """Function -> its code, from the compiler's dump in `folder`. A function whose code is missing,
    or shared with an identical function, has none.

    Args:
        functions: function names with which kernel symbols may begin.
        usage: symbol -> resource usage, where a tool reports it; AMD assembly contains it.
    """
    found: dict[str, MachineCode] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix not in SUFFIXES:
            continue
        text = path.read_text(errors="replace")
        known = {**(usage or {}), **(amd_usage(text) if path.suffix == ".rocmasm" else {})}
        head, kernels = split_kernels(text, path.suffix)
        for function, symbols in _by_function(kernels, functions).items():
            code = "\n".join([*([head] if head else []), *(kernels[name] for name in symbols)])
            instruction = matrix_instruction(code) if path.suffix != ".s" else cpu_instruction(code)
            made = MachineCode(code, SUFFIXES[path.suffix], instruction)
            found[function] = _with_usage(made, [known[n] for n in symbols if n in known])
    return found


def function_of(symbol: str, functions: Iterable[str]) -> str | None:
    """Which of `functions` the kernel called `symbol` belongs to; None if to none."""
    ends = [match.start() for match in _DISPATCH.finditer(symbol)]
    return next((symbol[:end] for end in reversed(ends) if symbol[:end] in functions), None)


def split_kernels(text: str, suffix: str) -> tuple[str, dict[str, str]]:
    """The common text before the kernels, and symbol -> the kernel's text."""
    return _split_ptx(text) if suffix == ".ptx" else ("", dict(_elf_functions(text)))


def cpu_instruction(code: str) -> str:
    """The most frequent multiply-add instruction in the text, with the register type it writes
    (``vfmadd231ps zmm``); a whole-matrix instruction if there is one."""
    counts: Counter[str] = Counter()
    matrix: Counter[str] = Counter()
    for line in code.splitlines():
        words = line.split(maxsplit=1)
        if len(words) != 2 or not line[:1].isspace():
            continue
        if _CPU_MATRIX.fullmatch(words[0]):
            matrix[words[0]] += 1
        elif _CPU_MULTIPLY_ADD.fullmatch(words[0]):
            register = _X86_REGISTER.search(words[1]) or _ARM_ARRANGEMENT.search(f" {words[1]}")
            counts[f"{words[0]} {register[1]}" if register else words[0]] += 1
    best = (matrix or counts).most_common(1)
    return best[0][0] if best else "none"


def amd_usage(assembly: str) -> dict[str, Usage]:
    """Symbol -> registers, spilled bytes per lane and LDS, from the metadata at the end of AMD
    assembly (LLVM's AMDGPU guide, code object metadata; on CDNA 2 and later ``.vgpr_count`` holds
    the accumulation registers too)."""
    _, _, metadata = assembly.partition(".amdgpu_metadata")
    found = {}
    for entry in re.split(r"^  - ", metadata, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^ {0,4}\.(\w+):\s+(\S+)$", entry, flags=re.MULTILINE))
        if "symbol" in values and "vgpr_count" in values:
            found[values["symbol"].removesuffix(".kd")] = Usage(
                registers=int(values["vgpr_count"]),
                spill_bytes=4 * int(values.get("vgpr_spill_count", 0)),
                shared_memory_bytes=int(values.get("group_segment_fixed_size", 0)),
            )
    return found


def _with_usage(code: MachineCode, usages: Sequence[Usage]) -> MachineCode:
    def most(values: Iterable[int | None]) -> int | None:
        return max((value for value in values if value is not None), default=None)

    return replace(
        code,
        registers=most(usage.registers for usage in usages),
        spill_bytes=most(usage.spill_bytes for usage in usages),
        shared_memory_bytes=most(usage.shared_memory_bytes for usage in usages),
    )


def _by_function(symbols: Iterable[str], functions: Sequence[str]) -> dict[str, list[str]]:
    names = frozenset(functions)
    grouped: dict[str, list[str]] = {}
    for symbol in symbols:
        function = function_of(symbol, names)
        if function is not None:
            grouped.setdefault(function, []).append(symbol)
    return {function: sorted(found) for function, found in grouped.items()}


def _elf_functions(text: str) -> Iterator[tuple[str, str]]:
    """Symbol and text of each function of GNU assembly, without lines intended for tools."""
    name = ""
    kept: list[str] = []
    for line in text.splitlines():
        if not name:
            if _LABEL.fullmatch(line):
                name, kept = line[:-1].strip('"'), [line]
        elif line.lstrip().startswith(".size") and name in line:
            yield name, "\n".join(kept) + "\n"
            name = ""
        elif not _NOISE.fullmatch(line):
            kept.append(line)


def _split_ptx(text: str) -> tuple[str, dict[str, str]]:
    head, *entries = re.split(r"^(?=\s*(?:\.visible )?\.entry )", text, flags=re.MULTILINE)
    kernels = {}
    for entry in entries:
        match = re.search(r"\.entry\s+([\w$]+)", entry)
        end = re.search(r"^\}$", entry, flags=re.MULTILINE)
        if match and end:
            kernels[match[1]] = entry[: end.end()] + "\n"
    directives = [line for line in head.splitlines() if line.startswith(".")]
    return "\n".join(directives) + "\n", kernels
