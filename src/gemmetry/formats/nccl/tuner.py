"""Writes ``nccl_tuner.conf``, the CSV file of NCCL's example tuner plugin.

Read in NVIDIA/nccl 2.30.7 ``plugins/tuner/example/plugin.c`` (2.28.9: ``ext-tuner/example``). The
plugin applies the first line that matches a collective; it reads lines into a buffer of 256
characters, so that a longer comment would continue as a setting.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

COLUMNS = ("collective_type", "min_bytes", "max_bytes", "algorithm", "protocol", "channels",
           "nNodes", "nRanks", "numPipeOps", "regBuff")  # fmt: skip
COLLECTIVES = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_reduce": "allreduce",
}
"""Operations that the plugin can tune, with its names for them; it takes any other name as
``allreduce``."""
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
ANY = -1
"""Matches every value; as the number of channels, it leaves the choice to NCCL."""

MOST_CHARACTERS = 254
"""Of a line, without its end."""
_COMMENT_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerLine:
    """One setting; sizes are those of the whole message."""

    operation: str
    """A key of :data:`COLLECTIVES`."""
    min_bytes: int
    max_bytes: int
    algorithm: str
    """One of :data:`ALGORITHMS`."""
    protocol: str
    """One of :data:`PROTOCOLS`."""
    channels: int = ANY
    nodes: int = ANY
    ranks: int = ANY

    @property
    def text(self) -> str:
        """The line of the file."""
        values = (
            COLLECTIVES[self.operation], self.min_bytes, self.max_bytes, self.algorithm,
            self.protocol, self.channels, self.nodes, self.ranks, ANY, ANY,
        )  # fmt: skip
        return ",".join(map(str, values))


@dataclass(frozen=True, slots=True)
class TunerEntry:
    """A setting with the evidence for it, or evidence without one."""

    comment: str
    line: TunerLine | None = None


def tuner_config(title: str, entries: Iterable[TunerEntry]) -> str:
    """The content of the file, with `title` and the evidence of each setting as comments."""
    found = [*_comment(title), _joined(COLUMNS)]
    for entry in entries:
        found += ["", *_comment(entry.comment)]
        if entry.line is not None:
            found.append(entry.line.text)
    return "\n".join(found) + "\n"


def _joined(columns: Iterable[str]) -> str:
    return f"# {','.join(columns)}"


def _comment(text: str) -> list[str]:
    lines = [
        part for line in text.splitlines() for part in textwrap.wrap(line, _COMMENT_CHARACTERS)
    ]
    return [f"# {line}"[:MOST_CHARACTERS] for line in lines]
