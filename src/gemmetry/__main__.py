"""``python -m gemmetry``: the command line without its installed script."""

from __future__ import annotations

from gemmetry.cli.main import main

if __name__ == "__main__":
    main()
