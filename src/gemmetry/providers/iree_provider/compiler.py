"""Runs ``iree-compile`` on many functions at once, and finds out which ones it rejects.

Starting the compiler costs more than compiling a small matmul does, so functions of equal flags
go into one call. IREE lowers every function of a call even after one has failed and names the
function of each failure, so the valid ones need just one more call. If the compiler crashes, or
fails without naming a function, the call is halved until the culprit is isolated.

What it dumps is read by function: its choices from the IR after configuration, and the machine
code. One file holds the code of every function of a call: x86 or ARM assembly (``.s``), PTX
(``.ptx``) or AMD assembly (``.rocmasm``). A kernel's symbol is
``<function>_dispatch_<number>_<what it does>``. Registers and spills of NVIDIA kernels come from
ptxas; the dynamic shared memory of a launch is in IREE's binary.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple, TypeVar

from gemmetry.domain.errors import CompileError
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.cuda_plans import TIMEOUT_S, cuda_tools, ptxas_usage
from gemmetry.providers.base import matrix_instruction

CALL_TIMEOUT_S = 60.0
"""Time limit of a call, plus ``FUNCTION_TIMEOUT_S`` for each function in it; a small matmul takes
0.05 to 0.5 s, so that only a compiler that hangs reaches the limit."""
FUNCTION_TIMEOUT_S = 10.0

MAX_FUNCTIONS = 24
"""Functions per call: enough to amortise startup, and few enough that little is lost if the
compiler crashes."""

_LOCATED = re.compile(r"^(?P<file>[^\n]*?):(?P<line>\d+):\d+: error: (?P<text>.*)$")
_UNLOCATED = re.compile(r"^(?:.*?: )?(?:fatal )?(?:error|ERROR|LLVM ERROR): ?(?P<text>.*)$")
_DUMPED = re.compile(r"configured_module_(?P<name>.+)\.mlir$")
_MAX_REASON = 300

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The code of all kernels of one function."""

    text: str
    suffix: str
    """Suffix of a file with the text: ``.s``, ``.ptx`` or ``.amdgcn``."""
    facts: BuildFacts
    """Matrix instruction, and the resources of the kernels that use the most."""


@dataclass(frozen=True, slots=True)
class CompileJob:
    """Functions with equal flags, to be compiled in one call."""

    functions: Mapping[str, str]
    """Symbol -> text."""
    flags: tuple[str, ...]
    architecture: str = ""
    """Architecture of the device. PTX may target an older architecture; registers are counted as
    the device's driver would assign them."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a job: some functions in one binary, and an error for each of the others."""

    names: tuple[str, ...] = ()
    """Functions in `binary`."""
    binary: bytes = b""
    errors: Mapping[str, CompileError] = field(default_factory=dict)
    configured: Mapping[str, str] = field(default_factory=dict)
    """Function -> IR after the compiler has chosen how to lower it."""
    machine_code: Mapping[str, MachineCode] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    """Function, including failed ones -> the call that decided it, with its output."""
    duration_ns: int = 0
    """Total time of all calls, including failed ones."""


class _Rejected(NamedTuple):
    """A call that made no binary."""

    reason: str
    log: str
    errors: Mapping[str, str] = {}
    """Functions that the compiler blames -> why."""


