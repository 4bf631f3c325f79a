"""The training workload: ``torchrun --nproc-per-node 2 -m gemmetry.sweeps.workload --config FILE
--output DIR`` trains a small transformer."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gemmetry.domain.errors import GemmetryError
from gemmetry.domain.options import DECLARED
from gemmetry.sweeps.keys import WorkloadConfig, load_config
from gemmetry.sweeps.options import DOCUMENT, PATHS, SweepOptions


def main(arguments: Sequence[str]) -> int:
    """Train as the `arguments` state. Returns the exit status; an error is printed by every rank,
    as torchrun ends the others as soon as one has failed."""
    options = _parser().parse_args(arguments)
    try:
        _run(load_config(options.config, options.overrides), options)
    except GemmetryError as error:
        rank = os.environ.get("RANK", 0)
        hint = f"\nhint: {error.hint}" if error.hint else ""
        sys.stderr.write(f"rank {rank}: error: {error.message}{hint}\n")
        return error.exit_status
    return 0


def _parser() -> argparse.ArgumentParser:
    """Parser; options shared with ``gemmetry sweep run`` are declared there."""
    parser = argparse.ArgumentParser(
        prog="gemmetry.sweeps.workload",
        usage="torchrun … -m gemmetry.sweeps.workload --output DIR [options]",
        description="Trains a transformer whose GEMMs run under communication, and traces it.",
    )
    for name, more in (
        ("config", {"default": DOCUMENT}),
        ("overrides", {"default": [], "action": "extend", "nargs": "+"}),
        ("path", {"default": PATHS[0], "choices": PATHS}),
    ):
        declared = SweepOptions.__dataclass_fields__[name].metadata[DECLARED]
        parser.add_argument(
            declared.names(name)[0], dest=name, metavar=declared.more["metavar"],
            help=declared.more["help"], **more,
        )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="Folder to write into."
    )
    parser.add_argument(
        "--straggle", metavar="RANK:MS", help="A rank that waits so long in each step."
    )
    return parser


def _run(config: WorkloadConfig, options: argparse.Namespace) -> None:
    # The profiler's own lines would displace the explanation of a failure from the end of a log.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    # Imports torch, after mistakes of the configuration have been found.
    from torch.distributed.elastic.multiprocessing.errors import record

    from gemmetry.sweeps.trainer import Straggle, run

    straggle = Straggle.parse(options.straggle) if options.straggle else None
    # torchrun's summary of a failure quotes the error that `record` writes.
    record(run)(config, options.output, path=options.path, straggle=straggle)


def _end(status: int) -> None:
    """End this process. Without a GPU the interpreter is not taken down, because threads of gloo
    that release tensors at that moment abort the process (seen with torch 2.13). With a GPU it is,
    because profilers around this process write their files then."""
    torch = sys.modules.get("torch")
    if torch is not None and not torch.cuda.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    _end(main(sys.argv[1:]))
