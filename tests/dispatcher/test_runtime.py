"""Kernels fail in every way, and the result is right all the same."""

from __future__ import annotations

import dataclasses
import threading
import warnings

import pytest

torch = pytest.importorskip("torch")

from gemmetry.tuning.dispatcher import runtime  # noqa: E402
from gemmetry.tuning.dispatcher.call import explain, matmul  # noqa: E402
from gemmetry.tuning.dispatcher.table import TableError, version_changes, write_table  # noqa: E402

from .conftest import certificate, entry, table_of  # noqa: E402


@pytest.fixture
def operands():
    torch.manual_seed(1)
    a = torch.randn(16, 64).to(torch.bfloat16)
    return a, torch.randn(32, 64).to(torch.bfloat16).mT


def is_right(a, b, result):
    return torch.allclose(result.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)


def test_a_verified_kernel_is_launched(blocked, use, operands):
    use(table_of(entry(16, 32, 64, cublas=10.0, a=5.0)))
    for _ in range(3):
        assert is_right(*operands, matmul(*operands))
    assert len(blocked.launches) == 4, "the first call tries it once"
    assert explain(*operands) == "blocked:a: exact entry, measured at this shape"


@pytest.mark.parametrize(
    ("name", "harm", "warning"),
    [
        ("broken", "", "cannot be built"),
        ("failing", "", "does not run"),
        ("illegal", "", ""),
        ("a", "another source", "is not what the dispatcher's table verified"),
        ("a", "a refused problem", ""),
        ("a", "another device", ""),
    ],
)
def test_what_does_not_run_gives_way_with_one_warning_at_most(
    blocked, use, operands, name, harm, warning
):
    fields = {}
    if harm == "another device":
        fields = {"device": "NVIDIA H200", "target": "cuda-sm_90",
                  "certificates": (certificate("a"),)}  # fmt: skip
    use(table_of(entry(16, 32, 64, cublas=10.0, **{name: 5.0}), certified=(name,), **fields))
    if harm == "another source":
        blocked.source = b"another"
    blocked.refuses = lambda _shape: harm == "a refused problem"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert is_right(*operands, matmul(*operands))
    assert len(caught) == bool(warning)
    assert all(warning in str(one.message) for one in caught)
    assert blocked.launches == []
    assert explain(*operands).startswith("torch:default")


def test_another_version_of_torch_leaves_the_ranking(blocked, use, operands):
    near = [entry(m, 32, 64, cublas=10.0, a=5.0) for m in (10, 12, 14, 16, 20)]
    use(table_of(*near, versions={"torch": "0.1"}))
    with pytest.warns(runtime.DispatchWarning, match=r"torch 0.1, now 2") as caught:
        assert is_right(*operands, matmul(*operands))
        matmul(operands[0][:8], operands[1])
    assert len(caught) == 1
    assert explain(*operands).startswith("blocked:a: ranking")


def test_a_provider_that_does_not_exist(use, operands):
    table = table_of(entry(16, 32, 64, cublas=10.0, a=5.0))
    (row,) = table.entries
    gone = dataclasses.replace(row, choice="gone:a", times_ns={"gone:a": 1.0, **row.times_ns})
    passed = dataclasses.replace(certificate("a"), candidate="gone:a")
    runtime.use_table(dataclasses.replace(table, entries=(gone,), certificates=(passed,)))
    assert is_right(*operands, matmul(*operands))
    assert explain(*operands).startswith("torch:default")


def test_a_damaged_table_is_refused_and_the_one_before_stays(blocked, use, operands, tmp_path):
    use(table_of(entry(16, 32, 64, cublas=10.0, a=5.0)))
    (tmp_path / "table.json").write_text("{")
    with pytest.raises(TableError, match="is damaged"):
        runtime.use_table(tmp_path / "table.json")
    assert is_right(*operands, matmul(*operands))
    assert blocked.launches


