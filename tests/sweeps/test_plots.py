"""The five pictures: what is drawn, with any number of categories, and where data are missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmetry.documents import sweep_plots as plots
from gemmetry.sweeps.rows import SweepConfiguration


@pytest.fixture
def drawn(monkeypatch):
    """The figures of points, by the names of their files."""

    def draw(points):
        figures = []
        monkeypatch.setattr(plots, "_png", lambda figure, title, foot: figures.append(
            (figure, title, foot)) or b"")  # fmt: skip
        return dict(zip(plots.sweep_plots(points), figures, strict=True))

    return draw


def texts(axes):
    return [text.get_text() for text in axes.texts]


def labels(axes):
    return [label.get_text() for label in axes.get_xticklabels()]


def test_a_missing_point_is_marked_and_never_zero(products, drawn):
    figure, _, foot = drawn(products.points)["variance_thread_channel_interaction.png"]
    (axes,) = figure.axes
    heights = np.array([line.get_ydata() for line in axes.lines if line.get_marker() in "os"])
    assert np.isnan(heights).tolist() == [[False, False], [False, True]]
    assert np.nanmin(heights) > 0.9
    assert sum(line.get_marker() == "x" for line in axes.lines) == 1
    assert foot.endswith("×: no data")


def test_a_value_without_any_data_keeps_its_place(products, drawn):
    empty = replace(
        products.points[0], configuration=SweepConfiguration(256, 16), gemms=(), timelines={}
    )
    figure, *_ = drawn([*products.points, empty])["variance_by_channels_boxplot.png"]
    assert labels(figure.axes[0]) == ["4", "8", "16"]
    assert texts(figure.axes[0]) == ["no data"]
    assert plots.sweep_plots([empty]) == {}


def test_many_ranks_become_a_band(products, drawn):
    point = products.points[0]
    gemms = tuple(replace(point.gemms[0], rank=rank) for rank in range(100))
    figure, *_ = drawn([replace(point, gemms=gemms)])["variance_by_ranks_boxplot.png"]
    (axes,) = figure.axes
    assert len(labels(axes)) <= 20
    assert len(axes.collections) == 2
    assert figure.get_figwidth() <= 16


def test_one_long_instance_does_not_flatten_the_boxes(products, drawn):
    point = products.points[0]
    first, *others = point.gemms
    durations = first.durations_us.copy()
    durations[np.argmax(durations)] = 500 * first.median_us
    points = [replace(point, gemms=(replace(first, durations_us=durations), *others))]
    figure, *_ = drawn(points)["variance_by_threads_boxplot.png"]
    assert figure.axes[0].get_ylim()[1] < 2
    assert [text[0] for text in texts(figure.axes[0])] == ["↑"]


def test_further_axes_have_lines_of_their_own(products, drawn):
    point = products.points[0]
    points = [
        replace(point, configuration=replace(point.configuration, axes=(("NCCL_ALGO", value),)))
        for value in ("Ring", "Tree")
    ]
    figure, *_ = drawn(points)["variance_thread_channel_interaction.png"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["256 threads, NCCL_ALGO=Ring", "256 threads, NCCL_ALGO=Tree"]