@dataclass(frozen=True, slots=True)
class IreeCompiler:
    """Compiles jobs with one ``iree-compile`` program, which also dumps its choices."""

    program: Path
    timeout_s: float | None = None
    """Overrides the deadline of a call (of any number of functions)."""

    def run(
        self, jobs: Sequence[CompileJob], parallel: int = 1
    ) -> Iterator[tuple[CompileJob, list[JobResult]]]:
        """Compile jobs, `parallel` at a time. Yields each job with its results as soon as it is
        done."""
        if parallel <= 1 or len(jobs) == 1:
            for job in jobs:
                yield job, self._compile(job, threads=len(jobs) == 1 and parallel > 1)
            return
        with ThreadPoolExecutor(parallel) as pool:
            # Several calls use the processors better than the threads of one call.
            futures = {pool.submit(self._compile, job, threads=False): job for job in jobs}
            for future in as_completed(futures):
                yield futures[future], future.result()

    def _compile(self, job: CompileJob, *, threads: bool) -> list[JobResult]:
        """Compile a job. Returns at least one result, and several where the job had to be
        halved."""
        rest = dict(job.functions)
        errors: dict[str, CompileError] = {}
        logs: dict[str, str] = {}
        began = perf_counter_ns()
        while rest:
            attempt = self._call(rest, job, threads=threads)
            if isinstance(attempt, JobResult):
                spent = perf_counter_ns() - began
                logs |= attempt.logs
                return [replace(attempt, errors=errors, logs=logs, duration_ns=spent)]
            found = attempt.errors
            if not found and len(rest) == 1:
                found = dict.fromkeys(rest, attempt.reason)
            if not found:
                items, half = list(rest.items()), len(rest) // 2
                own = JobResult(errors=errors, logs=logs, duration_ns=perf_counter_ns() - began)
                halves = [
                    result
                    for part in (items[:half], items[half:])
                    for result in self._compile(replace(job, functions=dict(part)), threads=threads)
                ]
                return [own, *halves] if errors else halves
            for name, reason in found.items():
                errors[name] = CompileError(
                    f"iree-compile: {reason}",
                    hint=f"The function is @{name} of the generated .mlir; `gemmetry show` has the "
                    "command.",
                )
                logs[name] = attempt.log
                del rest[name]
        return [JobResult(errors=errors, logs=logs, duration_ns=perf_counter_ns() - began)]

    def _call(
        self, functions: Mapping[str, str], job: CompileJob, *, threads: bool
    ) -> JobResult | _Rejected:
        with tempfile.TemporaryDirectory(prefix="gemmetry-iree-") as temporary:
            folder = Path(temporary)
            output, dumps = folder / "out.vmfb", folder / "dumped"
            # PTX counts as a binary, assembly is among the intermediates.
            code = "binaries" if "--iree-hal-target-device=cuda" in job.flags else "intermediates"
            command = [
                str(self.program), "-", "-o", str(output), *job.flags,
                f"--iree-hal-dump-executable-configurations-to={dumps}",
                f"--iree-hal-dump-executable-{code}-to={dumps}",
                *([] if threads else ["--mlir-disable-threading"]),
            ]  # fmt: skip
            deadline = self.timeout_s or CALL_TIMEOUT_S + FUNCTION_TIMEOUT_S * len(functions)
            status, messages, reason = _start(command, "\n".join(functions.values()), deadline)
            shown = shlex.join(["iree-compile", *command[1:]]).replace(f"{folder}/", "")
            log = _call_log(shown, functions, status, messages.replace(f"{folder}/", ""))
            if status is None:
                return _Rejected(reason, log)
            if status == 0 and output.exists():
                binary = output.read_bytes()
                usage, printed = _gpu_usage(dumps, job.architecture, binary)
                machine_code = read_machine_code(dumps, tuple(functions), usage)
                return JobResult(
                    names=tuple(functions),
                    binary=binary,
                    configured=with_twins(_read_configured(dumps, functions), functions),
                    machine_code=with_twins(machine_code, functions),
                    logs=dict.fromkeys(functions, log + printed),
                )
            reason = _general_reason(messages)
            if status < 0:
                # A crash may have cut off messages about other functions, so nothing is attributed.
                return _Rejected(f"iree-compile crashed (signal {-status}): {reason}", log)
            return _Rejected(reason, log, attribute_errors(messages, functions))


def _start(command: Sequence[str], text: str, deadline: float) -> tuple[int | None, str, str]:
    """Run a tool on `text`. Returns its exit status, its output, and the reason if there is no
    status."""
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=deadline,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        printed = (error.stdout or b"").decode(errors="replace")
        return None, printed, f"{Path(command[0]).name} did not end within {deadline:.0f} s"
    except OSError as error:
        return None, "", f"cannot start {command[0]}: {error}"
    return done.returncode, done.stdout.decode(errors="replace"), ""


