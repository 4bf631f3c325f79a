from __future__ import annotations

import dataclasses

from gemmetry.domain.record import Environment
from gemmetry.tuning.dispatcher.table import dispatch_of, refusals, source_digest, why_refused

from .conftest import Blocked, certificate
from .test_building import built, record

NAME = "matmul_64x64x64_bf16t_bf16n_bf16t"


def test_a_digest_follows_the_sources_and_not_the_versions(monkeypatch, tmp_path):
    provider = Blocked()
    dispatch = dispatch_of(NAME, "blocked:a", "cpu", lambda _: provider)
    first = source_digest(provider, dispatch)
    provider.source = b"sourcf"
    changed = source_digest(provider, dispatch, kept=tmp_path)
    assert changed != first, "nothing was kept"
    (tmp_path / "kernel.txt").write_bytes(b"source")
    assert source_digest(provider, dispatch, kept=tmp_path) == first, "what was kept was verified"
    monkeypatch.setattr(Blocked, "versions", lambda self: {"compiler": "13.1"})
    assert source_digest(provider, dispatch) == changed


def test_a_table_built_elsewhere_fits_where_the_versions_are_those_of_the_verification(monkeypatch):
    """The machine that builds the table has a third version."""
    verified = Environment(packages={"compiler": "12.8", "numpy": "2.0", "torch": "2.13.0"})
    versions = {"compiler": "13.5"}
    monkeypatch.setattr(Blocked, "versions", lambda self: versions)
    one = dataclasses.replace(record("64x64x64", "blocked:a", 1.0), environment_id=verified.id)
    table = built(one, environment=verified)
    (passed,) = table.certificates
    assert passed.versions == verified.packages
    provider = Blocked()

    def reason():
        return why_refused(passed, "cpu", lambda _: provider)

    for versions["compiler"] in ("12.9", "13.5"):
        assert {"compiler", "12.8", versions["compiler"]} <= {*reason().replace(",", "").split()}
    versions["compiler"] = "12.8"
    assert reason() == ""
    provider.source = b"another"
    assert "source" in reason()
    assert refusals(table, lambda _: provider) == {reason(): 1}


def test_a_certificate_of_version_1_has_its_versions_in_the_digest(monkeypatch):
    provider, versions = Blocked(), {"compiler": "12.8"}
    monkeypatch.setattr(Blocked, "versions", lambda self: versions)
    dispatch = dispatch_of(NAME, "blocked:a", "cpu", lambda _: provider)
    old = certificate("a", digest=source_digest(provider, dispatch, versions=versions))
    for versions["compiler"], is_refused in (("12.8", False), ("12.9", True)):
        assert bool(why_refused(old, "cpu", lambda _: provider)) is is_refused


def test_the_cuda_kernels_have_digests_without_a_gpu():
    from gemmetry.domain.dispatch import parse_operation
    from gemmetry.providers.cuda_provider import catalogue
    from gemmetry.providers.cuda_provider.provider import PROVIDER

    provider, operation = PROVIDER(), parse_operation(NAME)
    names = [one.name for kernel in catalogue.kernels() for one in kernel.legal(operation)[:1]]
    made = [dispatch_of(NAME, f"cuda:{one}", "cuda-sm_90", lambda _: provider) for one in names]
    digests = {source_digest(provider, one) for one in made}
    assert len(digests) == len(names) > 1, "every kernel has a source of its own"
