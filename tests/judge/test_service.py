"""The service and the tools: what clients send, how much, and what others' submissions do to it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("starlette", reason="starlette is not installed")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="submissions are confined on Linux")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from judge_service import SECRET, TINY, Service, cases, judged, order  # noqa: E402

PRODUCT = "def f(a, b):\n    return a @ b\n"
HOSTILE = ("fork_that_outlives", "kills_parent", "floods")


def _sent(service: Service, head: str, body: bytes = b"", times: int = 1) -> bytes:
    """The first line of the answer to raw bytes."""
    with socket.create_connection((service.host, service.port), timeout=60) as connection:
        try:
            connection.sendall(head.encode())
            for _ in range(times):
                connection.sendall(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it answered before the end
        try:
            return connection.recv(2**16).partition(b"\r\n")[0]
        except ConnectionResetError:
            return b""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "problem.py").write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.relu()\n\ndef get_inputs():\n    return [torch.randn(8, 8)]\n"
    )
    running = Service("--tasks", str(folder), "--waiting", "16", "--deadline", "60s")
    yield running
    running.close()


def test_none_is_lost_and_none_sees_another(service) -> None:
    ends, unexpected = judged(service, cases(6, HOSTILE))
    assert unexpected == []
    assert set(ends) <= {"ok", "wrong", "cheated", "refused"} and ends.total() == 6, ends
    assert ends["ok"] == 2
    assert service.call("/health")[1]["waiting"] == {"cpu": 0}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (order("def f(:\n"), "Python"), (order("import torch\nraise SystemExit(3)\n"), ""),
        (order(PRODUCT, task="problem.py", function="f"), ""),
        (order("{}", form="json"), "Solution"),
    ],
)  # fmt: skip
def test_each_ends_with_an_answer_of_its_own(service, given, word) -> None:
    status, found = service.call("/evaluate", given)
    assert status == 202
    found = service.verdict(found["id"])
    assert word in (found["error"] if word else "")
    assert found["state"] == "failed" or found["verdict"]["verdict"] != ""


@pytest.mark.parametrize(
    "given",
    [
        [], {}, {"task": 3}, {**order(PRODUCT), "unknown": 1}, order(PRODUCT, limit=-1),
        order(PRODUCT, task="/etc/passwd"), order(PRODUCT, task="../problem.py"),
        order(PRODUCT, task="matmul_90000x90000x90000_f32t_f32t_f32t"),
        order(PRODUCT, function="f --level"), order(PRODUCT, device="cuda:9"),
    ],
)  # fmt: skip
def test_what_is_no_order_is_refused(service, given) -> None:
    status, found = service.call("/evaluate", given)
    assert status == 400 and found["error"]


def test_without_the_token_there_is_nothing(service) -> None:
    assert service.host == "127.0.0.1"
    for path, document in (("/evaluate", order(PRODUCT)), ("/tasks/x", None)):
        for token in ("another", ""):
            assert service.call(path, document, token=token)[0] == 401
    assert service.call("/tasks/x")[0] == 404


def test_memory_does_not_grow_with_what_is_sent(service) -> None:
    head = f"POST /evaluate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n"
    service.call("/health")
    before = service.resident
    assert b" 413 " in _sent(service, f"{head}Content-Length: {10**9}\r\n\r\n", b" " * 2**20, 1000)
    chunks = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    chunked = _sent(service, f"{head}Transfer-Encoding: chunked\r\n\r\n", chunks, 1000)
    assert chunked == b"" or b" 413 " in chunked
    deep = b"[" * 10**6
    assert b" 400 " in _sent(service, f"{head}Content-Length: {len(deep)}\r\n\r\n", deep)
    # More than it has places for, of which each gets an answer.
    one = json.dumps(order("while True: pass\n", limit=1)).encode()
    request = f"{head}Content-Length: {len(one)}\r\n\r\n".encode() + one
    seen: Counter[bytes] = Counter()
    for _ in range(3):
        with socket.create_connection((service.host, service.port), timeout=60) as connection:
            connection.sendall(request * 100)
            answers = b""
            while answers.count(b"HTTP/1.1 ") < 100 or not answers.endswith(b"}"):
                answers += connection.recv(2**16)
        seen.update(re.findall(rb"HTTP/1.1 (\d+)", answers))
    assert set(seen) == {b"202", b"429"}
    assert seen.total() == 300 and seen[b"202"] < 30
    assert service.call("/health")[0] == 200
    assert service.resident - before < 50 * 2**20


def test_tools_answer_briefly(tmp_path, monkeypatch) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed")
    from mcp.client.client import Client

    from gemmetry.judge.service import tools

    monkeypatch.chdir(tmp_path)
    report = Path(__file__).parents[1] / "data/counters/planted_h200/gemms.csv.gz"
    measured = {"shapes": "16x16x16", "dtypes": "f32", "providers": "numpy"}
    calls = [
        ("judge", {"submission": PRODUCT, "task": TINY, "level": "quick", "time": False}),
        ("explain", {"report": str(report)}),
        ("profile", {"experiment": "a", **measured}),
        ("compare", {"before": "a", "after": "a"}),
        ("judge", {"submission": PRODUCT, "task": "no such task"}),
        ("explain", {"report": "--help"}),
    ]

    async def answers():
        async with Client(tools(), mode="legacy") as client:
            listed = await client.list_tools()
            assert {one.name for one in listed.tools} == {name for name, _ in calls}
            assert all(one.description for one in listed.tools)
            return [await client.call_tool(name, given) for name, given in calls]

    found = asyncio.run(answers())
    assert [one.is_error for one in found] == [False] * 4 + [True] * 2
    texts = [one.content[0].text for one in found]
    assert all(len(text.encode()) <= 4096 for text in texts)
    judged, explained, profiled, compared = map(json.loads, texts[:4])
    assert judged["verdict"] == "ok"
    assert explained["launches"][0]["verdict"]["claim"]
    assert profiled["records"][0]["outcome"] == "ok"
    assert compared["candidates"][0]["changes"]
