"""A TCP connection between driver and agent, which several threads may send over."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from typing import Any

from gemmetry.engine.agents.messages import FIRST_FRAME_BYTES, FRAME_BYTES
from gemmetry.engine.workers.protocol import CHUNK_BYTES, Channel, Frame

SEND_S = 30.0
"""How long the other side may take to receive something before it is lost."""


class Link(Channel):
    """One end; one thread receives, and any may send.

    Sockets stay non-blocking, because a timeout of Python's sockets would apply to the threads that
    send and the one that receives at once.
    """

    def __init__(self, connection: socket.socket, incoming: Any) -> None:
        """`incoming` is the union of messages that this side reads."""
        super().__init__(connection, incoming, FIRST_FRAME_BYTES)
        connection.setblocking(False)
        with contextlib.suppress(OSError):  # a socket pair in tests
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._sending = threading.Lock()
        self._sent_s = self._received_s = time.monotonic()

    def trust(self) -> None:
        """Accept frames of full length from here on."""
        self._limit = FRAME_BYTES

    def fileno(self) -> int:
        """The descriptor of its socket; negative once it is closed."""
        return self._socket.fileno()

    def send_if_silent(self, message: Frame, silence_s: float) -> None:
        """Send `message` unless something was sent in the last `silence_s`."""
        if time.monotonic() - self._sent_s >= silence_s:
            self.send(message)

    def silence_s(self) -> float:
        """The time since the other side was last heard."""
        return time.monotonic() - self._received_s

    def _write(self, data: bytes) -> None:
        ends = time.monotonic() + SEND_S
        with self._sending, memoryview(data) as view:
            done = 0
            while done < len(view):
                try:
                    done += self._socket.send(view[done : done + CHUNK_BYTES])
                    ends = time.monotonic() + SEND_S
                except (BlockingIOError, InterruptedError):
                    if not self._poll(select.POLLOUT, ends - time.monotonic()):
                        raise TimeoutError from None
            self._sent_s = time.monotonic()

    def _read(self, timeout_s: float | None) -> bytes:
        if not self._poll(select.POLLIN, timeout_s):
            raise TimeoutError
        try:
            return self._socket.recv(CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            raise TimeoutError from None

    def _poll(self, event: int, seconds: float | None) -> bool:
        if self._socket.fileno() < 0:
            raise OSError("closed")
        poller = select.poll()
        poller.register(self._socket, event)
        return bool(poller.poll(None if seconds is None else max(0.0, 1000 * seconds)))

    def close(self) -> None:
        """End the connection, also for a thread that is receiving."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        super().close()
