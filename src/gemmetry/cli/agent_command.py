"""``gemmetry agent``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand

app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
def agent(
    connect: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address that the driver prints.")
    ],
    token_file: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The driver's token; - reads it from standard input."),
    ],
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="The device to serve: cuda:1, cpu. Default: the first one of the plan's kind.",
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="What messages call it. Default: host and process."),
    ] = "",
    wait: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long to try to reach the driver: 60s, 5min."),
    ] = "60s",
) -> None:
    """Serve one device of this machine to a run elsewhere: a driver, started with --executor.

    Both sides prove knowledge of the token, which is not sent. The agent ends when the run is
    complete or its driver is gone.
    """
    import signal
    import sys

    from gemmetry.cli.console import note
    from gemmetry.domain.errors import RequestError
    from gemmetry.domain.target import parse_target
    from gemmetry.domain.units import parse_duration_s
    from gemmetry.engine.agents.agent import AgentOptions, run_agent
    from gemmetry.engine.agents.handshake import check_token, read_token
    from gemmetry.engine.agents.server import address_of

    host, port = address_of(connect)
    if port == 0:
        raise RequestError(
            f"the address {connect!r} has no port", hint="Write HOST:PORT, as the driver prints it."
        )
    if str(token_file) == "-":
        token = check_token(sys.stdin.buffer.readline(), "standard input")
    else:
        token = read_token(token_file)
    device = parse_target(device).device if device else ""
    # So that whatever ends it leaves neither workers nor files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = AgentOptions(host, port, token, device, name, parse_duration_s(wait))
    run_agent(options, note)
