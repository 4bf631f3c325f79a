from __future__ import annotations

from gemmetry.dispatches.terminal import group_failures
from gemmetry.domain.errors import Outcome, Stage

NAME = "matmul_8x8x8_f32t_f32t_f32t"


def test_reasons_that_differ_in_numbers_and_names_are_one_group(make_record):
    def failed(configuration, reason, **fields):
        fields = {"outcome": Outcome.WRONG, "stage": Stage.VERIFY, **fields}
        return make_record(NAME, configuration, reason=reason, **fields)

    records = [
        failed("tile32", "values: 12 of 64 elements are wrong; first at [0, 1]: got -1.5e-3"),
        failed("tile64", f"{NAME}_tile64: values: 7 of 64 elements are wrong; first at [3, 1]: "
                         "got 2"),
        failed("tile128", "values: 12 of 64 elements are NaN"),
        failed("tile256", "values: 12 of 64 elements are NaN", provider="iree"),
        failed("tile512", "values: 12 of 64 elements are NaN", outcome=Outcome.CRASH),
        make_record(NAME),
        make_record(NAME, "skipped", outcome=Outcome.SKIPPED, reason="slow", stage=Stage.BUILD),
    ]  # fmt: skip
    groups = group_failures(records)
    assert [[r.configuration for r in group.records] for group in groups] == [
        ["tile32", "tile64"], ["tile128"], ["tile256"], ["tile512"]]  # fmt: skip
    assert (groups[0].first, groups[0].others) == (records[0], 1)
