"""Input files of rocprofv3: which kernels are recorded, and which counters in which pass.

An input file has a list of ``jobs``; rocprofv3 runs the application once for each and writes into
``pass_1/``, ``pass_2/`` ... It ignores keys that it does not know, and fails or collects nothing
where a job has more counters than the GPU has registers, so that files are checked before a run.
Keys are those of ``rocprofv3_input_schema.json`` and of the options of ``rocprofv3.py``
(ROCm/rocm-systems, commit 1b1610fc).
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gemmetry.domain.errors import (
    RequestError,
    SpecError,
    UnknownNameError,
    alternatives,
    did_you_mean,
    nearest,
)
from gemmetry.domain.opening import MOST_TEXT_BYTES, open_text, parsed_json, read_whole
from gemmetry.domain.specs.yaml_text import safe_yaml
from gemmetry.domain.units import noun_for, plural
from gemmetry.hardware.amd_counters import GUI_ACTIVE, NEED_TIME, REGISTERS, overfull, passes_of

OUTPUT_FILE = "%hostname%/rank%env{RANK}%_%pid%"
"""Name of each process's files, as rocprofv3 fills it in: the rank is in the environment in which
torchrun starts a process, and nowhere in the CSV files."""

_BUSY = ("SQ_BUSY_CU_CYCLES", "SQ_WAVES", "SQ_WAVE_CYCLES", "SQ_INSTS_MFMA",
         "SQ_VALU_MFMA_BUSY_CYCLES")  # fmt: skip
PRESETS: Mapping[str, tuple[str, ...]] = {
    "trace": (),
    "utilization": _BUSY,
    "gemm": (
        *_BUSY, "SQ_WAIT_ANY", "SQ_LDS_BANK_CONFLICT", "SQ_INSTS_VALU",
        "SQ_INSTS_VALU_MFMA_MOPS_BF16", "SQ_INSTS_VALU_MFMA_MOPS_F16",
        "SQ_INSTS_VALU_MFMA_MOPS_F32", "SQ_INSTS_LDS", "TCC_HIT_sum", "TCC_MISS_sum",
    ),
}  # fmt: skip
"""Name -> counters. ``utilization`` has those of the sweep analysis document and the busy cycles
of the matrix units, in one pass; ``gemm`` adds work, waits, LDS and L2, in two."""

DOCUMENTS_FILE = Path(__file__).with_name("rocprof_cu_only.yaml")
"""The input file of the sweep analysis document."""

NAME_COLUMNS = ("kernel_name", "kernel", "Kernel_Name", "Kernel name", "Name")

_HEADER = """\
# Input of rocprofv3. Each job is one run of the application, which writes into pass_1/, pass_2/ ...
# Kernels run one after the other while counters are collected: their times are not comparable.
"""

_LONGEST_REGEX = 120_000
"""Bytes; rocprofv3 passes it on in an environment variable, and Linux limits each to 128 KiB."""

_SPECIAL = re.compile(r"[\\^$.*+?()\[\]{}|]")
"""Characters with a meaning in an ECMAScript expression, which rocprofv3 searches for."""

_SHORTENED = re.compile(r"(.+)… \[\d+ characters, [0-9a-f]+\]", re.DOTALL)
"""A name that gemmetry's readers shortened (``domain/files.py``)."""

_NO_KERNEL = re.compile(r"\A(?:mem(?:set|cpy)\b|hip|cuda|aten::)", re.IGNORECASE)
"""Copies, fills, calls and operators, which the old analysis took for kernels."""

_NVIDIA = re.compile(
    r"nvjet|cutlass|cublas|cudnn|xmma_|(?<![a-z])sm_?(?:[5-9]\d|1[0-2]\d)(?!\d)|"
    r"\b(?:maxwell|volta|turing|ampere|hopper|blackwell)_"
)
"""Parts of the names of kernels of NVIDIA's libraries, which no AMD GPU runs."""

_SUFFIX = re.compile(r"\s*(?:\[clone \.kd\]|\(\.kd\)|\.kd)\Z")


@dataclass(frozen=True, slots=True)
class RocprofInput:
    """The jobs of an input file."""

    jobs: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()
    """Notes on what the jobs cannot show, one sentence each."""

    @property
    def text(self) -> str:
        """Text as YAML."""
        # One line for each value: an expression that is broken at its spaces is hard to read.
        jobs = [dict(job) for job in self.jobs]
        return yaml.safe_dump({"jobs": jobs}, sort_keys=False, width=1 << 30, allow_unicode=True)


