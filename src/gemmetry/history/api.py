"""Histories of many runs, for scripts and the command line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.rows import table
from gemmetry.engine.experiment import Experiment
from gemmetry.history.checking import FAIL_ON, LATEST, THRESHOLD, HistoryCheck, check_history
from gemmetry.history.collecting import added_before, runs_of
from gemmetry.history.folder import HistoryRun, StoredHistory, read_history, writing
from gemmetry.history.rows import (
    Chosen,
    PointRow,
    SeriesRow,
    check_document,
    check_result,
    point_rows,
    series_row,
)
from gemmetry.history.series import measured_again
from gemmetry.results.tables import frame

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, slots=True)
class AddedRun:
    """What became of the results of one experiment on the devices of one class."""

    experiment: Path
    run: HistoryRun
    state: str
    """``added``; ``replaced`` if fewer or other results of the experiment were stored before;
    ``same`` if these were, and nothing was added."""
    is_older: bool
    """A later run is in the history already: this one is placed by its time."""
    measured_before: HistoryRun | None = None
    """The earlier run of its commit, where another commit was measured in between: no change is
    looked for in this one."""


class History:
    """The series of a history, their changes, and which of them are alarms.

    Data frames are of polars (the extra ``analysis``); ``.to_pandas()`` converts them.
    """

    def __init__(self, check: HistoryCheck) -> None:
        self.check = check
        """All that was found."""

    @property
    def problems(self) -> list[str]:
        """Lines of the history that were skipped."""
        return list(self.check.problems)

    @property
    def has_alarm(self) -> bool:
        """Whether a dispatch became slower, or was lost, by one of the causes that fail."""
        return self.check.has_alarm

    @property
    def has_failed(self) -> bool:
        """Whether ``gemmetry history check`` fails: on an alarm, or undecided."""
        return self.check.has_failed

    def series(self, pattern: str = "*") -> polars.DataFrame:
        """A row for each series: its latest median and interval in ns, its level, its changes.

        Args:
            pattern: ``provider:name`` of dispatches, a part of it, or a glob.

        Raises:
            EmptySelectionError: no dispatch matches. RequestError: polars is missing.
        """
        rows = [series_row(self.check, *one) for one in self.chosen(pattern)]
        return frame(table("series", SeriesRow, rows))

    def points(self, pattern: str = "*") -> polars.DataFrame:
        """A row for each run of each series, in the order of time: median and interval in ns, the
        outcome, the median of the reference in the same run, and the ratio to it.

        Args:
            pattern: as for :meth:`series`.

        Raises:
            EmptySelectionError: no dispatch matches. RequestError: polars is missing.
        """
        return frame(table("points", PointRow, point_rows(self.chosen(pattern))))

    def changes(self) -> polars.DataFrame:
        """A row for each change, with its cause, and for each dispatch that is no longer ok; alarms
        and new ones first.

        Raises:
            RequestError: polars is missing.
        """
        return check_result(self.check).frame("changes")

    def chosen(self, pattern: str = "*") -> Chosen:
        """The series that `pattern` stands for.

        Raises:
            EmptySelectionError: there is none.
        """
        found = [
            (device, series)
            for device in self.check.devices
            for series in range(len(device.history.keys))
            if device.history.matches(series, pattern)
        ]
        if not found:
            raise EmptySelectionError(
                f"no dispatch of the history matches {pattern!r}",
                hint="Give provider:name, a part of it, or a glob such as 'torch:*'.",
            )
        return found

    def document(self) -> dict[str, Any]:
        """What ``gemmetry history check --json`` prints."""
        return check_document(self.check)

    def write(self, path: str | PathLike[str]) -> None:
        """Write the check as JUnit (.xml), a comment for a pull request (.md), the document
        (.json), or a table of changes.

        Raises:
            RequestError: unknown suffix, or a library is missing. StorageError: not writable.
        """
        check_result(self.check).write(path)

    def write_site(self, folder: str | PathLike[str], title: str = "GEMM history") -> None:
        """Write the static site; its first page is ``index.html``.

        Raises:
            StorageError: not writable.
        """
        from gemmetry.history.site import write_site

        write_site(self.check, Path(folder), title)

    def __repr__(self) -> str:
        runs = sum(len(one.history.runs) for one in self.check.devices)
        return (
            f"History(devices={len(self.check.devices)}, runs={runs}, "
            f"changes={len(self.check.changes)}, has_alarm={self.has_alarm})"
        )


def load(
    store: str | PathLike[str],
    *,
    latest: int = LATEST,
    threshold: float = THRESHOLD,
    baseline: str | None = None,
    fail_on: Collection[str] = FAIL_ON,
    undecided_fails: bool | None = None,
) -> History:
    """Read the history in the folder `store` and find its changes.

    Args:
        latest: a change is new if its first run is among this many latest ones.
        threshold: relative changes up to this count as none.
        baseline: provider, or ``provider:configuration``, with which times are compared; None: the
            best vendor library that each problem was measured with.
        fail_on: causes of slower changes that are alarms, and ``lost``.
        undecided_fails: whether :attr:`History.has_failed` while "no change" is no verdict; None:
            only where there are runs enough, which then differ too much.

    Raises:
        RequestError: there is no history, or no line of it can be used.
        UnknownNameError: no such baseline or cause.
    """
    return History(
        check_history(
            read_history(Path(store)),
            latest=latest,
            threshold=threshold,
            baseline=baseline,
            fail_on=fail_on,
            undecided_fails=undecided_fails,
        )
    )


def add(
    *experiments: str | PathLike[str],
    store: str | PathLike[str],
    commit: str = "",
    label: str = "",
    time: str = "",
) -> tuple[list[AddedRun], list[str]]:
    """Append the results of experiments to the history in the folder `store`, which is created
    where it does not exist: all of them or, if one fails, none.

    Args:
        commit: of what was measured; "": the one in which each run was started.
        label: names the runs, such as ``nightly``.
        time: ISO 8601, by which the runs are ordered; "": when each run began.

    Returns:
        What became of each run, and the lines of the history that cannot be read.

    Raises:
        RequestError: an experiment cannot be read or has no results.
        StorageError: the history cannot be written.
    """
    read = []
    for path in map(Path, experiments):
        with Experiment.open(path) as opened:
            runs = runs_of(opened.result_set(), commit=commit, label=label, time=time)
        read += [(path, run) for run in runs]
    with writing(Path(store)) as append_runs:
        try:
            history = read_history(Path(store))
        except RequestError:
            history = StoredHistory()
        added = [_added(path, run, history) for path, run in read]
        append_runs([one.run for one in added if one.state != "same"])
    return added, history.problems


def _added(path: Path, run: HistoryRun, history: StoredHistory) -> AddedRun:
    """What becomes of a run, which `history` contains from then on."""
    known = history.runs.setdefault(run.device, [])
    state = added_before(run, known) or "added"
    is_older = bool(known) and run.time < max(one.time for one in known)
    if state != "same":
        known.append(run)
    ordered = sorted(known, key=lambda one: one.time)
    before = None
    if any(ordered[place] is run for place in measured_again(ordered)):
        before = next(one for one in ordered if one.commit == run.commit)
    return AddedRun(path, run, state, is_older, before)
