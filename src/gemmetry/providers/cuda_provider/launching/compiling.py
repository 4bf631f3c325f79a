"""Compiles the sources of a plan for Hopper, writes what the compiler made, and reads the facts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.devices.cuda_compiler import SOURCES, Cubin, compile_kept
from gemmetry.devices.cuda_plans import Compilation, LaunchPlan
from gemmetry.devices.ptxas import ResourceUsage, performance_notes, ptxas_usage
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.cuda_provider.launching.kernel import ARCHITECTURE
from gemmetry.providers.files import output_folder, write_atomically

_CACHE = ("cuda", "cache")
"""Folder of the machine code below that of generated files."""
_MATRIX_INSTRUCTIONS = (("wgmma", "wgmma.mma_async"), ("mma.sync", "mma.sync"))
"""Reported name -> text found in PTX where the instruction is used."""


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """The machine code of a plan, and the facts from building it."""

    code: Mapping[Compilation, Cubin]
    facts: BuildFacts


def compile_plan(
    plan: LaunchPlan,
    dispatch: Dispatch,
    generated: Path,
    *,
    force: bool,
    notes: tuple[str, ...] = (),
) -> CompiledPlan:
    """Compile `plan`, and write sources, PTX, machine code and the compiler's output of the
    kernel itself below `generated`.

    Raises:
        CompileError: the compiler is missing, or it rejected a source.
        StorageError: the files cannot be written.
    """
    before = time.perf_counter_ns()
    code = {
        compilation: compile_kept(
            compilation, ARCHITECTURE, generated.joinpath(*_CACHE), fresh=force
        )
        for compilation in dict.fromkeys(launch.compilation for launch in plan.launches)
    }
    elapsed_ns = time.perf_counter_ns() - before
    folder, stem = output_folder(generated, dispatch), dispatch.configuration.name
    main = next((one for one in code if one.entry == "gemm"), next(iter(code)))
    cubin = code[main]
    source = SOURCES.joinpath(f"{main.source}.cu").read_bytes()
    files = {
        "cu": write_atomically(folder / f"{Path(main.source).name}.cu", source),
        "ptx": write_atomically(folder / f"{stem}.{ARCHITECTURE}.ptx", cubin.ptx.encode()),
        "cubin": write_atomically(folder / f"{stem}.{ARCHITECTURE}.cubin", cubin.code),
        "log": write_atomically(folder / f"{stem}.{ARCHITECTURE}.log", _log(main, cubin).encode()),
    }
    paths = {form: str(path.relative_to(generated.parent)) for form, path in files.items()}
    usage = usage_of(plan, code)
    facts = BuildFacts(
        registers=max((one.registers for one in usage), default=None),
        spill_bytes=max((one.spill_bytes for one in usage), default=None),
        shared_memory_bytes=max((one.shared_bytes for one in usage), default=None),
        matrix_instruction=matrix_instruction(one.ptx for one in code.values()),
        compiled_for=ARCHITECTURE,
        compile_ns=elapsed_ns,
        source_path=paths["cu"],
        binary_path=paths["cubin"],
        assembly_path=paths["ptx"],
        tool_output_path=paths["log"],
        notes=(*notes, *(note for one in code.values() for note in performance_notes(one.log))),
    )
    return CompiledPlan(code, facts)


def usage_of(plan: LaunchPlan, code: Mapping[Compilation, Cubin]) -> list[ResourceUsage]:
    """What each launch needs, dynamic shared memory included."""
    found = []
    for launch in plan.launches:
        usage = ptxas_usage(code[launch.compilation].log).get(launch.compilation.entry)
        if usage is not None:
            shared = usage.shared_bytes + launch.grid.dynamic_bytes
            found.append(replace(usage, shared_bytes=shared))
    return found


def matrix_instruction(texts: Iterable[str]) -> str:
    """The matrix instruction in PTX, ``none`` if there is none."""
    joined = "".join(texts)
    return next((name for name, text in _MATRIX_INSTRUCTIONS if text in joined), "none")


def _log(compilation: Compilation, cubin: Cubin) -> str:
    macros = " ".join(f"-D{name}={value}" for name, value in compilation.macros)
    return f"// NVRTC, {ARCHITECTURE}, {compilation.source}.cu {macros}\n{cubin.log}\n"
