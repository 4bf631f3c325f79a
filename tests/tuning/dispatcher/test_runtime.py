"""Kernels fail in every way, and the result is right all the same."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")

from gemmetry.domain.errors import LaunchError  # noqa: E402
from gemmetry.tuning.dispatcher import choosing, runtime  # noqa: E402
from gemmetry.tuning.dispatcher.call import explain, matmul  # noqa: E402
from gemmetry.tuning.dispatcher.table import TableError, version_changes, write_table  # noqa: E402

from .conftest import BlockedExecutable, certificate, entry, table_of  # noqa: E402


@pytest.fixture
def operands():
    torch.manual_seed(1)
    a = torch.randn(16, 64).to(torch.bfloat16)
    return a, torch.randn(32, 64).to(torch.bfloat16).mT


def is_right(a, b, result):
    return torch.allclose(result.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)


@pytest.fixture
def built(blocked, monkeypatch):
    """What was built, one entry each."""
    names, build = [], blocked.build
    monkeypatch.setattr(
        blocked, "build", lambda one, *rest: names.append(one.name) or build(one, *rest)
    )
    return names


TABLE = table_of(entry(16, 32, 64, cublas=10.0, a=5.0))


def test_a_verified_kernel_is_launched(blocked, use, operands, tmp_path):
    use(TABLE)
    for _ in range(3):
        assert is_right(*operands, matmul(*operands))
    assert len(blocked.launches) == 4, "the first call tries it once"
    assert explain(*operands) == "blocked:a: exact entry, measured at this shape"
    (tmp_path / "table.json").write_text("{")
    with pytest.raises(TableError, match="is damaged"):
        runtime.use_table(tmp_path / "table.json")
    matmul(*operands)
    assert len(blocked.launches) > 4, "the table before stays"


def test_threads_share_what_was_built(use, operands, built):
    use(TABLE)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: matmul(*operands), range(4)))
    assert all(is_right(*operands, one) for one in results)
    assert len(built) == 1


@pytest.mark.parametrize(
    ("name", "harm", "warning"),
    [
        ("broken", "", "cannot be built"), ("failing", "", "does not run"), ("illegal", "", ""),
        ("a", "another source", "is not what the dispatcher's table verified"),
        ("a", "a refused problem", ""), ("a", "another device", ""),
    ],
)  # fmt: skip
def test_what_does_not_run_gives_way_with_one_warning_at_most(
    blocked, use, operands, name, harm, warning, recwarn
):
    table = table_of(entry(16, 32, 64, cublas=10.0, **{name: 5.0}), certified=(name,))
    if harm == "another device":
        table = dataclasses.replace(table, device="NVIDIA H200", target="cuda-sm_90")
    use(table)
    if harm == "another source":
        blocked.source = b"another"
    blocked.refuses = lambda _shape: harm == "a refused problem"
    for _ in range(2):
        assert is_right(*operands, matmul(*operands))
    assert len(recwarn) == bool(warning)
    assert all(warning in str(one.message) for one in recwarn)
    assert blocked.launches == []
    assert explain(*operands).startswith("torch:default")


def test_another_version_of_torch_or_another_card_leaves_the_ranking(
    blocked, use, operands, recwarn
):
    def near(ns):
        return [entry(m, 32, 64, cublas=10.0, a=ns) for m in (10, 12, 14, 16, 20)]

    for ns, start in ((7.0, "blocked:a: ranking"), (9.8, "torch:default")):
        use(table_of(*near(ns), device="another CPU"))
        assert explain(*operands).startswith(start), "what is clearly faster is taken"
    assert not recwarn.list
    use(table_of(*near(5.0), versions={"torch": "0.1"}))
    assert is_right(*operands, matmul(*operands))
    matmul(operands[0][:8], operands[1])
    (warned,) = recwarn.list
    assert warned.category is runtime.DispatchWarning
    assert "torch 0.1, now 2" in str(warned.message)
    assert explain(*operands).startswith("blocked:a: ranking")


def test_a_provider_that_does_not_exist(use, operands):
    times = {"gone:a": 1.0, **TABLE.entries[0].times_ns}
    gone = dataclasses.replace(TABLE.entries[0], choice="gone:a", times_ns=times)
    passed = dataclasses.replace(certificate("a"), candidate="gone:a")
    runtime.use_table(dataclasses.replace(TABLE, entries=(gone,), certificates=(passed,)))
    assert is_right(*operands, matmul(*operands))
    assert explain(*operands).startswith("torch:default")


def test_the_variable_names_a_table(blocked, operands, tmp_path, monkeypatch):
    runtime._tables.clear()
    write_table(TABLE, tmp_path / "table.json")
    for name, warning in (("table", "verified"), ("none", "everything is computed by torch")):
        monkeypatch.setenv(runtime.TABLE_VARIABLE, str(tmp_path / f"{name}.json"))
        runtime.reset()
        with pytest.warns(runtime.DispatchWarning, match=warning):
            assert is_right(*operands, matmul(*operands))


def test_versions_are_named():
    here = {"torch": "2", "driver": "580"}
    assert version_changes({"torch": "1", "driver": "580"}, here) == "torch 1, now 2"


def test_doctor_says_what_a_device_has(blocked, use):
    def has(kernels, words):
        ((_, has_kernels, text, _),) = runtime.doctor_lines()
        return (has_kernels, words in text) == (kernels, True)

    runtime.use_table(None)
    assert has(False, "")
    use(TABLE)
    assert has(True, "2 of 2")
    blocked.source = b"another"
    assert has(False, "0 of 2")


def test_workspaces_are_not_shared_by_streams_nor_kept_without_bound(
    use, operands, built, monkeypatch
):
    stream = [1]
    monkeypatch.setattr(runtime, "_stream", lambda target: stream[0])
    monkeypatch.setattr(BlockedExecutable, "workspace_bytes", 400 * 2**20, raising=False)
    use(TABLE)
    for stream[0], count in ((1, 1), (2, 2), (1, 2), (2, 2), (3, 3), (4, 4)):
        assert is_right(*operands, matmul(*operands))
        assert len(built) == count
    dispatcher = runtime.dispatcher_of(torch.device("cpu"))
    assert len(dispatcher._built) <= 2, "more than 1 GiB of workspaces is not kept"


def test_streams_share_a_kernel_without_a_workspace_also_in_a_captured_graph(
    blocked, use, operands, monkeypatch
):
    use(TABLE)
    monkeypatch.setattr(BlockedExecutable, "workspace_bytes", 0, raising=False)
    matmul(*operands)
    before = len(blocked.launches)
    monkeypatch.setattr(runtime, "is_capturing", lambda target: True)
    for size in (0, 8):
        monkeypatch.setattr(BlockedExecutable, "workspace_bytes", size)
        assert is_right(*operands, matmul(*operands))
        assert len(blocked.launches) == before + 1, "what cannot be captured is torch's"
        runtime._notify()


class Clock:
    """A device whose launches take what `ns` says of their candidate."""

    last_level_cache_bytes = 1 << 20

    def __init__(self, blocked, around=0.0, **ns):
        self.blocked, self.ns, self.timed, self.inputs = blocked, ns, [], set()
        self.around_ns, self.around = around, 0

    def neighbour(self):
        def count():
            self.around += 1

        return count if self.around_ns else None

    def time_calls(self, calls):
        durations = []
        for call in calls:
            self.blocked.launches.clear()
            before, result = self.around, call()
            if arguments := getattr(call, "args", None):
                self.inputs.add(arguments[0].b.data_ptr())
            (name,) = self.blocked.launches or ["cublas"]
            own = self.ns[name] if result is not None else 0.0
            durations.append(own + self.around_ns * (self.around - before))
        self.timed.append(len(calls))
        return durations, "a test"


AROUND = [entry(m, 32, 128, cublas=10.0, a=9.0, b=8.0, wrong=5.0) for m in (10, 14, 20, 28)]
"""Of N and K that do not stand for the operands'."""


