from __future__ import annotations

import errno
import gzip
import os
import random
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import open_decompressed, open_text

CONTENT = random.Random(1).randbytes(3_000_000) + b"x" * 2_000_000


def content(path: Path, size: int = 1 << 20) -> bytes:
    parts = []
    with open_decompressed(path) as file:
        while part := file.read(size):
            parts.append(part)
    return b"".join(parts)


def test_plain_and_gzip_and_members_one_after_the_other(tmp_path):
    plain, packed, members = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    plain.write_bytes(CONTENT)
    packed.write_bytes(gzip.compress(CONTENT))
    members.write_bytes(gzip.compress(CONTENT[:1000]) + gzip.compress(CONTENT[1000:]) + bytes(512))
    for path in (plain, packed, members):
        assert content(path) == CONTENT
    assert content(packed, 777_777) == CONTENT
    with open_decompressed(packed) as file:
        assert file.read() == CONTENT


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_in_any_encoding_that_programs_write(tmp_path, encoding):
    plain, packed = tmp_path / "a", tmp_path / "b"
    plain.write_bytes("a µs\r\nb\n".encode(encoding))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        with open_text(path) as text:
            assert list(text) == ["a µs\r\n", "b\n"]


def test_zstd_with_several_frames(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    compress = zstandard.ZstdCompressor().compress
    path = tmp_path / "trace.json.zst"
    path.write_bytes(compress(CONTENT[:1000]) + compress(CONTENT[1000:]))
    assert content(path) == CONTENT
    path.write_bytes(compress(b"x" * 10_000)[:12] + b"\xff" * 1000)
    with pytest.raises(RequestError, match="damaged"):
        content(path)


@pytest.mark.parametrize("cut", [3, 12, 100_000])
def test_a_gzip_file_that_is_cut_short_gives_what_it_has_and_then_an_error(tmp_path, cut):
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(CONTENT)[:cut])
    got = b""
    with open_decompressed(path) as file, pytest.raises(OSError, match="cut short"):
        while part := file.read(1 << 16):
            got += part
    assert CONTENT.startswith(got)
    assert len(got) >= cut - 40_000
    packed = bytearray(gzip.compress(CONTENT))
    packed[1_000_000:1_000_100] = bytes(100)
    path.write_bytes(packed)
    with pytest.raises(RequestError, match="damaged"):
        content(path)


@pytest.mark.parametrize(("suffix", "most"), [("gz", 128 << 20), ("zst", 64 << 20)])
def test_a_bomb_is_not_unpacked(tmp_path, suffix, most):
    path = tmp_path / f"bomb.{suffix}"
    if suffix == "gz":
        path.write_bytes(gzip.compress(bytes(200 << 20)))
    else:
        zstandard = pytest.importorskip("zstandard")
        path.write_bytes(zstandard.ZstdCompressor().compress(bytes(200 << 20)))
    got = 0
    with open_decompressed(path) as file, pytest.raises(OSError, match="bomb"):
        while part := file.read(1 << 20):
            got += len(part)
    assert 8 << 20 < got < most


def test_what_is_not_a_regular_file(tmp_path, monkeypatch):
    """No call waits for a writer or reads without end."""
    os.mkfifo(tmp_path / "pipe")
    # The name of a socket may have 107 bytes.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for path, what in (
            (tmp_path / "pipe", "a pipe"), (tmp_path / "socket", "a socket"),
            (Path("/dev/zero"), "a device"), (tmp_path, "directory"),
            (tmp_path / "no", os.strerror(errno.ENOENT)),
        ):  # fmt: skip
            with pytest.raises(RequestError, match=what) as raised, open_decompressed(path):
                pass
            assert str(path) in str(raised.value)
            assert raised.value.hint


def test_a_file_that_fails_while_it_is_read_gives_what_came_before(tmp_path, monkeypatch):
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(CONTENT))
    with open_decompressed(path) as file:
        whole = file._file.read
        reads = iter([whole, whole, None])

        def read(size):
            now = next(reads)
            if now is None:
                raise OSError(5, "Input/output error")
            return now(size)

        monkeypatch.setattr(file, "_file", SimpleNamespace(read=read))
        got = b""
        with pytest.raises(OSError, match="Input/output error"):
            while part := file.read(1 << 16):
                got += part
    assert len(got) > 400_000
    assert CONTENT.startswith(got)