def test_the_variable_names_a_table(blocked, operands, tmp_path, monkeypatch):
    runtime._tables.clear()
    table = table_of(entry(16, 32, 64, cublas=10.0, a=5.0))
    write_table(table, tmp_path / "table.json")
    monkeypatch.setenv(runtime.TABLE_VARIABLE, str(tmp_path / "table.json"))
    runtime.reset()
    with pytest.warns(runtime.DispatchWarning, match="verified"):
        assert is_right(*operands, matmul(*operands))
    monkeypatch.setenv(runtime.TABLE_VARIABLE, str(tmp_path / "none.json"))
    runtime.reset()
    with pytest.warns(runtime.DispatchWarning, match="everything is computed by torch"):
        assert is_right(*operands, matmul(*operands))


def test_threads_share_what_was_built(blocked, use, operands):
    use(table_of(entry(16, 32, 64, cublas=10.0, a=5.0)))
    results, built = [], []
    build = blocked.build
    blocked.build = lambda *args: built.append(1) or build(*args)
    threads = [threading.Thread(target=lambda: results.append(matmul(*operands))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(is_right(*operands, one) for one in results)
    assert len(built) == 1


def test_versions_are_named():
    here = {"torch": "2", "driver": "580"}
    assert version_changes({"torch": "1", "driver": "580"}, here) == "torch 1, now 2"


def test_the_table_of_another_card_with_the_same_kernels_ranks_what_is_clearly_faster(
    blocked, use, operands, recwarn
):
    near = [entry(m, 32, 64, cublas=10.0, a=7.0) for m in (10, 12, 14, 16, 20)]
    use(table_of(*near, device="another CPU"))
    assert explain(*operands).startswith("blocked:a: ranking")
    use(table_of(*(entry(one.shape[0], 32, 64, cublas=10.0, a=9.8) for one in near),
                 device="another CPU"))  # fmt: skip
    assert explain(*operands).startswith("torch:default")
    assert not recwarn.list


def test_doctor_says_what_a_device_has(blocked, use):
    runtime.use_table(None)
    ((_, has_kernels, text, _),) = runtime.doctor_lines()
    assert not has_kernels and "torch computes everything" in text
    use(table_of(entry(16, 32, 64, cublas=10.0, a=5.0)))
    ((_, has_kernels, text, _),) = runtime.doctor_lines()
    assert has_kernels and "2 of 2" in text
    blocked.source = b"another"
    ((_, has_kernels, text, _),) = runtime.doctor_lines()
    assert not has_kernels and "0 of 2" in text


def test_workspaces_are_not_shared_by_streams_nor_kept_without_bound(
    blocked, use, operands, monkeypatch
):
    from .conftest import BlockedExecutable

    stream, built = [1], []
    build = blocked.build
    blocked.build = lambda *args: built.append(1) or build(*args)
    monkeypatch.setattr(runtime, "_stream", lambda target: stream[0])
    monkeypatch.setattr(BlockedExecutable, "workspace_bytes", 400 * 2**20, raising=False)
    use(table_of(entry(16, 32, 64, cublas=10.0, a=5.0)))
    for stream[0] in (1, 2, 1, 2):
        assert is_right(*operands, matmul(*operands))
    assert len(built) == 2
    for stream[0] in (3, 4):
        assert is_right(*operands, matmul(*operands))
    dispatcher = runtime.dispatcher_of(torch.device("cpu"))
    assert len(dispatcher._built) <= 2, "more than 1 GiB of workspaces is not kept"


def test_streams_share_a_kernel_without_a_workspace_also_in_a_captured_graph(
    blocked, use, operands, monkeypatch
):
    from .conftest import BlockedExecutable

    use(table_of(entry(16, 32, 64, cublas=10.0, a=5.0)))
    monkeypatch.setattr(BlockedExecutable, "workspace_bytes", 0, raising=False)
    matmul(*operands)
    before = len(blocked.launches)
    monkeypatch.setattr(runtime, "is_capturing", lambda target: True)
    assert is_right(*operands, matmul(*operands))
    assert len(blocked.launches) == before + 1
    monkeypatch.setattr(BlockedExecutable, "workspace_bytes", 8)
    runtime._notify()
    assert is_right(*operands, matmul(*operands))
    assert len(blocked.launches) == before + 1, "what it does not know how to capture is torch's"
