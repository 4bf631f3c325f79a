"""Regular expressions that are compiled when they are first used.

The grammars have more than a hundred, which take 15 ms; the names of one trace need a third.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Pattern:
    """Has the methods of the compiled pattern from its first use on."""

    def __init__(self, text: str, flags: int) -> None:
        self._arguments = (text, flags)

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._arguments)
        for method in ("search", "match", "sub", "findall", "finditer"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """The same as ``re.compile(text, flags)``, done later; errors in `text` are told then."""
    return cast("re.Pattern[str]", _Pattern(text, flags))
