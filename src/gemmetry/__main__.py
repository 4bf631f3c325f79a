"""The command ``gemmetry``, also as ``python -m gemmetry``."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress


def main() -> None:
    """Entry point of the console script. An interrupt while the command line is imported ends the
    process at once, as there is nothing to close yet."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from gemmetry.cli.main import main as run

    try:
        run()
    except SystemExit as ended:
        if process := sys.modules.get("gemmetry.engine.process"):
            process.wait_for_ends()
        if isinstance(ended.code, int) and threading.active_count() == 1:
            # Unloading large libraries takes half a second, for nothing. What waits for the end of
            # the process is called first; what was written has been flushed.
            atexit._run_exitfuncs()
            with suppress(OSError):
                sys.stderr.flush()
            os._exit(ended.code)
        raise


if __name__ == "__main__":
    main()
