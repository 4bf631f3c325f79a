from __future__ import annotations

import pytest

from gemmetry.domain.errors import Outcome
from gemmetry.engine.protocol import ChannelClosed, Close


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_worker_lost_while_it_closes_costs_the_first_it_did_not_answer(
    measure, memory_workers, place
):
    class DiesClosing(memory_workers.MemoryChannel):
        answers_left = place
        closes = False

        def send(self, message):
            self.closes = isinstance(message, Close)
            super().send(message)

        def receive(self, timeout_s=None):
            if self.closes:
                if self.answers_left == 0:
                    self.close()
                    raise ChannelClosed
                self.answers_left -= 1
            return super().receive(timeout_s)

    executor = memory_workers.MemoryExecutor(lambda: DiesClosing(memory_workers.healthy_answers))
    records = measure(["default", "fast", "factor_2"], executor=executor).records
    outcomes = [records[number].outcome for number in range(3)]
    assert outcomes == [Outcome.CRASH if n == place else Outcome.OK for n in range(3)]
    checked = [records[number].verdict.checks.get("after_timing") for number in range(3)]
    assert checked[:place] == ["passed"] * place
    assert all(text.startswith("not applicable") for text in checked[place + 1 :])
