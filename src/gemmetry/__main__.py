"""The command ``gemmetry``, also as ``python -m gemmetry``."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Entry point of the console script. An interrupt while the command line is imported ends the
    process at once, as there is nothing to close yet."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from gemmetry.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