def _call_log(command: str, functions: Iterable[str], status: int | None, printed: str) -> str:
    """A call as text: MLIR comments, then the unchanged output."""
    named = "".join(f"//   @{name}\n" for name in functions)
    end = "did not end in time or did not start" if status is None else f"exit status {status}"
    printed = printed if not printed or printed.endswith("\n") else f"{printed}\n"
    return f"// $ {command}\n// with these functions on standard input:\n{named}// {end}\n{printed}"


def attribute_errors(messages: str, functions: Mapping[str, str]) -> dict[str, str]:
    """Which of `functions` (joined by newlines, on standard input) failed, each with the first
    useful error line; empty if the messages name none."""
    starts: list[tuple[int, str]] = []
    line = 1
    for name, text in functions.items():
        starts.append((line, name))
        line += text.count("\n") + 1
    found: dict[str, str] = {}
    for message in messages.splitlines():
        match = _LOCATED.match(message)
        if match is None:
            continue
        culprit = _named(match["file"], int(match["line"]), starts)
        if culprit is not None:
            found.setdefault(culprit, _shorten(match["text"]))
    return found


def _named(file: str, line: int, starts: Sequence[tuple[int, str]]) -> str | None:
    """The function that an error's location lies in: on standard input, or in a dumped file."""
    if file in ("<stdin>", "-"):
        return next((name for start, name in reversed(starts) if start <= line), None)
    dumped = _DUMPED.search(file)
    return None if dumped is None else _longest(dumped["name"], [name for _, name in starts])


def _longest(dumped: str, names: Sequence[str]) -> str | None:
    """The longest function name with which the dumped executable's name (``<function>_dispatch_0``
    ...) begins; for an asynchronous function the latter is ``<function>_async_dispatch_0``."""
    stem = re.sub(r"[_$]+(?:async_)?dispatch_\d+$", "", dumped)
    matches = [name for name in names if stem == name or stem.rstrip("_$").endswith(name)]
    return max(matches, key=len, default=None)