def existing_input(path: Path) -> Path:
    """`path`; the document's own input file where one of its name is not there."""
    return DOCUMENTS_FILE if path.name == DOCUMENTS_FILE.name and not path.exists() else path


def kernel_names(path: Path) -> list[str]:
    """The distinct names of kernels in a CSV file, such as
    ``top5_gemm_kernels_time_variance.csv``, in the order of its rows.

    Names of copies, fills and operators are left out, as no kernel has them.

    Raises:
        RequestError: the file cannot be read, has no column of names, or no name of a kernel.
    """
    try:
        with open_text(path) as file:
            reader = csv.DictReader(file)
            column = next((c for c in NAME_COLUMNS if c in (reader.fieldnames or ())), None)
            found = [row[column] or "" for row in reader] if column is not None else []
    except (OSError, csv.Error) as error:
        raise RequestError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="Give the CSV file of `gemmetry sweep analyze`.",
        ) from error
    if column is None:
        raise RequestError(
            f"{path} has no column of kernel names",
            hint=f"Such a column is called {alternatives(NAME_COLUMNS)}.",
        )
    names = dict.fromkeys(_SUFFIX.sub("", name.strip()) for name in found)
    kernels = [name for name in names if name and not _NO_KERNEL.match(name)]
    if not kernels:
        raise RequestError(
            f"{path} names no kernel in its column {column}",
            hint="`gemmetry sweep analyze` writes one of the kernels with the largest variance.",
        )
    return kernels


def nvidia_note(names: Iterable[str]) -> str:
    """Sentence on the problem with kernels of NVIDIA's libraries among `names`; "" without any."""
    every = list(names)
    found = [name for name in every if _NVIDIA.search(name)]
    if not found:
        return ""
    return (
        f"{len(found)} of {plural(len(every), 'name')} of kernels are of NVIDIA's libraries "
        f"({found[0][:60]}), and rocprofv3 finds none of them on an AMD GPU: make the input from a "
        "sweep on that GPU"
    )


def exact_regex(names: Iterable[str]) -> str:
    """An expression that matches the full names of `names` and nothing else; a name that was
    shortened matches by its beginning."""
    full: list[str] = []
    shortened: list[str] = []
    for name in dict.fromkeys(names):
        found = _SHORTENED.fullmatch(name)
        (shortened if found else full).append(_SPECIAL.sub(r"\\\g<0>", found[1] if found else name))
    choices = [*([f"(?:{'|'.join(full)})$"] if full else []), *shortened]
    return f"^{choices[0]}" if len(choices) == 1 else f"^(?:{'|'.join(choices)})"


def make_rocprof_input(
    kernels: Sequence[str], counters: Sequence[str], *, chip: str | None = None
) -> RocprofInput:
    """Jobs that record the given kernels with all counters, in as few passes as the GPU can take.

    Args:
        counters: none: the kernels are traced, which does not serialise them.
        chip: such as ``gfx942``; None where it is not known.

    Raises:
        UnknownNameError: a counter does not exist on the chip.
        RequestError: the names are too long for rocprofv3.
    """
    regex = exact_regex(kernels)
    if len(regex.encode()) > _LONGEST_REGEX:
        raise RequestError(
            f"the names of {plural(len(kernels), 'kernel')} have {len(regex)} characters, more "
            f"than rocprofv3 can be given ({_LONGEST_REGEX})",
            hint="Use a table of fewer kernels: gemmetry sweep analyze --top-k 5.",
        )
    return RocprofInput(
        tuple(
            {
                "kernel_include_regex": regex,
                "kernel_trace": True,
                **({"pmc": one} if one else {"stats": True}),
                "output_format": ["csv"],
                "output_file": OUTPUT_FILE,
            }
            for one in passes_of(counters, chip, companions=NEED_TIME) or [[]]
        )
    )


