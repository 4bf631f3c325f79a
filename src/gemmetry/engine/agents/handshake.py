"""How driver and agent prove to each other that they know the token, which is never sent.

Each sends a random number that it uses once. The proof is HMAC-SHA256 with the token as its key
over both numbers, the sender's role, and what the sender states about itself (RFC 2104). The roles
differ, so that neither proof can be sent back as the other's.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from gemmetry.domain.errors import RequestError, StorageError

NONCE_BYTES = 32

_LEAST_TOKEN = 16
"""The fewest bytes of a token: 128 bits cannot be guessed."""


def new_nonce() -> bytes:
    """A random number that is used once."""
    return secrets.token_bytes(NONCE_BYTES)


def proof(token: bytes, role: str, driver: bytes, agent: bytes, *stated: str) -> bytes:
    """The proof of the side `role`, over the numbers of `driver` and `agent` and what it states."""
    message = b"\0".join((b"gemmetry", role.encode(), driver.hex().encode(), agent.hex().encode(),
                          *(text.encode() for text in stated)))  # fmt: skip
    return hmac.new(token, message, hashlib.sha256).digest()


def is_proof(found: bytes, expected: bytes) -> bool:
    """Whether a proof is right, in a time that shows nothing of it."""
    return hmac.compare_digest(found, expected)


def read_token(path: Path, *, is_private: bool = False) -> bytes:
    """The token in a file, without the white space around it.

    Args:
        is_private: refuse a file that all users of this machine can read. Agents do not, because
            Kubernetes mounts a secret so, in a container of one user.

    Raises:
        RequestError: the file cannot be read, its token is too short, or it is not private.
    """
    try:
        if is_private and stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXO:
            raise RequestError(
                f"all users of this machine can use the token in {path}, and with it run code "
                "through the agents",
                hint=f"chmod 600 {path}; in a pod, mount the secret with defaultMode: 0400, or "
                "0440 and fsGroup where the container does not run as root",
            )
        return check_token(path.read_bytes(), str(path))
    except OSError as error:
        raise RequestError(
            f"cannot read the token in {path}: {error.strerror or error}",
            hint="Give the file that the driver names, or write a random one: "
            "openssl rand -hex 32 > FILE.",
        ) from error


def check_token(data: bytes, where: str) -> bytes:
    """The token in `data`.

    Raises:
        RequestError: it is too short.
    """
    token = data.strip()
    if len(token) < _LEAST_TOKEN:
        raise RequestError(
            f"the token in {where} has {len(token)} bytes, and at least {_LEAST_TOKEN} are needed",
            hint="Write a random one: openssl rand -hex 32 > FILE.",
        )
    return token


def write_token(path: Path) -> bytes:
    """Write a new token, which its owner alone may read, to `path`.

    Raises:
        StorageError: it cannot be written.
    """
    token = secrets.token_hex(NONCE_BYTES).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(token + b"\n")
    except OSError as error:
        raise StorageError(
            f"cannot write the token {path}: {error.strerror or error}",
            hint="Give a file of your own with --token-file.",
        ) from error
    return token
