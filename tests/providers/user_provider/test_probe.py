from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.providers.user_provider import kernel as _user_probe
from gemmetry.providers.user_provider.kernel import inspect_kernels, load_kernel

SOURCE = """
print("noise on standard output")
CONFIGURATIONS = [{"tile": 32, "fast": True}, {"tile": 64, "rate": 0.5, "order": "ij"}]
def f(a, b, /, tile, *, fast=False, rate=1.0, order="", out=None, **others): ...
def g(a, b, tile, **others): ...
"""


def test_another_process_reports_what_importing_here_would(tmp_path):
    path = tmp_path / "my kernel.py"
    path.write_text(SOURCE)
    texts = [f"{path}:f", f"{path}:g"]
    for inspected, text in zip(inspect_kernels(texts, prefix=True), texts, strict=True):
        loaded = load_kernel(text, prefix=True)
        assert str(inspected) == str(loaded)
        for name in ("configurations", "parameters", "arrays", "digest"):
            assert getattr(inspected, name) == getattr(loaded, name), name
        for keywords in ([], ["bias"], ["out"]):
            assert inspected.refusal(keywords) == loaded.refusal(keywords)


def test_configurations_of_the_request_are_named_and_checked(tmp_path):
    path = tmp_path / "k.py"
    path.write_text(SOURCE)
    (inspected,) = inspect_kernels([f"{path}:g"], configurations=[{"tile": 7}])
    assert inspected.configurations == {"tile7": {"tile": 7}}
    with pytest.raises(RequestError, match="'tile'"):
        inspect_kernels([f"{path}:g"], configurations=[{"stages": 7}])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
         "ended the process with SIGSEGV"),
        ("import os, sys\nprint('last words', flush=True)\nos._exit(7)",
         r"ended the process with exit status 7\n +last words"),
        ("import os\nos._exit(0)", "ended the process with exit status 0"),
        ("class Own(Exception): ...\nraise Own('boom')", r"raised Own: boom \(k.py line 2\)"),
        ("def h(a, b): ...", "unknown function 'f'"),
    ],
)  # fmt: skip
def test_a_file_that_ends_its_process_is_a_mistake_of_the_request(tmp_path, source, words):
    path = tmp_path / "k.py"
    path.write_text(source)
    with pytest.raises(RequestError, match=words):
        inspect_kernels([f"{path}:f"])


CHILD = """
import subprocess
child = subprocess.Popen(['sleep', '900'])
open('{}', 'w').write(str(child.pid))
"""


def test_a_file_that_never_ends_is_given_up_with_its_children(tmp_path, monkeypatch):
    path = tmp_path / "k.py"
    path.write_text(
        f"print('waiting', flush=True)\n{CHILD.format(tmp_path / 'child')}"
        f"import time\ntime.sleep(900)\nopen({str(tmp_path / 'end')!r}, 'w')\n"
    )
    monkeypatch.setattr(_user_probe, "_IMPORT_SECONDS", 3.0)
    with pytest.raises(RequestError, match=r"took more than 3 s\n +waiting"):
        inspect_kernels([f"{path}:f"])
    assert not (tmp_path / "end").exists()
    assert_ended(tmp_path / "child")


def test_a_group_is_ended_while_its_leader_still_holds_the_number(tmp_path, monkeypatch):
    path = tmp_path / "k.py"
    # The child keeps the output open.
    path.write_text(f"{CHILD.format(tmp_path / 'child')}def f(a, b): ...\n")
    leaders = []
    killpg = os.killpg

    def watched(group, number):
        leaders.append(os.waitid(os.P_PID, group, os.WEXITED | os.WNOWAIT))  # raises after a reap
        killpg(group, number)

    monkeypatch.setattr(_user_probe, "subprocess", subprocess)  # a child of this process
    monkeypatch.setattr(_user_probe.os, "killpg", watched)
    inspect_kernels([f"{path}:f"])
    assert len(leaders) == 1
    assert_ended(tmp_path / "child")


def assert_ended(file: Path) -> None:
    """The process whose number is in the file ends soon."""
    stat, until = Path(f"/proc/{file.read_text()}/stat"), time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] in "ZX":
                return
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail("the process is still running")
