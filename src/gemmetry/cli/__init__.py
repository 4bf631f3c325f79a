"""L6: the command `gemmetry`, one file a command: parse, call, print.

May import everything below. Start at ``main.py`` (commands by name), then ``options.py``.
"""
