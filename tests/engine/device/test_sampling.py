from __future__ import annotations

from gemmetry.domain.errors import Outcome
from gemmetry.engine.protocol import Answered, Failure, Sample, Sampled

ENOUGH = {"interval_width": 1e-9, "min_samples": 5, "max_samples": 20}


def test_every_dispatch_of_a_group_is_sampled_in_each_round(measure, memory_workers):
    executor = memory_workers.MemoryExecutor()
    journal = measure(["default", "fast", "factor_2"], executor=executor, **ENOUGH)
    (channel,) = executor.channels
    rounds = [message.requests for message in channel.sent if isinstance(message, Sample)]
    assert all(sorted(key for key, _ in requests) == [0, 1, 2] for requests in rounds)
    for number, record in journal.records.items():
        requested = sum(count for requests in rounds for key, count in requests if key == number)
        assert requested == record.measurement.sample_count == 20


def test_a_dispatch_that_fails_in_a_round_ends_and_the_others_continue(measure, memory_workers):
    def answer(request):
        replies = memory_workers.healthy_answers(request)
        if not isinstance(request, Sample):
            return replies
        broken = Failure("LaunchError", "broke")
        return [
            Sampled(1, None, broken) if getattr(reply, "id", None) == 1 else reply
            for reply in replies
        ]

    executor = memory_workers.MemoryExecutor(lambda: memory_workers.MemoryChannel(answer))
    records = measure(["default", "fast", "factor_2"], executor=executor, **ENOUGH).records
    assert [records[n].outcome for n in range(3)] == [
        Outcome.OK, Outcome.LAUNCH_ERROR, Outcome.OK
    ]  # fmt: skip
    assert records[1].reason == "broke"
    assert records[0].measurement.sample_count == 20
    assert len(executor.channels) == 1, "no worker is lost"


def test_an_answer_with_neither_samples_nor_failure_costs_the_dispatch(measure, memory_workers):
    def answer(request):
        if isinstance(request, Sample):
            return [*(Sampled(key, None, None) for key, _ in request.requests), Answered()]
        return memory_workers.healthy_answers(request)

    executor = memory_workers.MemoryExecutor(lambda: memory_workers.MemoryChannel(answer))
    (record,) = measure(["default"], executor=executor, **ENOUGH).records.values()
    assert record.outcome is Outcome.CRASH
    assert "samples and a failure at once, or neither" in record.reason
