from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.specs.text_file import read_text_file


def test_reads_a_file_and_where_it_may_standard_input(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfeins \xc3\xa4")
    assert read_text_file(path, "the file", hint="") == "eins ä"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"zwei")))
    assert read_text_file(Path("-"), "the file", hint="", standard_input=True) == "zwei"
    with pytest.raises(RequestError, match="the file - does not exist"):
        read_text_file(Path("-"), "the file", hint="")


def test_every_cause_has_its_words(tmp_path, monkeypatch):
    """An error names the file, the cause and the next step; none shows an error number."""
    (tmp_path / "binary").write_bytes(b"ab\xff\xfe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "secret").write_text("x")

    def refused(name):
        with pytest.raises(RequestError) as caught:
            read_text_file(tmp_path / name, "the file", hint="Do this.")
        assert caught.value.hint == "Do this."
        assert "Errno" not in caught.value.message and "codec" not in caught.value.message
        return caught.value.message.replace(f"{tmp_path}{os.sep}", "")

    assert refused("none") == "the file none does not exist"
    assert refused("secret/none") == "the file secret/none does not exist"
    assert refused("binary") == "cannot read the file binary: it is not UTF-8 text (byte 3)"
    assert refused("folder") == "cannot read the file folder: it is a folder, not a file"
    assert refused("x" * 400).endswith(os.strerror(errno.ENAMETOOLONG))

    def forbid(_self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", forbid)
    assert refused("secret") == "cannot read the file secret: you have no permission to read it"
