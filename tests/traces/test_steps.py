from __future__ import annotations

from gemmetry.traces.steps import Step, find_steps


def test_a_step_is_the_work_launched_within_its_mark(recording):
    made = recording()
    made.mark("ProfilerStep#7", 1000, 100)
    made.mark("ProfilerStep#8", 1100, 100)
    # The GPU lags behind; the mark there leaves out what another thread launched.
    made.mark("ProfilerStep#7", 5000, 30, gpu=True)
    made.call(1, 1010)
    made.call(2, 1050, thread=2)
    made.call(3, 1150)
    made.call(4, 1300)
    made.kernel("a", 5000, 30, correlation=1)
    made.memcpy(5100, 50, correlation=2)
    made.kernel("c", 5120, 80, correlation=3)
    made.kernel("d", 6000, 80, correlation=4)
    assert find_steps(made.trace()) == [
        Step(7, 5000, 5150, "launches"),
        Step(8, 5120, 5200, "launches"),
    ]


def test_marks_on_the_gpu_where_no_launches_are_recorded(recording):
    made = recording()
    made.mark("ProfilerStep#1", 10, 20)
    made.mark("ProfilerStep#1", 1000, 100, gpu=True)
    made.mark("ProfilerStep#1", 1050, 200, gpu=True)
    made.mark("ProfilerStep#0", 100, 100, gpu=True)
    made.mark("forward", 5, 100, gpu=True)
    made.kernel("a", 1000, 30)
    assert find_steps(made.trace()) == [Step(0, 100, 200, "gpu"), Step(1, 1000, 1250, "gpu")]


def test_marks_that_were_written_as_operators(recording):
    made = recording()
    made.operator("ProfilerStep#5", 1000, 100)
    made.call(1, 1010)
    made.kernel("a", 5000, 30, correlation=1)
    assert find_steps(made.trace()) == [Step(5, 5000, 5030, "launches")]


def test_no_steps(recording):
    made = recording()
    made.mark("ProfilerStep#", 1000, 100)
    made.mark("my ProfilerStep#1", 1000, 100)
    made.call(1, 1010)
    made.kernel("a", 5000, 30, correlation=1)
    assert find_steps(made.trace()) == []
    assert find_steps(recording().trace()) == []
