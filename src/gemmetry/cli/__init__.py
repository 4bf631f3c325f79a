"""The command `gemmetry`, one module a group of commands: parse, call, print.

Start at ``main.py`` (commands by name), then ``options.py``.
"""

from __future__ import annotations