def _read_configured(folder: Path, functions: Mapping[str, str]) -> dict[str, str]:
    """Function -> its executables after configuration, concatenated in the order of dispatch."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.mlir")):
        match = _DUMPED.search(path.name)
        name = _longest(match["name"], list(functions)) if match else None
        if name is not None:
            found[name] = found.get(name, "") + path.read_text(errors="replace")
    return found


def with_twins(found: Mapping[str, _Value], functions: Mapping[str, str]) -> dict[str, _Value]:
    """`found`, completed for functions that differ from another one only by name: the compiler
    keeps the code of only one of them."""
    by_body: dict[str, _Value] = {}
    for name, value in found.items():
        by_body.setdefault(functions[name].replace(f"@{name}(", "@("), value)
    bodies = {name: text.replace(f"@{name}(", "@(") for name, text in functions.items()}
    return {name: by_body[body] for name, body in bodies.items() if body in by_body} | dict(found)


def _general_reason(messages: str) -> str:
    for line in messages.splitlines():
        match = _UNLOCATED.match(line)
        if match and match["text"].strip():
            return _shorten(match["text"])
    meaningful = (line.strip() for line in messages.splitlines() if line.strip())
    return _shorten(next(meaningful, "it printed nothing"))


def _shorten(text: str) -> str:
    text = text.strip().removesuffix("were found:").rstrip(" :")
    return text if len(text) <= _MAX_REASON else f"{text[: _MAX_REASON - 1]}…"


def find_program(name: str, bin_dir: str | None, packaged: Path | None) -> Path | None:
    """An IREE tool: in the folder specified by the user, else in the package, else on PATH."""
    if bin_dir:
        candidate = Path(bin_dir).expanduser() / name
        return candidate if candidate.is_file() else None
    if packaged is not None and packaged.is_file():
        return packaged
    found = shutil.which(name)
    return Path(found) if found else None


_CPU = re.compile(r'\bcpu = "([^"]+)"')


def chosen_configuration(configured: str) -> str | None:
    """The contraction's lowering_config and its function's translation_info, on one line; None if
    the IR has no lowering_config.

    Fills and element-wise operations have one too; the contraction's is the first that tiles a
    reduction.

    Args:
        configured: text of one or more ``hal.executable`` after configuration.
    """
    found = [
        (match.start(), _attribute(configured, match.end()))
        for match in re.finditer("lowering_config = ", configured)
    ]
    if not found:
        return None
    position, config = next((item for item in found if "reduction" in item[1]), found[0])
    chosen = f"lowering_config = {config}"
    start = configured.rfind("translation_info = ", 0, position)
    if start >= 0:
        info = _attribute(configured, start + len("translation_info = "))
        chosen += f"; translation_info = {info}"
    return " ".join(chosen.split())


def host_cpu(configured: str) -> str | None:
    """The processor that ``--iree-llvmcpu-target-cpu=host`` resolved to, e.g. ``znver5``."""
    match = _CPU.search(configured)
    return match[1] if match else None


def _attribute(text: str, start: int) -> str:
    """The attribute at `start`, up to the bracket that closes it."""
    depth = 0
    for index in range(start, len(text)):
        character = text[index]
        if character in "<{[(":
            depth += 1
        elif character in ">}])" and text[index - 1] != "-":
            if depth == 0:
                return text[start:index]
            depth -= 1
            if depth == 0:
                return text[start : index + 1]
        elif character in ",\n" and depth == 0:
            return text[start:index]
    return text[start:]


_HEADER_BYTES = 64
"""IREE 3.13 puts a header (magic, version, size) before the flatbuffer of an executable."""
_MAGIC = b"CDA1"
_EXPORTS, _KERNEL_NAME, _SHARED_MEMORY = 0, 1, 3
"""Fields of ExecutableDef and ExportDef in iree/schemas/cuda_executable_def.fbs of IREE 3.13."""


def find_ptxas() -> Path | None:
    """ptxas of a CUDA toolkit, else the one included in Triton's package."""
    return next(cuda_tools("ptxas"), None)


def assemble(ptx: Path, architecture: str, program: Path) -> str:
    """The output of ``ptxas -v`` for all kernels of a PTX file assembled for `architecture` (as the
    driver does when it loads older PTX), preceded by the command."""
    with tempfile.TemporaryDirectory(prefix="gemmetry-ptxas-") as temporary:
        output = str(Path(temporary) / "out.cubin")
        command = [str(program), "-v", f"-arch={architecture}", str(ptx), "-o", output]
        _, printed, reason = _start(command, "", TIMEOUT_S)
    return f"// $ ptxas -v -arch={architecture} {ptx.name}\n{printed}" + (reason and f"{reason}\n")


Usage = Mapping[str, int]
"""Facts of one kernel on a GPU, of those of :class:`BuildFacts` that are counted: registers,
spilled bytes and shared memory."""


def _gpu_usage(dumps: Path, architecture: str, binary: bytes) -> tuple[dict[str, Usage], str]:
    """Kernel -> its resource usage on an NVIDIA GPU, and the output of ptxas; both empty for other
    targets."""
    printed = ""
    if architecture and (program := find_ptxas()):
        files = sorted(dumps.glob("*.ptx"))
        printed = "".join(assemble(ptx, architecture, program) for ptx in files)
    usage: dict[str, Usage] = {
        symbol: {
            "registers": found.registers,
            "spill_bytes": found.spill_bytes,
            "shared_memory_bytes": found.shared_bytes,
        }
        for symbol, found in ptxas_usage(printed).items()
    }
    for symbol, dynamic in shared_memory(binary).items():
        known = usage.get(symbol, {})
        total = known.get("shared_memory_bytes", 0) + dynamic
        usage[symbol] = {**known, "shared_memory_bytes": total}
    return usage, printed


