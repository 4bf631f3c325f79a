"""The plugin in pytest runs of its own."""

from __future__ import annotations

import json

import pytest

pytest_plugins = ["pytester"]

TESTS = """
    import numpy as np

    def test_sort(kernel_benchmark):
        values = np.arange(SIZE)[::-1].copy()
        assert kernel_benchmark(np.sort, values, cold=False)[0] == 0

    def test_two(kernel_benchmark):
        contest = kernel_benchmark.compare({"a": sorted, "b": np.sort},
                                           inputs=([3, 1, 2] * 50,), cold=False, budget=0.2)
        assert contest.pair("b", "a").verdict in ("faster", "slower", "undecided",
                                                  "no difference shown")

    def test_gpu(kernel_benchmark):
        kernel_benchmark(np.sort, np.arange(5), device="cuda:99")
"""


@pytest.fixture
def run(pytester):
    def run_with(size: int, *options: str, run=pytester.runpytest_subprocess):
        pytester.makepyfile(test_kernels=TESTS.replace("SIZE", str(size)))
        # An installed plugin may change the order.
        without = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "randomly")]
        return run("--rootdir=.", *without, "--kernel-benchmark-budget=6", *options)

    return run_with


def test_times_are_written_and_only_slower_fails(run, pytester) -> None:
    first = run(1_000, "--kernel-benchmark-json=times.json")
    first.assert_outcomes(passed=2, skipped=1)
    first.stdout.fnmatch_lines(["*times of kernels*", "*test_kernels.py::test_sort"])
    found = json.loads((pytester.path / "times.json").read_text())["benchmarks"]
    names = [entry["fullname"].removeprefix("test_kernels.py::") for entry in found]
    assert names == ["test_sort", "test_two::a", "test_two::b"]
    stats = found[0]["stats"]
    figures = [stats[name] for name in ("min", "q1", "median", "q3", "max")]
    assert min(figures) > 0 and figures == sorted(figures) and max(figures) < 1
    assert stats["rounds"] == len(stats["data"]) >= 1
    run(100, "--kernel-benchmark-compare=times.json").assert_outcomes(passed=2, skipped=1)
    slower = run(20_000, "--kernel-benchmark-compare=times.json")
    slower.assert_outcomes(passed=1, failed=1, skipped=1)
    slower.stdout.fnmatch_lines(["*test_sort is slower*"])


def test_files_of_pytest_benchmark_can_be_compared_with(run, pytester) -> None:
    data = [1e-9 * (1 + place / 1000) for place in range(40)]
    entry = {"fullname": "test_kernels.py::test_sort", "extra_info": {}, "stats": {"data": data}}
    (pytester.path / "ref.json").write_text(json.dumps({"benchmarks": [entry]}))
    found = run(1_000, "--kernel-benchmark-compare=ref.json")
    found.assert_outcomes(passed=1, failed=1, skipped=1)


@pytest.mark.parametrize("text", [None, "", "[1", '{"benchmarks": [{"fullname": 3}]}', "[]"])
def test_files_that_are_no_reference_end_the_run_before_any_test(run, pytester, text) -> None:
    if text is not None:
        (pytester.path / "ref.json").write_text(text)
    found = run(10, "--kernel-benchmark-compare=ref.json", run=pytester.runpytest_inprocess)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["*ref.json*"])
