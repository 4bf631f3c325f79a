from __future__ import annotations

import errno
import io
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import MOST_TEXT_BYTES, read_text_file


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
    assert "binary" in (message := refused("binary")) and "byte 3" in message
    assert "the file folder" in (message := refused("folder")) and "not a file" in message
    assert refused("x" * 400).endswith(os.strerror(errno.ENAMETOOLONG))
    (tmp_path / "large").write_bytes(bytes(MOST_TEXT_BYTES + 1))
    assert "the file large" in (message := refused("large")) and "4 MiB" in message

    def forbid(*_arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbid)
    assert "the file secret" in (message := refused("secret")) and "permission" in message


def test_a_pipe_is_read_to_its_end_and_waits_for_nobody(tmp_path):
    """Shells pass what a program prints as a pipe: ``--spec <(program)``."""
    os.mkfifo(tmp_path / "pipe")
    assert read_text_file(tmp_path / "pipe", "the file", hint="") == ""
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    os.close(reader)
    found = []
    thread = threading.Thread(
        target=lambda: found.append(read_text_file(tmp_path / "pipe", "the file", hint=""))
    )
    thread.start()
    time.sleep(0.1)
    for part in (b"a: ", b"1"):
        os.write(writer, part)
    os.close(writer)
    thread.join(10)
    assert found == ["a: 1"]
