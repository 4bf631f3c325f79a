"""Judgements for others: a service over HTTP with a queue for each device, and tools for models by
the Model Context Protocol.

Every judgement is a process of its own, ``gemmetry judge run``: nothing that a submission does ends
the service or is seen by another. What is kept is bounded: submissions that wait lie in
files, and verdicts are brief documents, of which the oldest are dropped.

A task is trusted code, so clients only name one: an operation, or a file of the service's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import resource
import secrets
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import RequestError
from gemmetry.domain.files import remove
from gemmetry.results.json_text import brief, encoded
from gemmetry.results.tables import check_installed
from gemmetry.results.texts import cut

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

TOKEN = "GEMMETRY_JUDGE_TOKEN"
"""Environment variable with the token of the service."""

MOST_BYTES = 2**28
"""Bytes of the matrices of an operation that clients may name."""
MOST_FLOPS = 2**36

_MOST_READING = 64
"""Requests whose bodies are read at the same time."""
_MOST_CONNECTIONS = 512
"""Maximum number of open connections; each takes a descriptor."""
_MOST_OUTPUT = 2**22
"""Maximum number of kept bytes of a process's output."""
_BUSY = {"retry-after": "5"}


class Order(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Client's request."""

    task: str
    submission: str
    """Source of the submission."""
    form: Literal["py", "cu", "json"] = "py"
    function: str = ""
    device: str = ""
    """One of the service's; "": its first."""
    level: Literal["quick", "standard", "paranoid"] = "standard"
    seed: int | None = None
    time: bool = True
    limit: Annotated[float, msgspec.Meta(gt=0, le=600)] = 20.0
    """Seconds for a batch of launches."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of what the service accepts and keeps."""

    devices: tuple[str, ...] = ("cpu",)
    tasks: Path | None = None
    """Folder of the tasks that clients may name besides operations."""
    request_bytes: int = 2**20
    request_s: float = 10.0
    """Seconds for reading a request."""
    waiting: int = 256
    """Submissions that wait for a device."""
    kept: int = 1000
    """Verdicts."""
    deadline_s: float = 600.0
    """Seconds for a judgement."""


def arguments_of(order: Order, file: Path, tasks: Path | None, device: str = "cpu") -> list[str]:
    """The words after ``gemmetry`` that judge the submission in `file`.

    Raises:
        RequestError: the function is no name, or the task is none that clients may name.
    """
    if order.function and not order.function.isidentifier():
        raise RequestError(f"{cut(order.function, 80)!r} is no name of a function")
    named = f"{file.name}:{order.function}" if order.function else file.name
    seed = [] if order.seed is None else [f"--seed={order.seed}"]
    return [
        "judge", "run", f"--task={_task(order.task, tasks)}", f"--level={order.level}", *seed,
        f"--limit={order.limit}", f"--device={device}", "--time" if order.time else "--no-time",
        "--brief", "--json", "--", named,
    ]  # fmt: skip


def _task(name: str, tasks: Path | None) -> str:
    """The task called `name`: a path below the folder of tasks, or an operation."""
    if tasks is not None and name:
        place = (tasks / name).resolve()
        if place.is_relative_to(tasks.resolve()) and place.exists():
            return str(place)
    operation = parse_operation(name)
    if operation.bytes > MOST_BYTES or operation.flops > MOST_FLOPS:
        raise RequestError(
            f"the task {cut(name, 80)} is too large for this service",
            hint=f"Matrices have at most {MOST_BYTES:,} bytes, a product {MOST_FLOPS:,} FLOPs.",
        )
    return name


_OF_RECORDS = ("dispatch", "provider", "outcome", "reason", "accuracy_class", "median_ns",
               "ci_low_ns", "ci_high_ns", "gflops", "roofline_fraction", "marks")  # fmt: skip
"""Columns of records that a brief document has."""


async def run_gemmetry(
    arguments: Sequence[str], *, folder: Path, limit_s: float, variables: Mapping[str, str] = {}
) -> dict[str, Any]:
    """The document that ``gemmetry ARGUMENTS`` prints in a process of its own, in at most 4 KB;
    ``error`` where there is none."""
    environment = {name: text for name, text in os.environ.items() if name != TOKEN}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gemmetry", *arguments, cwd=folder, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        env={**environment, **variables},
    )  # fmt: skip
    try:
        async with asyncio.timeout(limit_s):
            out, errors, _ = await asyncio.gather(
                _start_of(process.stdout), _start_of(process.stderr), process.wait()
            )
    except TimeoutError:
        return {"error": f"it did not end within {limit_s:g} s"}
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    try:
        found = json.loads(out)
        if records := found.get("records"):
            found["records"] = [{name: one.get(name) for name in _OF_RECORDS} for one in records]
        return brief(found)
    except (ValueError, RecursionError, AttributeError):
        text = cut(errors.decode(errors="replace").strip(), 2000)
        return {"error": text or f"it ended with {process.returncode}, without a word"}


