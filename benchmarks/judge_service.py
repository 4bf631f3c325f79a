"""A load test of ``gemmetry judge serve``: right, wrong and hostile submissions from several
clients at once. None may be lost, and none may get another's verdict.

    python benchmarks/judge_service.py --count 200 --hostile 20
    python benchmarks/judge_service.py --flood 100000 --giant 1000 --idle 3000

The second line sends what no client should: so many requests as fast as they are answered, a body
of so many MiB, declared or in chunks, and so many connections that stay silent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from gemmetry.judge.service import TOKEN
from gemmetry.selftest.submissions import ATTACKS, TASK

SECRET = "a long random text"
TINY = "matmul_8x8x8_f32t_f32t_f32t"
BAD = frozenset({"wrong", "cheated", "refused"})


class Service:
    """A service in a process of its own."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gemmetry", "judge", "serve", "--port", "0", *options],
            stderr=subprocess.PIPE, text=True, env={**os.environ, TOKEN: SECRET},
        )  # fmt: skip
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"http://([\d.]+):(\d+)", line):
                self.host, self.port = found[1], int(found[2])
                break

    def call(self, path: str, document: Any = None, *, token: str = SECRET) -> tuple[int, Any]:
        """Status and answer of a request."""
        data = None if document is None else json.dumps(document).encode()
        headers = {"Authorization": f"Bearer {token}"}
        try:
            with urlopen(Request(f"http://{self.host}:{self.port}{path}", data, headers)) as found:
                return found.status, json.load(found)
        except HTTPError as error:
            return error.code, json.load(error)

    def verdict(self, key: str, limit_s: float = 7200) -> dict[str, Any]:
        """The answer to a submission, when it has one."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            status, found = self.call(f"/tasks/{key}")
            if status != 200 or found["state"] in ("done", "failed"):
                return {"status": status, **found}
            time.sleep(0.2)
        return {"state": "lost"}

    @property
    def resident(self) -> int:
        """Bytes of memory that the process has now."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096

    def close(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.communicate(timeout=20)


def order(text: str, **more: Any) -> dict[str, Any]:
    """A request to judge the text of a submission, as quickly as possible."""
    usual = {"task": TINY, "level": "quick", "time": False}
    return {**usual, "submission": text, **more}


class Case(NamedTuple):
    """A submission, what its verdict has to name, and which verdicts are allowed."""

    name: str
    order: dict[str, Any]
    function: str
    allowed: frozenset[str]


def cases(count: int, attacks: Sequence[str]) -> list[Case]:
    """`count` submissions in a fixed order: the attacks of these names spread among products, of
    which every third is wrong. Each has a function of its own name."""
    found, hostile = [], [one for one in ATTACKS if one.name in attacks]
    every = count // len(hostile) if hostile else 0
    for number in range(count):
        if hostile and number % every == every - 1:
            attack = hostile.pop()
            whole = {"task": TASK, "level": "standard", "time": True, "limit": 3}
            found.append(Case(attack.name, order(attack.text, **whole), "f", BAD))
            continue
        name, wrong = f"f{number}", number % 3 == 2
        text = f"def {name}(a, b):\n    return {'2 * ' if wrong else ''}(a @ b)\n"
        allowed = BAD if wrong else frozenset({"ok"})
        found.append(Case(name, order(text, function=name), name, allowed))
    return found


def judged(
    service: Service, given: Sequence[Case], clients: int = 8
) -> tuple[Counter[str], list[str]]:
    """Send all of them from several clients; how often each verdict occurred, and a line for each
    submission that was lost, failed, or got a verdict of another or one that is not allowed."""

    def sent(case: Case) -> str:
        while True:
            status, found = service.call("/evaluate", case.order)
            if status == 202:
                return str(found["id"])
            if status != 429:
                return f"refused with {status}"
            time.sleep(1)

    ends: Counter[str] = Counter()
    unexpected = []
    with ThreadPoolExecutor(clients) as pool:
        keys = list(pool.map(sent, given))
        assert len(set(keys)) == len(given), "two submissions have one id"
        for case, answer in zip(given, pool.map(service.verdict, keys), strict=True):
            verdict = answer.get("verdict", {})
            end = verdict.get("verdict") or answer.get("state", "lost")
            ends[end] += 1
            named = "submission" if case.function == "f" else f":{case.function}"
            is_its_own = re.search(rf"{named}(\.py)?$", verdict.get("command", ""))
            if end not in case.allowed or not is_its_own:
                unexpected.append(
                    f"{case.name}: {end}, not {'/'.join(sorted(case.allowed))}: {answer}"
                )
    return ends, unexpected


def _head(length: str) -> bytes:
    lines = ("POST /evaluate HTTP/1.1", "Host: x", f"Authorization: Bearer {SECRET}", length)
    return "\r\n".join([*lines, "", ""]).encode()


def flood(service: Service, count: int, connections: int = 8, at_once: int = 100) -> Counter[str]:
    """Send `count` submissions that do not end, `at_once` on each connection before its answers are
    read; how often each status came back."""
    body = json.dumps(order("while True: pass\n", limit=1)).encode()
    request = _head(f"Content-Length: {len(body)}") + body

    def one_connection(turns: int) -> Counter[str]:
        seen: Counter[str] = Counter()
        for _ in range(turns):
            with socket.create_connection((service.host, service.port), timeout=300) as connection:
                connection.sendall(request * at_once)
                answers = b""
                while answers.count(b"HTTP/1.1 ") < at_once or not answers.endswith(b"}"):
                    if not (part := connection.recv(2**16)):
                        break
                    answers += part
            seen.update(status.decode() for status in re.findall(rb"HTTP/1.1 (\d+)", answers))
        return seen

    with ThreadPoolExecutor(connections) as pool:
        turns = [count // connections // at_once] * connections
        return sum(pool.map(one_connection, turns), Counter())


def giant(service: Service, mib: int, *, chunked: bool) -> str:
    """The first line of the answer to a body of so many MiB; "" where it closes without one."""
    part = b" " * 2**20
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {mib * 2**20}"
    part = b"100000\r\n" + part + b"\r\n" if chunked else part
    with socket.create_connection((service.host, service.port), timeout=60) as connection:
        try:
            connection.sendall(_head(length))
            for _ in range(mib):
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it answered before the end
        try:
            return connection.recv(2**16).partition(b"\r\n")[0].decode()
        except ConnectionResetError:
            return ""


def abuse(options: argparse.Namespace) -> int:
    """Send what no client should; 1 if something else than an answer or a refusal came back."""
    service = Service("--waiting", "16", "--deadline", "60s")
    try:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (hard, hard)
        )  # of this process, not of the service
        service.call("/health")
        before, most, ends = service.resident, 0, []
        with contextlib.ExitStack() as stack:
            for _ in range(options.idle):
                try:
                    connecting = socket.create_connection((service.host, service.port), timeout=5)
                except OSError:
                    break
                stack.enter_context(connecting)
            ends.append(f"{options.idle} silent connections: {service.call('/health')[0]}")
        for chunked in (False, True) if options.giant else ():
            began = time.monotonic()
            line = giant(service, options.giant, chunked=chunked)
            ends.append(f"{options.giant} MiB{', chunked' * chunked}: {line or 'closed'}, "
                        f"{time.monotonic() - began:.1f} s")  # fmt: skip
            most = max(most, service.resident)
        if options.flood:
            began = time.monotonic()
            seen = flood(service, options.flood)
            took = time.monotonic() - began
            ends.append(
                f"{seen.total()} answers to {options.flood} requests in {took:.0f} s: {dict(seen)}"
            )
            assert set(seen) <= {"202", "429", "503"} and seen.total() == options.flood
        most = max(most, service.resident)
        ends.append(
            f"then: {service.call('/health')}, memory grew by {(most - before) / 2**20:.1f} MiB"
        )
        print("\n".join(ends))
    finally:
        service.close()
    return 0


def main() -> int:
    """Run the load test and print how it ended; 1 if a submission was lost or misjudged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flood", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--giant", type=int, default=0, metavar="MIB")
    parser.add_argument("--idle", type=int, default=0, metavar="CONNECTIONS")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--hostile", type=int, default=20)
    options = parser.parse_args()
    if options.flood or options.giant or options.idle:
        return abuse(options)
    service = Service("--waiting", "64")
    try:
        before, began = service.resident, time.monotonic()
        names = [one.name for one in ATTACKS[:: max(len(ATTACKS) // options.hostile, 1)]]
        given = cases(options.count, names[: options.hostile])
        ends, unexpected = judged(service, given)
        grown = (service.resident - before) / 2**20
        hostile = sum(case.order["level"] == "standard" for case in given)
        print(f"{len(given)} submissions, {hostile} hostile, {time.monotonic() - began:.0f} s")
        print(", ".join(f"{end}: {count}" for end, count in sorted(ends.items())))
        print(f"memory of the service grew by {grown:.1f} MiB")
        print("\n".join(["unexpected:", *(unexpected or ["none"])]))
    finally:
        service.close()
    return int(bool(unexpected))


if __name__ == "__main__":
    raise SystemExit(main())
