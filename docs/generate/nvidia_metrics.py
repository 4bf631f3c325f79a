"""Write ``src/gemmetry/counters/nvidia_metrics.txt.gz``: the metrics of NVIDIA's chips.

No GPU is needed: the wheel of CUPTI has a library that lists the metrics of every chip.

    pip download --no-deps --dest /tmp/cupti nvidia-cuda-cupti nvidia-cuda-cupti-cu12
    python docs/generate/nvidia_metrics.py /tmp/cupti/*.whl

A chip's metrics are taken from the newest wheel that supports it: CUDA 12 is the last with Volta.
"""

from __future__ import annotations

import ctypes
import gzip
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[2] / "src/gemmetry/counters/nvidia_metrics.txt.gz"
TYPES = ("counter", "ratio", "throughput")
_LIBRARY = "libnvperf_host.so"


class _Library:
    """The library, whose functions take one structure each: its size, a null pointer, and then
    the fields that ``nvperf_host.h`` lists."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self.call("NVPW_InitializeHost")

    def call(self, function: str, **fields: Any) -> ctypes.Structure:
        """The structure after the call."""
        names = [("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p)]
        names += [(name, type(value)) for name, value in fields.items()]
        last = names[-1][0]
        kind = type("Fields", (ctypes.Structure,), {"_fields_": names})
        # The size that the library expects has no padding after the last field.
        size = getattr(kind, last).offset + getattr(kind, last).size
        given: ctypes.Structure = kind(size, None, *fields.values())
        status = getattr(self._library, function)(ctypes.byref(given))
        if status:
            raise SystemExit(f"{function} ended with status {status}")
        return given

    def chips(self) -> list[str]:
        """The chips that the library supports."""
        listed = self.call(
            "NVPW_GetSupportedChipNames", names=ctypes.c_void_p(), count=ctypes.c_size_t()
        )
        names = (ctypes.c_char_p * listed.count).from_address(listed.names or 0)
        return [name.decode() for name in names if name]

    def metrics(self, chip: str) -> Iterator[tuple[str, str]]:
        """Each metric of `chip` with its type."""
        name = ctypes.c_char_p(chip.encode())
        needed = self.call("NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize",
                           chip=name, image=ctypes.c_void_p(), size=ctypes.c_size_t())  # fmt: skip
        scratch = ctypes.create_string_buffer(needed.size)
        evaluator = self.call(
            "NVPW_CUDA_MetricsEvaluator_Initialize",
            scratch=ctypes.c_void_p(ctypes.addressof(scratch)),
            scratch_size=ctypes.c_size_t(needed.size), chip=name,
            availability=ctypes.c_void_p(), data=ctypes.c_void_p(),
            data_size=ctypes.c_size_t(), evaluator=ctypes.c_void_p(),
        ).evaluator  # fmt: skip
        for number, kind in enumerate(TYPES):
            listed = self.call(
                "NVPW_MetricsEvaluator_GetMetricNames", evaluator=ctypes.c_void_p(evaluator),
                kind=ctypes.c_uint8(number), names=ctypes.c_void_p(), begins=ctypes.c_void_p(),
                count=ctypes.c_size_t(),
            )  # fmt: skip
            begins = (ctypes.c_size_t * listed.count).from_address(listed.begins or 0)
            for begin in begins:
                yield ctypes.string_at(listed.names + begin).decode(), kind


def main(wheels: list[Path]) -> None:
    """Write the file from the libraries in `wheels`."""
    if not wheels:
        raise SystemExit("give the wheels of CUPTI: the file is not changed")
    found: dict[str, set[tuple[str, str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for wheel in sorted(wheels, key=_version, reverse=True):
            with zipfile.ZipFile(wheel) as archive:
                inside = next(name for name in archive.namelist() if name.endswith(_LIBRARY))
                library = _Library(Path(archive.extract(inside, Path(folder, wheel.stem))))
            for chip in library.chips():
                if chip not in found:
                    found[chip] = set(library.metrics(chip))
    chips = sorted(found)
    lines = [
        "# Metrics of NVIDIA's chips: type, name, and as bits the chips that have it, in the order",
        "# of the first line. Made by docs/generate/nvidia_metrics.py from",
        *(f"# {wheel.name}" for wheel in sorted(wheels)),
        " ".join(chips),
    ]
    for kind, name in sorted({(kind, name) for name, kind in set().union(*found.values())}):
        bits = sum(1 << n for n, chip in enumerate(chips) if (name, kind) in found[chip])
        lines.append(f"{kind[0]} {name} {bits:x}")
    TARGET.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def _version(wheel: Path) -> list[int]:
    return [int(part) for part in wheel.name.split("-")[1].split(".")]


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]])
