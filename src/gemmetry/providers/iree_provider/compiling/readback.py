"""Reads the compiler's choices from its IR after configuration."""

from __future__ import annotations

import re

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
