"""Input files of rocprofv3: which kernels are recorded, and which counters in which pass.

An input file has a list of ``jobs``; rocprofv3 runs the application once for each and writes into
``pass_1/``, ``pass_2/`` ...
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gemmetry.domain.errors import RequestError, alternatives
from gemmetry.domain.units import counted
from gemmetry.formats.opening import open_text
from gemmetry.hardware.amd_counters import passes_of
from gemmetry.hardware.amd_metrics import NEED_TIME

OUTPUT_FILE = "%hostname%/rank%env{RANK}%_%pid%"
"""Name of each process's files, as rocprofv3 fills it in: the rank is in the environment in which
torchrun starts a process, and nowhere in the CSV files."""

PRESETS: Mapping[str, tuple[str, ...]] = {
    "trace": (),
    "utilization": (
        "SQ_BUSY_CU_CYCLES", "SQ_WAVES", "SQ_WAVE_CYCLES", "SQ_INSTS_MFMA",
        "SQ_VALU_MFMA_BUSY_CYCLES",
    ),
    "gemm": (
        "SQ_BUSY_CU_CYCLES", "SQ_WAVES", "SQ_WAVE_CYCLES", "SQ_INSTS_MFMA",
        "SQ_VALU_MFMA_BUSY_CYCLES", "SQ_WAIT_ANY", "SQ_LDS_BANK_CONFLICT", "SQ_INSTS_VALU",
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
"""A name that gemmetry's readers shortened (``formats/naming.py``)."""

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
    """What the jobs cannot show, one sentence each."""

    @property
    def text(self) -> str:
        """As YAML."""
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
    """What is wrong with kernels of NVIDIA's libraries among `names`, as a sentence; "" where there
    are none."""
    every = list(names)
    found = [name for name in every if _NVIDIA.search(name)]
    if not found:
        return ""
    return (
        f"{len(found)} of {counted(len(every), 'name')} of kernels are of NVIDIA's libraries "
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
        (shortened if found else full).append(_escaped(found[1] if found else name))
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
            f"the names of {counted(len(kernels), 'kernel')} have {len(regex)} characters, more "
            f"than rocprofv3 can be given ({_LONGEST_REGEX})",
            hint="Use a table of fewer kernels: gemmetry sweep analyze --top-k 5.",
        )
    passes = passes_of(counters, chip, companions=NEED_TIME)
    return RocprofInput(
        tuple(
            {
                "kernel_include_regex": regex,
                "kernel_trace": True,
                **({"pmc": one} if one else {"stats": True}),
                "output_format": ["csv"],
                "output_file": OUTPUT_FILE,
            }
            for one in passes or [[]]
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


def _escaped(name: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", name)
