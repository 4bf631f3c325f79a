"""``python -m gemmetry.providers.iree_provider.input_files OPERATION FOLDER [SEED [DISTRIBUTION]]``
writes the files that a printed ``iree-benchmark-module`` line names.

A module of its own, because the provider does not need it: only printed commands do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gemmetry.domain.errors import GemmetryError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.settings import RunSettings
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.iree_provider.reproduce import write_inputs


def main(arguments: Sequence[str]) -> int:
    """Write the inputs of an operation; the exit status."""
    if not 2 <= len(arguments) <= 4:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    name, folder, *rest = arguments
    seed = rest[0] if rest else str(RunSettings().seed)
    distribution = rest[1] if len(rest) > 1 else RunSettings().distribution
    if not seed.isdecimal():
        sys.stderr.write(f"error: the seed {seed!r} is not a whole number\n")
        return 2
    try:
        operation = parse_operation(name)
        arrays = make_inputs(operation, distribution=distribution, seed=int(seed))
        write_inputs(operation, arrays, Path(folder))
    except GemmetryError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_status
    except OSError as error:
        sys.stderr.write(f"error: cannot write {folder}: {error.strerror or error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
