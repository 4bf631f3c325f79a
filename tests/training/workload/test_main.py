from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from gemmetry.sweeps.workload.__main__ import _end, main


@pytest.mark.parametrize("on_gpu", [False, True])
def test_only_with_a_gpu_the_interpreter_is_taken_down(monkeypatch, on_gpu):
    def end(status: int) -> None:
        raise KeyError(status)

    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: on_gpu))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(SystemExit if on_gpu else KeyError) as ended:
        _end(3)
    assert ended.value.args == (3,)


def test_a_mistake_is_found_before_torch_is_loaded(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("RANK", "5")
    status = main(["--output", str(tmp_path), "--override", "model.num_heads=5"])
    assert status == 2
    error = capsys.readouterr().err
    assert error.startswith("rank 5: error: ")
    assert "model.num_heads 5" in error
    assert "\nhint: " in error
