from __future__ import annotations

from typing import Annotated

import typer
from typer.testing import CliRunner

from gemmetry.cli.main import PlainGroup, PlainHelp

LONG = "a-name-with-hyphens-that-is-longer-than-what-is-left-of-its-line-in-eighty-columns-of-text"


class Command(PlainHelp, typer.core.TyperCommand):
    pass


def help_of(*arguments: str) -> str:
    app = typer.Typer(cls=PlainGroup, no_args_is_help=True, help="Of the group.")

    @app.command(cls=Command)
    def first(
        place: Annotated[str, typer.Argument(metavar="PLACE", help="Where.")],
        plain: Annotated[str, typer.Option(help=f"Takes {LONG}.")] = "",
        other: Annotated[str, typer.Option(help="Else.", rich_help_panel="Elsewhere")] = "",
        a_name_that_is_wider_than_its_column: Annotated[bool, typer.Option(help="Wide.")] = False,
    ) -> None:
        """Does one
        thing.

        And explains more.
        """

    @app.command(cls=Command)
    def second() -> None:
        """Does another."""

    @app.command(cls=Command, hidden=True)
    def third() -> None:
        """Is not listed."""

    ended = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "80"})
    assert ended.exit_code == 0
    return ended.stdout


def test_a_group_lists_its_commands_with_their_first_paragraph():
    lines = help_of().splitlines()
    at = lines.index("Commands:")
    assert lines[at:] == ["Commands:", "  first   Does one thing.", "  second  Does another."]
    assert "  Of the group." in lines


def test_options_are_listed_under_their_panels():
    text = help_of("first")
    headings = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == ["Arguments:", "Options:", "Elsewhere:"]
    assert text.index("Elsewhere:") < text.index("--other")
    assert "And explains more." in text


def test_names_stay_whole():
    lines = help_of("first").splitlines()
    assert any(line.strip() == f"{LONG}." for line in lines)
    assert (
        "  --a-name-that-is-wider-than-its-column / --no-a-name-that-is-wider-than-its-column"
        in [line.rstrip() for line in lines]
    )
