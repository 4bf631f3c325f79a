from __future__ import annotations

import inspect
import threading
from pathlib import Path

import pytest

from gemmetry.domain import contracts
from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import (
    Configuration,
    Dispatch,
    Target,
    TargetKind,
    parse_operation,
)
from gemmetry.domain.errors import StorageError
from gemmetry.providers.base import (
    BaseProvider,
    compute_capability,
    locked,
    output_folder,
    write_atomically,
)

CPU = Target(TargetKind.CPU)
OPERATION = parse_operation("matmul_8x8x8_f32t_f32t_f32t")


class Smallest(BaseProvider):
    """The four methods that make a provider."""

    name = "smallest"

    def available(self):
        return None

    def supports(self, operation, target):
        return None

    def configurations(self, operation, target):
        yield Configuration("default")
        yield Configuration("other", {"x": 1})

    def build(self, dispatch, workspace):
        raise NotImplementedError


def test_four_methods_are_a_provider():
    provider = Smallest()
    for name, value in vars(contracts.Provider).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            assert callable(getattr(provider, name)), name
    found = provider.parse_configuration("other", OPERATION, CPU)
    assert found is not None and found.parameters == {"x": 1}
    assert provider.parse_configuration("another", OPERATION, CPU) is None

    class Incomplete(BaseProvider):
        name = "incomplete"

    with pytest.raises(TypeError, match="Incomplete"):
        Incomplete()  # type: ignore[abstract]


def test_without_ahead_of_time_work_compile_reports_no_error(tmp_path):
    provider = Smallest({"a": 1})
    workspace = Workspace(generated=tmp_path)
    dispatches = [Dispatch(OPERATION, Configuration(name), "smallest", CPU) for name in "xy"]
    compiled = provider.compile(dispatches, workspace)
    assert [(item.dispatch, item.error) for item in compiled] == [(one, None) for one in dispatches]
    assert not provider.compiles_ahead(CPU)
    assert list(provider.generate(dispatches, workspace)) == []
    place = tmp_path / "smallest" / "matmul" / "matmul_8x8x8_f32t_f32t_f32t"
    assert output_folder(tmp_path, dispatches[0]) == place
    assert provider.seconds_per_launch(dispatches[0]) is None
    assert provider.targets() == (CPU,)
    assert provider.versions() == {}
    assert provider.options == {"a": 1}
    assert Smallest().options == {}


def test_compute_capabilities_are_numbers():
    for architecture, number in {"sm_90": 90, "sm_100a": 100, "gfx942": 0, "": 0}.items():
        assert compute_capability(architecture) == number


def test_files_are_written_whole(tmp_path: Path) -> None:
    path = write_atomically(tmp_path / "a" / "b.txt", b"content")
    assert path.read_bytes() == b"content"
    assert [entry.name for entry in path.parent.iterdir()] == ["b.txt"]
    with pytest.raises(StorageError, match=r"b\.txt"):
        write_atomically(path / "c.txt", b"")


def test_a_folder_is_changed_by_one_at_a_time(tmp_path: Path) -> None:
    order = []

    def change(name: str) -> None:
        with locked(tmp_path / "a"):
            order.append(name)

    with locked(tmp_path / "a"):
        second = threading.Thread(target=change, args=("second",))
        second.start()
        second.join(0.05)
        order.append("first")
    second.join()
    assert order == ["first", "second"]
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"), locked(tmp_path / "file"):
        pass
