from __future__ import annotations

import numpy as np
import pytest

from gemmetry.hardware import host_device as blas_threads


def test_the_number_of_threads_can_be_set_and_read():
    before = blas_threads.blas_threads()
    if before is None:
        pytest.skip(f"{blas_threads.blas_name()} does not report its number of threads")
    try:
        for count in (1, 2, 1):
            assert blas_threads.set_blas_threads(count)
            assert blas_threads.blas_threads() == count
            assert np.allclose(np.ones((64, 64)) @ np.ones((64, 64)), 64)
    finally:
        blas_threads.set_blas_threads(before)


def test_the_blas_is_named():
    assert blas_threads.blas_name()


def test_libraries_are_found_in_the_maps_with_numpys_first(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 00:00 0 [vdso]\n"
        "7f00-7f01 r-xp 00000000 08:01 12   /usr/lib/libopenblas.so.0\n"
        "7f00-7f01 r-xp 00000000 08:01 12   /usr/lib/libc.so.6\n"
        "7f00-7f01 r-xp 00000000 08:01 12   /x/numpy.libs/libscipy_openblas64_-1.so\n"
        "7f00-7f01 r--p 00000000 08:01 12   /x/numpy.libs/libscipy_openblas64_-1.so\n"
    )
    assert blas_threads._loaded_libraries(maps) == [
        "/x/numpy.libs/libscipy_openblas64_-1.so",
        "/usr/lib/libopenblas.so.0",
    ]
    assert blas_threads._loaded_libraries(tmp_path / "none") == []


def test_a_blas_without_information_is_not_an_error(monkeypatch):
    monkeypatch.setattr(blas_threads, "_thread_functions", lambda: None)
    assert blas_threads.blas_threads() is None
    assert blas_threads.set_blas_threads(2) is False