def write_rocprof_input(
    made: RocprofInput, kernels: Sequence[str], path: Path
) -> tuple[Path, Path]:
    """Write the input file and, next to it, the list of its kernels; return their paths.

    Raises:
        RequestError: rocprofv3 would not recognise the file by its name.
        OSError: a file cannot be written.
    """
    if path.suffix not in (".yaml", ".yml"):
        raise RequestError(
            f"rocprofv3 would not read {path}", hint="Give it a name that ends in .yaml."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    names = path.with_name(f"{path.stem}_kernel_list.txt")
    path.write_text(f"{_HEADER}{made.text}", encoding="utf-8")
    names.write_text("".join(f"{kernel}\n" for kernel in kernels), encoding="utf-8")
    return path, names


_ALTERNATIVES = re.compile(r"(?<!\\)\|")
"""Separator of the names in a regular expression."""

FORMATS = ("csv", "json", "pftrace", "otf2", "rocpd")

_LISTS = ("pmc", "pmc_groups", "output_format", "preload", "summary_groups", "att_perfcounters",
          "collection_period")  # fmt: skip
_WHOLE = ("pmc_group_interval", "pc_sampling_interval", "minimum-output-data")
_SWITCHES = (
    "hip_trace", "hip_runtime_trace", "hip_compiler_trace", "marker_trace", "kernel_trace",
    "memory_copy_trace", "memory_allocation_trace", "rocdecode_trace", "rocjpeg_trace",
    "scratch_memory_trace", "rccl_trace", "stats", "hsa_trace", "hsa_core_trace", "hsa_amd_trace",
    "hsa_finalize_trace", "hsa_image_trace", "runtime_trace", "sys_trace", "mangled_kernels",
    "truncate_kernels", "list_metrics", "disable-signal-handlers", "pc-sampling-beta-enabled",
    "advanced_thread_trace", "kernel_rename", "summary", "summary_per_domain", "group_by_queue",
)  # fmt: skip
_TEXTS = ("kernel_include_regex", "kernel_exclude_regex", "output_file", "output_directory",
          "log_level", "pc_sampling_unit", "pc_sampling_method")  # fmt: skip
_OTHERS = (
    "kernel_iteration_range", "agent_index", "att_library_path", "att_target_cu",
    "att_simd_select", "att_buffer_size", "att_shader_engine_mask", "att_gpu_index",
    "att_serialize_all", "att_activity", "att_perfcounter_ctrl", "benchmark_mode",
    "collection_period_unit", "extra_counters", "kokkos_trace", "perfetto_backend",
    "perfetto_buffer_fill_policy", "perfetto_buffer_size", "perfetto_shmem_size_hint",
    "selected_regions", "summary_output_file", "summary_units", "suppress_marker_preload",
    "hsa_finalizer_trace", "disable_signal_handlers", "minimum_output_data",
    "pc_sampling_beta_enabled",
)  # fmt: skip
_TYPES: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(_LISTS, (list, "a list")),
    **dict.fromkeys(_WHOLE, (int, "a whole number")),
    **dict.fromkeys(_SWITCHES, (bool, "true or false")),
    **dict.fromkeys(_TEXTS, (str, "a text")),
    **dict.fromkeys(_OTHERS, (object, "")),
}
"""Key of a job -> type of its value, and what to call it."""


def check_rocprof_input(path: Path) -> RocprofInput:
    """The jobs of an input file in YAML or JSON.

    Raises:
        RequestError: the file cannot be read.
        SpecError: its jobs have mistakes, each named.
    """
    jobs = _jobs(path)
    mistakes: list[str] = []
    notes: list[str] = []
    for number, job in enumerate(jobs, 1):
        where = f"{path}: job {number}"
        if not isinstance(job, dict):
            mistakes.append(f"{where} is not a mapping of keys to values")
            continue
        for key, value in job.items():
            mistakes += _key_mistakes(where, str(key), value, notes)
        mistakes += _counter_mistakes(where, job, notes)
        if foreign := nvidia_note(_ALTERNATIVES.split(str(job.get("kernel_include_regex", "")))):
            notes.append(f"{where}: {foreign}")
    if mistakes:
        raise SpecError(
            mistakes, hint="`gemmetry sweep rocprof-input` writes files whose counters fit."
        )
    return RocprofInput(tuple(jobs), tuple(notes))


