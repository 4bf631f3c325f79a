from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.traces.summary import find_steps


def work(made):
    """Names of the kernels of each step."""
    trace = made.trace()
    name = trace.rows.gpu.name
    return {
        step.number: sorted(trace.rows.names[index] for index in name[step.rows])
        for step in find_steps(trace)
    }


_marks = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=5)
_kernels = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 100)), st.integers(0, 60), st.integers(0, 2)),
    max_size=25,
)


@given(_marks, _kernels)
@settings(max_examples=60)
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