def shared_memory(binary: bytes) -> dict[str, int]:
    """Symbol -> dynamic shared memory of a launch in bytes, from a ``.vmfb`` for CUDA; empty if the
    file's layout differs from IREE 3.13's."""
    found: dict[str, int] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(binary)) as archive:
            for part in map(archive.read, archive.namelist()):
                if part.startswith(_MAGIC):
                    found.update(_exports(part[_HEADER_BYTES:]))
    except (zipfile.BadZipFile, struct.error, IndexError, UnicodeDecodeError):
        return {}
    return found


def _exports(data: bytes) -> dict[str, int]:
    """Kernel name -> shared memory, from the flatbuffer of a CUDA executable."""

    def u32(at: int) -> int:
        return int(struct.unpack_from("<I", data, at)[0])

    def field(table: int, index: int) -> int | None:
        """Position of a table's field; None where it has its default."""
        vtable = table - int(struct.unpack_from("<i", data, table)[0])
        if 4 + 2 * index >= struct.unpack_from("<H", data, vtable)[0]:
            return None
        offset = struct.unpack_from("<H", data, vtable + 4 + 2 * index)[0]
        return table + offset if offset else None

    exports = field(u32(0), _EXPORTS)
    if exports is None:
        return {}
    vector = exports + u32(exports)
    found = {}
    for number in range(u32(vector)):
        entry = vector + 4 + 4 * number
        export = entry + u32(entry)
        name, size = field(export, _KERNEL_NAME), field(export, _SHARED_MEMORY)
        if name is not None:
            start = name + u32(name)
            text = data[start + 4 : start + 4 + u32(start)].decode("ascii")
            found[text] = u32(size) if size is not None else 0
    return found


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
        grouped: dict[str, list[str]] = {}
        for symbol in sorted(kernels):
            if (function := function_of(symbol, functions)) is not None:
                grouped.setdefault(function, []).append(symbol)
        for function, symbols in grouped.items():
            code = "\n".join([*([head] if head else []), *(kernels[name] for name in symbols)])
            most: dict[str, int] = {}
            for one in (known[name] for name in symbols if name in known):
                most |= {fact: max(value, most.get(fact, 0)) for fact, value in one.items()}
            instruction = matrix_instruction(code) if path.suffix != ".s" else cpu_instruction(code)
            facts = BuildFacts(matrix_instruction=instruction, **most)  # type: ignore[arg-type]
            found[function] = MachineCode(code, SUFFIXES[path.suffix], facts)
    return found


def function_of(symbol: str, functions: Iterable[str]) -> str | None:
    """Which of `functions` the kernel called `symbol` belongs to; None if to none."""
    ends = [match.start() for match in _DISPATCH.finditer(symbol)]
    return next((symbol[:end] for end in reversed(ends) if symbol[:end] in functions), None)


def split_kernels(text: str, suffix: str) -> tuple[str, dict[str, str]]:
    """The common text before the kernels, and symbol -> the kernel's text."""
    return _split_ptx(text) if suffix == ".ptx" else ("", dict(_elf_functions(text)))


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
    return "\n".join(line for line in head.splitlines() if line.startswith(".")) + "\n", kernels


def cpu_instruction(code: str) -> str:
    """The most frequent multiply-add instruction in the text, with the register type it writes
    (``vfmadd231ps zmm``); a whole-matrix instruction if there is one."""
    counts, matrix = Counter[str](), Counter[str]()
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
    found: dict[str, Usage] = {}
    for entry in re.split(r"^  - ", metadata, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^ {0,4}\.(\w+):\s+(\S+)$", entry, flags=re.MULTILINE))
        if "symbol" in values and "vgpr_count" in values:
            found[values["symbol"].removesuffix(".kd")] = {
                "registers": int(values["vgpr_count"]),
                "spill_bytes": 4 * int(values.get("vgpr_spill_count", 0)),
                "shared_memory_bytes": int(values.get("group_segment_fixed_size", 0)),
            }
    return found
