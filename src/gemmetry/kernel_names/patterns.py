"""Regular expressions that are compiled on first use.

The grammars have more than a hundred, which take 15 ms to compile; the names of one trace need a
third of them.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Pattern:
    """Has the methods of the compiled pattern, which is compiled on first use."""

    def __init__(self, text: str, flags: int) -> None:
        self._arguments = (text, flags)

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._arguments)
        for method in ("search", "match", "sub", "findall", "finditer"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Like ``re.compile(text, flags)``, but deferred; errors in `text` are raised on first use."""
    return cast("re.Pattern[str]", _Pattern(text, flags))
