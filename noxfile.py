"""Every check in an environment of its own: ``nox -s tests-3.12``, ``nox -s lint`` ...

``make test`` does the same in one environment and needs no nox.
"""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "types", "tests", "docs"]


@nox.session(python=["3.11", "3.12"])
def tests(session: nox.Session) -> None:
    """The test suite; arguments behind ``--`` go to pytest."""
    session.install("-c", "constraints.txt", "--editable", ".[test]")
    session.run("pytest", "-n", "2", "--dist", "loadfile", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, the layer contract, and the words of the glossary."""
    session.install("-c", "constraints.txt", "--editable", ".[test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")
    session.run("pytest", "-q", "tests/test_style.py")


@nox.session
def types(session: nox.Session) -> None:
    """mypy in strict mode."""
    session.install("-c", "constraints.txt", "--editable", ".[test]")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation; a warning is an error."""
    session.install("-c", "constraints.txt", "--editable", ".[docs]")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