def jobs_without_counters(path: Path, folder: Path) -> list[int]:
    """The jobs of an input file that ask for counters and left none in `folder`, from 1; rocprofv3
    ends well without them.

    Raises:
        RequestError: like :func:`check_rocprof_input`.
    """
    jobs = check_rocprof_input(path).jobs
    return [
        number
        for number, job in enumerate(jobs, 1)
        if (job.get("pmc") or job.get("pmc_groups"))
        and not any(
            ("counter_collection" in one.name or "_results." in one.name)
            and (len(jobs) == 1 or f"pass_{number}" in one.parts)
            for one in folder.rglob("*")
            if one.is_file()
        )
    ]


def _jobs(path: Path) -> list[Any]:
    hint = "It has a list `jobs`, each with keys such as kernel_include_regex, pmc and kernel_trace"
    try:
        text = read_whole(path, most=MOST_TEXT_BYTES).decode()
        document = parsed_json(text) if path.suffix == ".json" else safe_yaml(text, str(path))
    except (ValueError, RequestError) as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"{path} cannot be read: {reason}", hint=f"{hint}.") from error
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise RequestError(
            f"rocprofv3 does not read {path}: its name has to end in .yaml, .yml or .json",
            hint=f"{hint}.",
        )
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list) or not jobs:
        raise RequestError(f"{path} has no list of jobs", hint=f"{hint}.")
    return jobs


def _key_mistakes(where: str, key: str, value: object, notes: list[str]) -> list[str]:
    if key not in _TYPES:
        near = nearest(key, _TYPES, 1, cutoff=0.8)
        if near:
            return [f"{where}: unknown key {key!r}, which rocprofv3 ignores. {did_you_mean(near)}"]
        notes.append(f"{where}: the key {key!r} is not known to this version of gemmetry")
        return []
    kind, described = _TYPES[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return [f"{where}: {key} has to be {described}, not {value!r}"]
    found = []
    if key in ("kernel_include_regex", "kernel_exclude_regex"):
        try:
            with warnings.catch_warnings():
                # Of classes such as [[:alpha:]], which ECMAScript has and Python has not.
                warnings.simplefilter("ignore", FutureWarning)
                re.compile(str(value))
        except re.error as error:
            found.append(f"{where}: {key} is not a regular expression: {error}")
    for one in value if isinstance(value, list) and key == "output_format" else ():
        if one not in FORMATS:
            near = ["pftrace"] if str(one) in ("perfetto", "chrome") else nearest(str(one), FORMATS)
            hint = did_you_mean(near) or f"It writes {alternatives(FORMATS)}."
            found.append(f"{where}: rocprofv3 has no output format {one!r}. {hint}")
    return found


def _counter_mistakes(where: str, job: Mapping[str, Any], notes: list[str]) -> list[str]:
    if job.get("pmc") and job.get("pmc_groups"):
        return [f"{where} has both pmc and pmc_groups, which rocprofv3 refuses"]
    groups = job.get("pmc_groups") or [job.get("pmc") or []]
    found: list[str] = []
    for group in groups if isinstance(groups, list) else []:
        if isinstance(group, list):
            names = [name for name in map(str, group) if _is_known(where, name, notes)]
            found += _too_many(where, names)
            lacking = [name for name in names if name in NEED_TIME]
            if lacking and GUI_ACTIVE not in names:
                gives = noun_for(len(lacking), "gives", "give")
                notes.append(
                    f"{where} lacks {GUI_ACTIVE}: without it, {', '.join(lacking)} {gives} no "
                    "percentages"
                )
        else:
            found.append(f"{where}: each of pmc_groups has to be a list of counters, not {group!r}")
    return found


def _is_known(where: str, name: str, notes: list[str]) -> bool:
    try:
        overfull([name], None)
    except UnknownNameError as error:
        # No mistake: counters of GPUs that are not listed, and a user's own, are as good.
        meant = f". {error.hint}" if "mean" in error.hint else ""
        notes.append(f"{where}: {error.message}{meant}")
        return False
    return True


def _too_many(where: str, names: Sequence[str]) -> list[str]:
    limits = overfull(names, None)
    if not limits:
        return []
    passes = passes_of(names, None, companions=NEED_TIME)
    described = ", ".join(
        f"{count} of block {block}, which counts {REGISTERS.get(block, 1)}"
        for block, count in limits.items()
    )
    lists = "; ".join(f"[{', '.join(one)}]" for one in passes)
    return [
        f"{where} has more counters than the GPU collects in one run: {described}. Make it "
        f"{plural(len(passes), 'job')}, with pmc {lists}"
    ]
