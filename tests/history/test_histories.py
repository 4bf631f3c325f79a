"""Changes of the histories of ``histories.txt``, whose lines are calls of :class:`Made`, and what
was observed next to them."""

from __future__ import annotations

import msgspec
import numpy as np

from gemmetry.history.changes import (
    changed_conditions,
    changed_timing,
    clock_ratio,
    device_history,
    history_changes,
    observed_hints,
)


class Made:
    """A history, and which of its facts are shown."""

    def __init__(self, module):
        self.module = module
        self.history()
        self.reference = None
        self.edits = []
        self.shown = [changes]

    def history(self, kind="gaussian", lost=(), **chosen):
        kind = self.module.correlated(0.5) if kind == "correlated" else getattr(self.module, kind)
        lost = set(map(tuple, lost))
        self.made = self.module.SyntheticHistory(kind=kind, lost=lost, **chosen)
        self.slow, self.upgrade = self.made.slow, self.made.upgrade

    def machine(self, first, **facts):
        for one in self.made.environments[first:]:
            one.update(facts)

    def alternate(self, name, *values):
        for number, one in enumerate(self.made.environments):
            one[name] = values[number % len(values)]

    def setting(self, first, **settings):
        for one in self.made.settings[first:]:
            one.update(settings)

    def clock(self, first, factor):
        self.made.clocks[first:] *= factor

    def baseline(self, name):
        self.reference = name

    def points(self, first, provider="*", shape=None, **facts):
        """Change points of runs from `first` on."""

        def edit(runs):
            for run in runs[first:]:
                for place, (name, number) in enumerate(self.made.times):
                    if provider in ("*", name) and shape in (None, number):
                        run.points[place] = msgspec.structs.replace(run.points[place], **facts)

        self.edits.append(edit)

    def also(self, **facts):
        """Add a series for each with other facts."""

        def edit(runs):
            for run in runs:
                run.points.extend([msgspec.structs.replace(p, **facts) for p in run.points])

        self.edits.append(edit)

    def again(self, first, end, earlier):
        """Runs are of the commits that were measured `earlier` runs before."""

        def edit(runs):
            for place in range(first, end):
                commit = runs[place - earlier].commit
                runs[place] = msgspec.structs.replace(runs[place], commit=commit)

        self.edits.append(edit)

    def conditions(self, *runs):
        self.shown = [lambda history, run=run: observed(history, run) for run in runs]

    def series(self):
        self.shown = [series]

    def level(self):
        self.shown = [level]

    def found(self):
        runs = self.made.entries()
        for edit in self.edits:
            edit(runs)
        history = device_history(runs[0].device, runs, self.reference)
        return [line for show in self.shown for line in show(history)]


def changes(history):
    found = history_changes(history, threshold=0.02)
    again = sorted(history.measured_again)
    facts = {"is_undecided": found.is_undecided, "measured_again": again}
    yield "history", {**facts, "first_new_of_4": again and history.first_new(4)}
    for one in found.changes:
        low, high = one.shift.interval or (None, None)
        yield history.short_names[one.series], {
            "run": one.run, "cause": one.cause, "direction": one.direction, "low": low,
            "high": high, "is_of_ratio": one.is_of_ratio, "reasons": " / ".join(one.reasons),
        }  # fmt: skip


def observed(history, run):
    found = changed_conditions(history, run)
    yield f"run {run}", {
        "environment": found.environment, "method": found.method,
        "clock": clock_ratio(history, 0, run), "timing": changed_timing(history, 0, run),
        "hints": observed_hints(history, 0, run),
    }  # fmt: skip


def series(history):
    for place, name in enumerate(history.short_names):
        times, lows = history.median_ns[place], history.low_ns[place]
        outcomes = [history.outcome(place, run) for run in range(len(times))]
        yield name, {
            "reference": str(history.references[place]), "lost": history.lost.get(place),
            "outcomes": outcomes, "timed": np.isfinite(times).tolist(),
            "low": bool((lows[np.isfinite(times)] < times[np.isfinite(times)]).all()),
        }  # fmt: skip


def level(history):
    yield "level", {"of runs": (np.round(history.level, 6) + 0.0).tolist()}


def test_histories(case, histories):
    made = Made(histories)
    for what, plain, given in case.calls():
        getattr(made, what)(*plain, **given)
    case.check(made.found())