async def _start_of(stream: asyncio.StreamReader | None) -> bytes:
    """Beginning of the output, as far as it is kept; the rest is read and dropped."""
    kept = b""
    while stream is not None and (part := await stream.read(2**16)):
        kept += part[: _MOST_OUTPUT - len(kept)]
    return kept


@dataclass(slots=True)
class _Job:
    key: str
    folder: Path
    arguments: list[str]
    device: str
    state: str = "waiting"
    answer: dict[str, Any] = field(default_factory=dict)


class Service:
    """The queues, the judgements that run, and the verdicts."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._jobs: dict[str, _Job] = {}
        self._done: deque[str] = deque()
        self._queues: dict[str, asyncio.Queue[_Job]] = {
            name: asyncio.Queue(limits.waiting) for name in limits.devices
        }
        self._folder = Path()
        self._judged = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Judge what waits, one at a time on each device, until the block ends."""
        with tempfile.TemporaryDirectory(prefix="gemmetry-judge-") as folder:
            self._folder = Path(folder)
            workers = [asyncio.create_task(self._work(queue)) for queue in self._queues.values()]
            try:
                yield
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    def is_full(self, device: str = "") -> bool:
        """Whether the queue of a device cannot take another submission."""
        return self._queue(device).full()

    def _queue(self, device: str) -> asyncio.Queue[_Job]:
        found = self._queues.get(device or self.limits.devices[0])
        if found is None:
            devices = ", ".join(self.limits.devices)
            text = f"there is no device {cut(device, 40)!r}"
            raise RequestError(text, hint=f"This service has {devices}.")
        return found

    def submit(self, order: Order) -> dict[str, Any]:
        """Put a submission into the queue of its device.

        Raises:
            RequestError: no such device or task. asyncio.QueueFull: too many wait.
        """
        queue, key = self._queue(order.device), secrets.token_urlsafe(16)
        folder = self._folder / key
        file = folder / f"submission.{order.form}"
        device = order.device or self.limits.devices[0]
        # The process sees its own GPU alone, which is then the first.
        visible = "cpu" if device == "cpu" else "cuda:0"
        arguments = arguments_of(order, file, self.limits.tasks, visible)
        if queue.full():
            raise asyncio.QueueFull
        folder.mkdir()
        file.write_bytes(order.submission.encode("utf-8", "surrogatepass"))
        self._jobs[key] = _Job(key, folder, arguments, device)
        queue.put_nowait(self._jobs[key])
        return self.document(key)

    def document(self, key: str) -> dict[str, Any]:
        """State of a submission.

        Raises:
            KeyError: the submission is unknown, or no longer kept.
        """
        job = self._jobs[key]
        return {"id": job.key, "device": job.device, "state": job.state, **job.answer}

    def health(self) -> dict[str, Any]:
        """Numbers of waiting and judged submissions."""
        waiting = {name: queue.qsize() for name, queue in self._queues.items()}
        return {"state": "ok", "waiting": waiting, "judged": self._judged}

    async def _work(self, queue: asyncio.Queue[_Job]) -> None:
        while True:
            job = await queue.get()
            job.state = "running"
            number = job.device.partition(":")[2]
            variables = {"CUDA_VISIBLE_DEVICES": number} if number else {}
            try:
                found = await run_gemmetry(
                    job.arguments, folder=job.folder, limit_s=self.limits.deadline_s,
                    variables=variables,
                )  # fmt: skip
            except OSError as error:  # no process or file can be made now
                found = {"error": f"the service cannot judge it now: {error.strerror}"}
            job.answer = found if "error" in found else {"verdict": found}
            job.state = "failed" if "error" in found else "done"
            with contextlib.suppress(OSError):  # The whole folder goes with the service.
                remove(job.folder, inside=self._folder)
            self._judged += 1
            self._done.append(job.key)
            while len(self._done) > self.limits.kept:
                del self._jobs[self._done.popleft()]


