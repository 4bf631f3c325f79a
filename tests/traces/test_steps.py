from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.traces.summary import Step, find_steps


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
        Step(7, 5000, 5150, "launches", 100),
        Step(8, 5120, 5200, "launches", 100),
    ]


def test_marks_on_the_gpu_where_no_launches_are_recorded(recording):
    made = recording()
    made.mark("ProfilerStep#1", 10, 20)
    made.mark("ProfilerStep#1", 1000, 100, gpu=True)
    made.mark("ProfilerStep#1", 1050, 200, gpu=True)
    made.mark("ProfilerStep#0", 100, 100, gpu=True)
    made.mark("forward", 5, 100, gpu=True)
    made.kernel("a", 1000, 30)
    made.kernel("b", 1220, 50)
    # Where nothing of a step began there is none.
    assert find_steps(made.trace()) == [Step(1, 1000, 1270, "gpu", 250)]


def test_a_mark_on_the_gpu_holds_its_own_stream_first(recording):
    made = recording()
    made.mark("ProfilerStep#1", 1000, 100, gpu=True)
    made.mark("ProfilerStep#2", 1100, 100, gpu=True)
    made.mark("ProfilerStep#1", 1120, 40, gpu=True, stream=20)
    made.kernel("a", 1010, 5)
    made.kernel("b", 1130, 5)
    made.kernel("c", 1130, 5, stream=20)
    made.kernel("d", 1180, 5, stream=20)
    made.kernel("e", 1130, 5, stream=20, device=1)
    assert work(made) == {1: ["a", "c"], 2: ["b", "d", "e"]}


def test_marks_that_were_written_as_operators(recording):
    made = recording()
    made.operator("ProfilerStep#5", 1000, 100)
    made.call(1, 1010)
    made.kernel("a", 5000, 30, correlation=1)
    assert find_steps(made.trace()) == [Step(5, 5000, 5030, "launches", 100)]


@pytest.mark.parametrize(
    ("marks", "steps"),
    [
        (["step[EXTEND bs=2 toks=2048]", "step[DECODE bs=64]", "step[DECODE bs=64]"],
         [(0, "extend"), (1, "decode"), (2, "decode")]),
        (["execute_context_1(2048)_generation_0(0)", "execute_context_0(0)_generation_64(64)",
          "execute_2_context_1(sq5sk7sqsq9sqsk3)_generation_1"],
         [(0, "prefill"), (1, "decode"), (2, "mixed")]),
        (["execute_new_1_cached_0", "execute_new_0_cached_64"], [(0, "prefill"), (1, "decode")]),
        (["[Executor] _forward_step 7: 1 ctx reqs, 64 gen reqs",
          "[Executor] _forward_step 8: 0 ctx reqs, 64 gen reqs"], [(7, "mixed"), (8, "decode")]),
        (["iteration 5", "Iter: 6"], [(5, ""), (6, "")]),
        (["batch 0", "batch 1", "batch 0"], [(0, ""), (1, ""), (2, "")]),
        (["train_step_1", "eval step 2"], [(1, "train"), (2, "eval")]),
        (["ProfilerStep#4", "iteration 9"], [(4, "")]),
        (["Optimizer.step#SGD.step", "my step 3 things", "forward_step", "step"], []),
    ],
)  # fmt: skip
def test_marks_of_engines_and_users_are_steps(recording, marks, steps):
    made = recording()
    for place, mark in enumerate(marks):
        made.mark(mark, 1000 * place, 500)
        made.call(place + 1, 1000 * place + 10)
        made.kernel("k", 1000 * place + 100, 5, correlation=place + 1)
    found = find_steps(made.trace())
    assert [(step.number, step.phase) for step in found] == steps
    assert all(len(step.rows) == 1 for step in found)


def test_a_mark_of_an_engine_on_several_streams_is_one_step(recording):
    made = recording()
    for start in (1000, 2000):
        for stream in (7, 20):
            made.mark("step[DECODE bs=64]", start + stream, 100, gpu=True, stream=stream)
            made.kernel("k", start + stream, 50, stream=stream)
    found = find_steps(made.trace())
    assert [(step.number, len(step.rows), step.source) for step in found] == [
        (0, 2, "gpu"), (1, 2, "gpu"),
    ]  # fmt: skip


