from __future__ import annotations

from gemmetry.tuning.dispatcher.building import dispatch_of
from gemmetry.tuning.dispatcher.table import is_unchanged, source_digest

from .conftest import Blocked

NAME = "matmul_64x64x64_bf16t_bf16n_bf16t"


def test_a_digest_follows_the_source_and_the_versions(monkeypatch):
    provider = Blocked()
    dispatch = dispatch_of(NAME, "blocked:a", "cpu", lambda _: provider)
    first = source_digest(provider, dispatch)
    assert source_digest(provider, dispatch) == first
    provider.source = b"sourcf"
    changed = source_digest(provider, dispatch)
    monkeypatch.setattr(Blocked, "versions", lambda self: {"compiler": "13.1"})
    assert len({first, changed, source_digest(provider, dispatch)}) == 3


def test_kept_sources_are_compared(tmp_path):
    provider = Blocked()
    dispatch = dispatch_of(NAME, "blocked:a", "cpu", lambda _: provider)
    assert is_unchanged(provider, dispatch, tmp_path), "nothing was kept"
    (tmp_path / "kernel.txt").write_bytes(b"source")
    assert is_unchanged(provider, dispatch, tmp_path)
    (tmp_path / "kernel.txt").write_bytes(b"another")
    assert not is_unchanged(provider, dispatch, tmp_path)


def test_the_cuda_kernels_have_digests_without_a_gpu():
    from gemmetry.domain.names import parse_operation
    from gemmetry.providers.cuda_provider import catalogue
    from gemmetry.providers.cuda_provider.provider import PROVIDER

    provider, operation = PROVIDER(), parse_operation(NAME)
    names = [one.name for kernel in catalogue.kernels() for one in kernel.legal(operation)[:1]]
    digests = {
        source_digest(provider, dispatch_of(NAME, f"cuda:{name}", "cuda-sm_90", lambda _: provider))
        for name in names
    }
    assert len(digests) == len(names) > 1, "every kernel has a source of its own"
