from __future__ import annotations

import stat

import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.engine.agents.handshake import is_proof, proof, read_token, write_token

TOKEN = b"0123456789abcdef"
ARGUMENTS = ("agent", b"d" * 32, b"a" * 32, "1.0", "node")


def test_a_proof_depends_on_everything_that_it_is_over():
    right = proof(TOKEN, *ARGUMENTS)
    assert is_proof(right, proof(TOKEN, *ARGUMENTS))
    others = [
        proof(b"f" * 16, *ARGUMENTS),
        *(proof(TOKEN, *ARGUMENTS[:i], type(ARGUMENTS[i])(), *ARGUMENTS[i + 1 :])
          for i in range(len(ARGUMENTS))),
        proof(TOKEN, "agent", b"a" * 32, b"d" * 32, "1.0", "node"),
        proof(TOKEN, "agent", b"d" * 32, b"a" * 32, "1.0n", "ode"),
    ]  # fmt: skip
    assert len({right, *others}) == 1 + len(others)


def test_a_token_that_was_written_is_private_and_reads_back(tmp_path):
    path = tmp_path / "new" / "token"
    first, second = write_token(path), write_token(path)
    assert first != second
    assert read_token(path, is_private=True) == second
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_that_others_can_read_is_refused_where_it_must_be_private(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(TOKEN + b"\n")
    path.chmod(0o644)
    assert read_token(path) == TOKEN
    with pytest.raises(RequestError, match="all users of this machine") as caught:
        read_token(path, is_private=True)
    assert f"chmod 600 {path}" in caught.value.hint


def test_a_token_that_is_short_or_missing_is_refused(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(b"  " + TOKEN[1:] + b"\n" * 10)
    with pytest.raises(RequestError, match="has 15 bytes, and at least 16"):
        read_token(path)
    with pytest.raises(RequestError, match="cannot read the token"):
        read_token(tmp_path / "none")


def test_a_token_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write the token"):
        write_token(tmp_path / "file" / "token")
