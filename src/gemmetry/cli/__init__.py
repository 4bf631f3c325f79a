"""The command `gemmetry`, one file per command: parse, call, print.

Start at ``main.py`` (commands by name), then ``options.py``.
"""