def test_no_steps(recording):
    made = recording()
    made.mark("ProfilerStep#", 1000, 100)
    made.mark("my ProfilerStep#1", 1000, 100)
    made.call(1, 1010)
    made.kernel("a", 5000, 30, correlation=1)
    assert find_steps(made.trace()) == []
    assert find_steps(recording().trace()) == []


def work(made):
    """Names of the kernels of each step."""
    trace = made.trace()
    name = trace.rows.gpu.name
    return {
        step.number: sorted(trace.rows.names[index] for index in name[step.rows])
        for step in find_steps(trace)
    }


def test_of_marks_around_each_other_the_last_begun_has_the_launch(recording):
    made = recording()
    made.mark("ProfilerStep#1", 0, 1000)
    made.mark("ProfilerStep#2", 100, 100)
    made.mark("ProfilerStep#3", 200, 100)
    for name, at in (("a", 50), ("b", 150), ("c", 200), ("d", 500), ("e", 1000)):
        made.launch(name, at + 1, at=at + 10, lasts=5)
    assert work(made) == {1: ["a", "d"], 2: ["b"], 3: ["c"]}


def test_a_number_with_several_marks_is_one_step(recording):
    made = recording()
    made.mark("ProfilerStep#4", 0, 100)
    made.mark("ProfilerStep#4", 200, 100)
    made.launch("a", 1, at=60, lasts=5)
    made.launch("b", 2, at=260, lasts=5)
    made.launch("c", 3, at=160, lasts=5)
    assert work(made) == {4: ["a", "b"]}
    assert find_steps(made.trace()) == [Step(4, 60, 265, "launches", 300)]


def test_without_a_launch_the_neighbours_on_the_stream_decide(recording):
    made = recording()
    made.mark("ProfilerStep#1", 0, 100)
    made.mark("ProfilerStep#2", 100, 100)
    for number, (launched, at) in enumerate(((10, 500), (20, 540), (110, 580), (120, 620)), 1):
        made.call(number, launched)
        made.kernel(f"linked {at}", at, 5, correlation=number)
    made.kernel("before all", 490, 5)
    made.kernel("in 1", 510, 5)
    made.kernel("in 1 too", 520, 5, correlation=99)
    made.kernel("between", 560, 5)
    made.kernel("in 2", 600, 5)
    made.kernel("after all", 640, 5)
    made.kernel("alone on its stream", 510, 5, stream=8)
    made.kernel("of another device", 510, 5, device=1)
    assert work(made) == {
        1: ["in 1", "in 1 too", "linked 500", "linked 540"],
        2: ["in 2", "linked 580", "linked 620"],
    }
    assert [step.inferred for step in find_steps(made.trace())] == [2, 1]


_marks = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=5)
_kernels = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 100)), st.integers(0, 60), st.integers(0, 2)),
    max_size=25,
)


@given(_marks, _kernels)
@settings(deadline=None, max_examples=60)
def test_every_kernel_is_in_one_step_at_most(recording, marks, kernels):
    """Compared with marks tried one by one; a kernel is its launch, its delay and its stream."""
    made = recording()
    for number, (start, length) in enumerate(marks):
        made.mark(f"ProfilerStep#{number}", start, length)
    expected, lost = {}, set()
    for number, (launch, delay, stream) in enumerate(kernels, 1):
        if launch is None:
            lost.add(f"k{number}")
            made.kernel(f"k{number}", delay, 3, stream=stream)
            continue
        made.call(number, launch)
        made.kernel(f"k{number}", launch + delay, 3, stream=stream, correlation=number)
        around = [
            (start, -start - length, step)
            for step, (start, length) in enumerate(marks)
            if start <= launch < start + length
        ]
        if around:
            expected.setdefault(max(around)[2], []).append(f"k{number}")
    found = work(made)
    everything = [name for names in found.values() for name in names]
    assert len(everything) == len(set(everything))
    linked = {step: [name for name in names if name not in lost] for step, names in found.items()}
    assert linked == {step: sorted(names) for step, names in expected.items()}