class _TooLarge(Exception):
    """A request has more bytes than the service reads."""


def application(limits: Limits, token: str) -> Starlette:
    """The service as an ASGI application: POST /evaluate, GET /tasks/{id}, GET /health.

    Args:
        token: what clients send as ``Authorization: Bearer TOKEN``.
    """
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    service, reading = Service(limits), 0

    def answer(status: int, headers: Mapping[str, str] = {}, **facts: Any) -> Response:
        return Response(encoded(facts), status, dict(headers), "application/json")

    def is_allowed(request: Request) -> bool:
        given = request.headers.get("authorization", "").encode()
        return hmac.compare_digest(given, f"Bearer {token}".encode())

    async def evaluate(request: Request) -> Response:
        nonlocal reading
        if not is_allowed(request):
            return answer(401, error="the token is missing or another")
        if reading >= _MOST_READING or service.is_full():
            return answer(429, _BUSY, error="too many submissions wait; try again")
        reading += 1
        try:
            async with asyncio.timeout(limits.request_s):
                body = await _body(request, limits.request_bytes)
            order = msgspec.json.decode(body, type=Order)
            return answer(202, **service.submit(order))
        except TimeoutError:
            return answer(408, error=f"the request took more than {limits.request_s:g} s")
        except _TooLarge:
            return answer(413, error=f"a request has at most {limits.request_bytes:,} bytes")
        except asyncio.QueueFull:
            return answer(429, _BUSY, error="too many submissions wait; try again")
        except RequestError as error:
            return answer(400, error=error.message, hint=error.hint)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return answer(400, error=cut(f"the request cannot be read: {error}"))
        finally:
            reading -= 1

    async def task(request: Request) -> Response:
        if not is_allowed(request):
            return answer(401, error="the token is missing or another")
        try:
            return answer(200, **service.document(request.path_params["key"]))
        except KeyError:
            return answer(404, error="there is no such submission, or it is no longer kept")

    async def health(request: Request) -> Response:
        return answer(200, **service.health())

    routes = [
        Route("/evaluate", evaluate, methods=["POST"]),
        Route("/tasks/{key}", task, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lambda _: service.running())


async def _body(request: Request, most: int) -> bytes:
    """The body of a request; a longer one is not read to its end."""
    if int(request.headers.get("content-length") or 0) > most:
        raise _TooLarge
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            raise _TooLarge
    return bytes(found)


def _bounded_protocol() -> type[asyncio.Protocol]:
    """The protocol of a connection. Too many connections end the oldest without a request, so that
    silent clients cannot keep others out."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    held: dict[H11Protocol, None] = {}
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(_MOST_CONNECTIONS, soft // 2)

    class Bounded(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            held[self] = None
            if len(held) > most:
                silent = (one for one in held if not one.cycle or one.cycle.response_complete)
                ended = next(silent, self)
                del held[ended]
                ended.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            held.pop(self, None)
            super().connection_lost(exc)

    return Bounded


def serve_forever(
    limits: Limits, host: str, port: int, token: str, note: Callable[[str], None]
) -> None:
    """Serve until the process is interrupted.

    Args:
        token: "": a new one, which is printed.
        note: prints a line.

    Raises:
        RequestError: the packages are not installed, or the address is not to be had.
    """
    for module in ("uvicorn", "starlette"):
        check_installed(module, extra="serve")
    import uvicorn

    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listening = socket.create_server(address[:2], family=family)
    except OSError as error:
        raise RequestError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="Choose another --host or --port; --port 0 takes one that is free.",
        ) from error
    if not token:
        token = secrets.token_urlsafe(24)
        note(f"token: {token}")
    note(f"listening on http://{host}:{listening.getsockname()[1]}")
    config = uvicorn.Config(
        application(limits, token), log_level="warning", access_log=False, ws="none",
        timeout_graceful_shutdown=1, http=_bounded_protocol(), backlog=128,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])


_INSTRUCTIONS = """\
Judge kernels that nobody trusts, measure matrix multiplies, and explain profiles. Answers are JSON
of at most 4 KB; repeat their evidence and verdicts, not times without a comparison."""


def tools(tasks: Path | None = None, limit_s: float = 600.0) -> MCPServer[Any]:
    """The tools as a server of the Model Context Protocol.

    Args:
        tasks: folder of the tasks that may be named besides operations.
        limit_s: seconds that a call may take.
    """
    check_installed("mcp", extra="mcp")
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server: MCPServer[Any] = MCPServer("gemmetry", instructions=_INSTRUCTIONS, log_level="WARNING")

    async def answer(arguments: Sequence[str], folder: Path | None = None) -> str:
        found = await run_gemmetry(arguments, folder=folder or Path.cwd(), limit_s=limit_s)
        if "error" in found:
            raise ToolError(found["error"])
        return encoded(found).decode()

    async def judge(
        submission: str, task: str, function: str = "", form: Literal["py", "cu", "json"] = "py",
        level: Literal["quick", "standard", "paranoid"] = "standard", time: bool = True,
    ) -> str:  # fmt: skip
        """Judge the text of a submission in a confined process: ok, wrong, cheated or refused, with
        evidence, accuracy class, and its speed against torch. `task`: an operation such as
        matmul_512x512x512_f32t_f32t_f32t, or a file of the folder of tasks."""
        order = Order(submission=submission, task=task, function=function, form=form, level=level,
                      time=time)  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="gemmetry-judge-") as name:
            file = Path(name) / f"submission.{form}"
            try:
                arguments = arguments_of(order, file, tasks)
            except RequestError as error:
                raise ToolError(f"{error.message}. {error.hint}") from error
            file.write_bytes(submission.encode("utf-8", "surrogatepass"))
            return await answer(arguments, file.parent)

    async def explain(report: str, kind: Literal["counters", "trace"] = "counters") -> str:
        """Explain where time goes. `report`: the path of hardware counters (.ncu-rep, CSV), whose
        kernels get a diagnosis with remedies; or of traces, whose steps, stragglers, GEMMs and
        moments are listed."""
        words = {"counters": ["counters", "diagnose"], "trace": ["trace", "report"]}[kind]
        return await answer([*words, "--brief", "--json", "--", report])

    async def profile(
        experiment: str, shapes: str, dtypes: str = "bf16", providers: str = "torch",
        device: str = "cpu", kernel: str = "",
    ) -> str:  # fmt: skip
        """Verify and measure matrix multiplies, such as shapes 512x512x512,1024x64x64, with results
        in the folder `experiment`. `kernel`: FILE:FUNCTION of your own, measured with them."""
        own = [f"--kernel={kernel}"] if kernel else []
        return await answer(
            ["profile", f"--shapes={shapes}", f"--dtypes={dtypes}", f"--providers={providers}",
             f"--device={device}", f"--experiment={experiment}", *own, "--quick", "--json"]
        )  # fmt: skip

    async def compare(before: str, after: str) -> str:
        """Compare two experiments dispatch by dispatch: faster, slower, no difference shown, or
        undecided, with intervals; the worst come first."""
        return await answer(["compare", "--brief", "--json", "--", before, after])

    for tool in (judge, explain, profile, compare):
        server.add_tool(tool, structured_output=False)
    return server
