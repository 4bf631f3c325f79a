"""Submissions that try to deceive a judge: each is a way in which kernels were found to cheat, or
could. None may be judged ``ok``.

Each source defines ``f(a, b)`` for the product of two row-major matrices of f32. Where an attack
finds nothing to exploit, it returns zeros or whatever it has, as a cheat would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TASK = "matmul_64x48x40_f32t_f32t_f32t"
"""What the attacks claim to compute."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile submission."""

    name: str
    what: str
    source: str

    @property
    def text(self) -> str:
        """The submission's file."""
        return f"import torch\n\n{self.source}"


def _attacks(file: str) -> Iterator[Attack]:
    """Those of a text file: a heading with name and description, and the source below it."""
    text = Path(__file__).with_name(file).read_text("utf-8")
    for part in text.removeprefix("## ").split("\n## "):
        heading, source = part.split("\n", 1)
        name, what = heading.split(": ", 1)
        yield Attack(name, what, f"{source.rstrip()}\n")


ATTACKS = tuple(_attacks("attacks.txt"))

GPU_ATTACKS = tuple(_attacks("gpu_attacks.txt"))
"""Those that need a GPU; ``calls_a_library`` needs a task that forbids libraries."""
