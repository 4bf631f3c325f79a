"""Remarks on changes, and which change each belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from gemmetry.analysis.history.series import DeviceHistory, name_matches
from gemmetry.domain.errors import EmptySelectionError, RequestError, listed
from gemmetry.store.history.entries import SCHEMA, Annotation
from gemmetry.store.history.folder import StoredHistory

_NEAR = 3
"""Runs by which the place of a change may move while further runs are added."""

_MOST_NAMED = 3


def annotation_of(
    stored: StoredHistory, pattern: str, run: str, text: str, *, acknowledged: bool
) -> Annotation:
    """The annotation that a user requests.

    Args:
        run: the beginning of the id, commit or time of the first run after the change.

    Raises:
        RequestError: there is no such run, or several; no dispatch matches; the text is empty.
    """
    if not text.strip():
        raise RequestError("the remark is empty", hint="Give a text: --text 'slower since ...'.")
    runs = [one for group in stored.runs.values() for one in group]
    found = {
        one.id: one
        for one in runs
        if run and any(known.startswith(run) for known in (one.id, one.commit, one.time))
    }
    if len(found) != 1:
        ids = [f"{one.id} ({one.time[:10]})" for one in (found or {r.id: r for r in runs}).values()]
        what = f"{len(found)} runs" if found else "no run"
        raise RequestError(
            f"{what} of the history begin with {run!r}" if found else
            f"{what} of the history begins with {run!r}",
            hint=f"Give the id of one: {listed(ids[::-1], _MOST_NAMED)}.",
        )  # fmt: skip
    keys = {point.key for one in runs for point in one.points}
    if not any(name_matches(f"{key[0]}:{key[1]}", pattern) for key in keys):
        raise EmptySelectionError(
            f"no dispatch of the history matches {pattern!r}",
            hint="Give provider:name, a part of it, or a glob; gemmetry history show lists them.",
        )
    return Annotation(
        schema=SCHEMA,
        run=next(iter(found)),
        pattern=pattern,
        text=text,
        acknowledged=acknowledged,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def annotations_on(
    history: DeviceHistory, series: int, run: int, annotations: Iterable[Annotation]
) -> tuple[Annotation, ...]:
    """The annotations on a change of `series` at `run`."""
    near = {one.id for one in history.runs[max(0, run - _NEAR) : run + _NEAR + 1]}
    return tuple(
        one for one in annotations if one.run in near and history.matches(series, one.pattern)
    )
