from __future__ import annotations

from gemmetry.engine.protocol import Sample

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