@pytest.fixture
def trials(blocked, use, monkeypatch):
    """Choices of a table of other shapes with trials, whose launches take so many ns."""

    def run(*certified, **ns):
        clock = Clock(blocked, **ns)
        monkeypatch.setattr(runtime, "open_device", lambda _target: clock)
        use(table_of(*AROUND, certified=("a", "b", *certified)))
        runtime.use_trials()
        return clock

    yield run
    runtime._trials.clear()


def test_a_trial_finds_the_fastest_candidate_once(trials, operands, recwarn):
    a, b = operands
    clock = trials("wrong", cublas=100.0, a=50.0, b=60.0)
    for _ in range(2):
        assert is_right(a, b, matmul(a, b))
    assert explain(a, b) == "blocked:a: exact entry, measured at this shape"
    # One launch of each, then rounds of all in turns, on several copies of the operands.
    assert clock.timed == [3, 3 * runtime._MOST_ROUNDS]
    assert len(clock.inputs) > 1
    # A result that differs from torch's is never timed, nor chosen.
    (warned,) = recwarn.list
    assert "blocked:wrong" in str(warned.message)
    # Another number of rows is tried by itself.
    matmul(a[:12], b)
    assert len(clock.timed) == 4
    assert explain(a[:12], b) == explain(a, b)


def drops_a_product(given, output):
    lhs, rhs = given["lhs"].float(), given["rhs"].float()
    output.copy_(lhs[:, 1:] @ rhs[1:])


