"""The lines of machine code that show what a kernel's inner loop does."""

from __future__ import annotations

EXCERPT_LINES = 20

_PLAIN_PRODUCT = "fma"
"""What to look for if no matrix instruction was found: a part of the mnemonics of PTX
(``fma.rn``), AMD (``v_fma_f32``) and x86 (``vfmadd``)."""


def machine_code_excerpt(text: str, instruction: str | None) -> tuple[int, list[str]]:
    """The part of assembly or PTX where `instruction` is densest: usually the inner loop.

    Args:
        text: assembly or PTX of one dispatch.
        instruction: as ``BuildFacts.matrix_instruction`` names it; only its first word counts.

    Returns:
        Index of the first line, and up to ``EXCERPT_LINES`` lines; none if the instruction does
        not occur.
    """
    word = (instruction or "none").partition(" ")[0]
    if word == "none":
        word = _PLAIN_PRODUCT
    lines = text.splitlines()
    hits = [word in line for line in lines]
    if not any(hits):
        return 0, []
    window = sum(hits[:EXCERPT_LINES])
    best, start = window, 0
    for first in range(1, max(1, len(lines) - EXCERPT_LINES + 1)):
        window += hits[first + EXCERPT_LINES - 1] - hits[first - 1]
        if window > best:
            best, start = window, first
    return start, lines[start : start + EXCERPT_LINES]
