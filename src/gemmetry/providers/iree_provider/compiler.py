"""Resource usage of NVIDIA kernels that PTX does not show: ptxas reports registers and spills, and
IREE's binary holds the dynamic shared memory of a launch.

Runs ``iree-compile`` on many functions at once, and finds out which ones it rejects.

Starting the compiler costs more than compiling a small matmul does, so functions of equal flags
go into one call. IREE lowers every function of a call even after one has failed and names the
function of each failure, so the valid ones need just one more call. If the compiler crashes, or
fails without naming a function, the call is halved until the culprit is isolated.

Reads the compiler's choices from its IR after configuration.
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter_ns
from typing import TypeVar

from gemmetry.domain.errors import CompileError
from gemmetry.hardware import cuda_plans as ptxas
from gemmetry.hardware.cuda_plans import TIMEOUT_S, cuda_tools
from gemmetry.providers.iree_provider.machine_code import MachineCode, Usage, read_machine_code

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
        shown = f"ptxas -v -arch={architecture} {ptx.name}"
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"// $ {shown}\n{type(error).__name__}: {error}\n"
    return f"// $ {shown}\n{done.stdout.decode(errors='replace')}"


def ptxas_usage(printed: str) -> dict[str, Usage]:
    """Symbol -> registers and spilled bytes per thread, and static shared memory, from the lines of
    ``ptxas -v``."""
    return {
        symbol: Usage(usage.registers, usage.spill_bytes, usage.shared_bytes)
        for symbol, usage in ptxas.ptxas_usage(printed).items()
    }


def shared_memory(binary: bytes) -> dict[str, int]:
    """Symbol -> dynamic shared memory of a launch in bytes, from a ``.vmfb`` for CUDA; empty if the
    file's layout differs from IREE 3.13's."""
    found: dict[str, int] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(binary)) as archive:
            parts = [archive.read(name) for name in archive.namelist()]
        for part in parts:
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


class IreeCompiler:
    """Compiles jobs with one ``iree-compile`` program, which also dumps its choices.

    Args:
        program: path of ``iree-compile``.
        timeout_s: overrides the deadline of a call (of any number of functions).
    """

    def __init__(self, program: Path, timeout_s: float | None = None) -> None:
        self.program = program
        self._timeout_s = timeout_s

    def run(
        self, jobs: Sequence[CompileJob], parallel: int = 1
    ) -> Iterator[tuple[CompileJob, list[JobResult]]]:
        """Compile jobs, `parallel` at a time. Yields each job with its results as soon as it is
        done."""
        if parallel <= 1 or len(jobs) == 1:
            for job in jobs:
                yield job, list(self._compile(job, threads=len(jobs) == 1 and parallel > 1))
            return
        with ThreadPoolExecutor(parallel) as pool:
            # Several calls use the processors better than the threads of one call.
            futures = {pool.submit(lambda j: list(self._compile(j)), job): job for job in jobs}
            for future in as_completed(futures):
                yield futures[future], future.result()

    def _compile(self, job: CompileJob, *, threads: bool = False) -> Iterator[JobResult]:
        """Compile a job. Returns at least one result, and several where the job had to be
        halved."""
        rest = dict(job.functions)
        errors: dict[str, CompileError] = {}
        logs: dict[str, str] = {}
        began = perf_counter_ns()
        while rest:
            attempt = self._call(rest, job, threads=threads)
            if attempt.is_ok:
                logs.update(dict.fromkeys(rest, attempt.log))
                yield JobResult(
                    names=tuple(rest),
                    binary=attempt.binary,
                    errors=errors,
                    configured=attempt.configured,
                    machine_code=attempt.machine_code,
                    logs=logs,
                    duration_ns=perf_counter_ns() - began,
                )
                return
            found = attempt.errors
            if not found and len(rest) == 1:
                found = dict.fromkeys(rest, attempt.general_reason)
            if not found:
                names = tuple(rest)
                half = len(names) // 2
                if errors:
                    spent = perf_counter_ns() - began
                    yield JobResult(errors=errors, logs=logs, duration_ns=spent)
                for part in (names[:half], names[half:]):
                    functions = {name: rest[name] for name in part}
                    yield from self._compile(replace(job, functions=functions), threads=threads)
                return
            for name, reason in found.items():
                errors[name] = _compile_error(name, reason)
                logs[name] = attempt.log
                del rest[name]
        yield JobResult(errors=errors, logs=logs, duration_ns=perf_counter_ns() - began)

    def _call(self, functions: Mapping[str, str], job: CompileJob, *, threads: bool) -> _Attempt:
        with tempfile.TemporaryDirectory(prefix="gemmetry-iree-") as temporary:
            folder = Path(temporary)
            output, dumps = folder / "out.vmfb", folder / "dumped"
            # PTX counts as a binary, assembly is among the intermediates.
            code = "binaries" if "--iree-hal-target-device=cuda" in job.flags else "intermediates"
            command = [
                str(self.program), "-", "-o", str(output), *job.flags,
                f"--iree-hal-dump-executable-configurations-to={dumps}",
                f"--iree-hal-dump-executable-{code}-to={dumps}",
            ]  # fmt: skip
            if not threads:
                command.append("--mlir-disable-threading")
            deadline = self._timeout_s or CALL_TIMEOUT_S + FUNCTION_TIMEOUT_S * len(functions)
            status, messages, reason = _start(command, "\n".join(functions.values()), deadline)
            shown = shlex.join(["iree-compile", *command[1:]]).replace(f"{folder}/", "")
            log = call_log(shown, tuple(functions), status, messages.replace(f"{folder}/", ""))
            if status is None:
                return _Attempt(general_reason=reason, log=log)
            if status == 0 and output.exists():
                binary = output.read_bytes()
                usage, printed = _gpu_usage(dumps, job.architecture, binary)
                machine_code = read_machine_code(dumps, tuple(functions), usage)
                return _Attempt(
                    is_ok=True,
                    binary=binary,
                    configured=with_twins(_read_configured(dumps, functions), functions),
                    machine_code=with_twins(machine_code, functions),
                    log=log + printed,
                )
            if status < 0:
                # A crash may have cut off messages about other functions, so nothing is attributed.
                reason = f"iree-compile crashed (signal {-status})"
                general = f"{reason}: {_general_reason(messages)}"
                return _Attempt(general_reason=general, log=log)
            return _Attempt(
                errors=attribute_errors(messages, functions),
                general_reason=_general_reason(messages),
                log=log,
            )


@dataclass(frozen=True, slots=True)
class _Attempt:
    is_ok: bool = False
    binary: bytes = b""
    configured: Mapping[str, str] = field(default_factory=dict)
    machine_code: Mapping[str, MachineCode] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    general_reason: str = ""
    log: str = ""


def _start(command: Sequence[str], text: str, deadline: float) -> tuple[int | None, str, str]:
    """Run the compiler on `text`. Returns its exit status, its output, and the reason if there is
    no status."""
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
        return None, printed, f"iree-compile did not end within {deadline:.0f} s"
    except OSError as error:
        return None, "", f"cannot start {command[0]}: {error}"
    return done.returncode, done.stdout.decode(errors="replace"), ""


def _gpu_usage(dumps: Path, architecture: str, binary: bytes) -> tuple[dict[str, Usage], str]:
    """Kernel -> its resource usage on an NVIDIA GPU, and the output of ptxas; both empty for other
    targets."""
    usage: dict[str, Usage] = {}
    printed = ""
    program = find_ptxas() if architecture else None
    for ptx in sorted(dumps.glob("*.ptx")):
        if program is not None:
            printed += assemble(ptx, architecture, program)
            usage.update(ptxas_usage(printed))
    for symbol, dynamic in shared_memory(binary).items():
        known = usage.get(symbol, Usage())
        total = (known.shared_memory_bytes or 0) + dynamic
        usage[symbol] = replace(known, shared_memory_bytes=total)
    return usage, printed


def call_log(command: str, functions: Sequence[str], status: int | None, printed: str) -> str:
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


def _compile_error(name: str, reason: str) -> CompileError:
    return CompileError(
        f"iree-compile: {reason}",
        hint=f"The function is @{name} of the generated .mlir; `gemmetry show` has the command.",
    )


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