def hides_what_is_not_finite(given, output):
    output.nan_to_num_()


def writes_behind_the_result(given, output):
    end = output.storage_offset() + output.numel()
    if output.untyped_storage().nbytes() > end * output.itemsize:
        output.as_strided((1,), (1,), end).fill_(0)


@pytest.mark.parametrize(
    "fault", [drops_a_product, hides_what_is_not_finite, writes_behind_the_result]
)
def test_a_trial_checks_other_contents_than_those_of_the_call(trials, blocked, fault, recwarn):
    a, b = (torch.randn(size, 4096).to(torch.bfloat16) for size in (16, 32))
    b = b.mT
    blocked.faults["a"] = fault
    clock = trials(cublas=100.0, a=50.0, b=60.0)
    assert is_right(a, b, matmul(a, b))
    assert explain(a, b).startswith("blocked:b: exact entry")
    assert clock.timed[0] == 2
    (warned,) = recwarn.list
    assert "blocked:a" in str(warned.message)


@pytest.mark.parametrize("is_library", [False, True])
def test_what_a_library_proposes_needs_no_certificate_where_it_is_tried(
    trials, operands, monkeypatch, is_library
):
    if is_library:
        monkeypatch.setattr(choosing, "is_library", lambda one: one == "blocked:c")
    trials(cublas=100.0, a=50.0, b=60.0, c=40.0)
    matmul(*operands)
    assert explain(*operands).startswith(f"blocked:{'c' if is_library else 'a'}: exact")
    runtime.use_trials(False)
    assert explain(*operands).startswith("blocked:b: ranking"), "nowhere else"


def test_what_runs_between_the_launches_of_a_trial_is_subtracted(trials, operands):
    clock = trials(cublas=100.0, a=98.5, b=200.0, around=500.0)
    matmul(*operands)
    assert explain(*operands).startswith("blocked:a: exact entry"), "1.5 % of 100, not of 600"
    assert clock.around == clock.timed[1] == 4 * runtime._MOST_ROUNDS


@pytest.mark.parametrize(("ns", "is_chosen"), [(99.5, False), (120.0, False), (98.0, True)])
def test_a_tie_in_a_trial_is_cublas(trials, operands, ns, is_chosen):
    trials(cublas=100.0, a=ns, b=200.0)
    assert explain(*operands).startswith("blocked:a" if is_chosen else "torch:default")


def test_no_trial_where_torch_is_to_be_deterministic_or_addresses_do_not_fit(
    trials, operands, monkeypatch
):
    a, b = operands
    clock = trials(cublas=100.0, a=50.0, b=60.0)
    shifted = torch.empty(16 * 64 + 1, dtype=a.dtype)[1:].view(16, 64).copy_(a)
    matmul(shifted, b)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert is_right(a, b, matmul(a, b))
    assert clock.timed == []


def test_a_trial_that_fails_leaves_cublas(trials, operands, recwarn):
    clock = trials()  # It knows the time of nothing.
    clock.time_calls = Mock(side_effect=LaunchError("out of memory"))
    for _ in range(2):
        assert is_right(*operands, matmul(*operands))
    assert explain(*operands).startswith("torch:default: exact entry")
    assert [one.category for one in recwarn.list] == [runtime.DispatchWarning]


def test_trials_are_switched_by_a_variable_and_off_by_default(trials, use, operands, monkeypatch):
    clock = trials(cublas=100.0, a=50.0, b=60.0)
    for value, times in (("", 0), ("0", 0), ("1", 2)):
        runtime._trials.clear()
        monkeypatch.setenv(runtime.TRIALS_VARIABLE, value)
        use(table_of(*AROUND))
        matmul(*operands)
        assert len(clock.timed) == times


def test_results_agree_up_to_roundings():
    torch.manual_seed(3)
    wanted = torch.randn(64, 64).to(torch.bfloat16)

    def changed(place, value):
        other = wanted.clone()
        other[place] = value
        return other

    assert runtime.agree(wanted.clone(), wanted)
    assert runtime.agree((wanted.float() * (1 + 2**-7)).to(torch.bfloat16), wanted)
    for value in (0.0, float("nan"), float("inf"), 4.0):
        value = value if abs(float(wanted[5, 7]) - value) > 0.2 else 9.0
        assert not runtime.agree(changed((5, 7), value), wanted)
    wanted[3, 3], wanted[4, 4], wanted[5, 5] = float("nan"), float("inf"), 0.0
    assert runtime.agree(wanted.clone(), wanted)
    # Sums that cancel may round elsewhere, also next to such values and to large ones.
    other = changed((5, 5), 2**-9)
    assert runtime.agree(other, wanted)
    assert runtime.agree(other * 1e30, wanted * 1e30)
    assert not runtime.agree(torch.zeros_like(wanted), wanted)
