from __future__ import annotations

import subprocess
import sys

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.engine.schema import FolderLock


def test_one_holder_at_a_time(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(RequestError, match="in use by process"):
        FolderLock(tmp_path)
    lock.release()
    lock.release()
    FolderLock(tmp_path).release()


def test_a_dead_process_holds_no_lock(tmp_path):
    code = (
        "import os, sys; from pathlib import Path;"
        "from gemmetry.engine.schema import FolderLock;"
        "lock = FolderLock(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    FolderLock(tmp_path).release()
