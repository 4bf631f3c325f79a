"""``torchrun … -m gemmetry.sweeps.workload``: the command line, and the run of one rank."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gemmetry.domain.errors import GemmetryError
from gemmetry.sweeps.training.axes import PATHS
from gemmetry.sweeps.training.config import DOCUMENT, PRESETS, load_config
from gemmetry.sweeps.training.keys import WorkloadConfig


def main(arguments: Sequence[str]) -> int:
    """Train as the `arguments` state. Returns the exit status; an error is printed by every rank,
    as torchrun ends the others as soon as one has failed."""
    options = _parser().parse_args(arguments)
    try:
        config = load_config(options.config, options.override)
        _run(config, options)
    except GemmetryError as error:
        rank = os.environ.get("RANK", 0)
        hint = f"\nhint: {error.hint}" if error.hint else ""
        sys.stderr.write(f"rank {rank}: error: {error.message}{hint}\n")
        return error.exit_status
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gemmetry.sweeps.workload",
        usage="torchrun … -m gemmetry.sweeps.workload --output DIR [options]",
        description="Trains a transformer whose GEMMs run under communication, and traces it.",
    )
    parser.add_argument(
        "--config",
        default=DOCUMENT,
        metavar="FILE",
        help=f"YAML file, or a preset: {', '.join(PRESETS)}. Default: {DOCUMENT}.",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="Folder to write into."
    )
    parser.add_argument(
        "--override",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="Keys with their sections, such as training.batch_size=8, that replace those of the "
        "configuration.",
    )
    parser.add_argument(
        "--path",
        choices=PATHS,
        default=PATHS[0],
        help=f"How the bytes of all-gathers move. Default: {PATHS[0]}.",
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

    from gemmetry.sweeps.workload.failures import Straggle
    from gemmetry.sweeps.workload.run import run

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
