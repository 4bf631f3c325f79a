"""Confine this process before foreign code runs in it; Linux only, without privileges.

Layers, each used where the kernel grants it:

* user, network, process, mount and IPC namespaces (unshare(2)): no network, no other process
  visible, and every descendant ends with the first process of the namespace;
* Landlock (landlock(7)): the file system is read-only except for the scratch folder and devices.
  Processes outside cannot be traced or signalled, so their memory cannot be read through /proc;
* seccomp(2) where there are no namespaces: no sockets but those of files, no signals, limits or
  memory of other processes, no new session;
* resource limits (setrlimit(2)): processor time, size of files, no core files;
* no new privileges, and the end of the parent ends this process (prctl(2)).

:func:`confine` returns what is missing, in words, so that a verdict can state it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x0002_0000, 0x0800_0000, 0x1000_0000
_CLONE_NEWPID, _CLONE_NEWNET = 0x2000_0000, 0x4000_0000
"""Constants of the Linux kernel's sched.h."""

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 1, 38, 22, 2
_MS_PRIVATE, _MS_REC = 1 << 18, 1 << 14

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
"""Numbers of the system calls, the same on every architecture since they were added."""
_LANDLOCK_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ACCESS_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""ABI -> all rights to files that it knows (linux/landlock.h): ABI 2 adds moving between folders,
3 truncating, 5 ioctl on devices."""
_NET_ABI, _SCOPE_ABI = 4, 6
_NET_ALL, _SCOPE_ALL = 0b11, 0b11
"""bind and connect of TCP; abstract sockets and signals."""

_READING = _EXECUTE | _READ_FILE | _READ_DIR

_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | 1 << 15
"""The rights that apply to a file: also truncating, and ioctl."""

_MACHINES = {
    "x86_64": (0xC000003E, {
        "kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "prlimit64": 302,
        "socket": 41, "setsid": 112, "fcntl": 72, "ioctl": 16,
    }),
    "aarch64": (0xC00000B7, {
        "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "prlimit64": 261,
        "socket": 198, "setsid": 157, "fcntl": 25, "ioctl": 29,
    }),
}  # fmt: skip
"""Machine -> its number in linux/audit.h, and those of system calls in its unistd.h."""
_EVERYWHERE = {"pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_getfd": 438}
_FIRST_OF_X32 = 0x4000_0000
"""On x86-64, the same calls have other numbers from here on."""

_F_SETOWN_EX, _FIOSETOWN, _SIOCSPGRP = 15, 0x8901, 0x8902
"""Ask for signals to another process (asm-generic/fcntl.h, asm-generic/sockios.h)."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
"""Constants of linux/bpf_common.h and linux/seccomp.h."""

_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "kfd", "dri")
"""Files below /dev that may be opened for writing."""

PROCESSES = 4096
"""Limit on processes and threads of the user: libraries start one thread a processor."""

CPU_S = 3600
"""Limit on the processor time of one process in seconds."""
FILE_BYTES = 2**32
"""Limit on the size of one file: compilers of kernels write to the scratch folder."""


RELAXED: tuple[tuple[str, ...], ...] = (
    (), ("Landlock",), ("namespaces",), ("Landlock", "namespaces"),
)  # fmt: skip
"""Layers to leave out, in this order, until a GPU's driver starts."""


def confine(
    scratch: Path,
    *,
    memory_bytes: int | None = None,
    is_gpu: bool = False,
    without: Collection[str] = (),
) -> list[str]:
    """Confine this process and all that it starts. Forks: only the confined process returns, and
    the one that called waits for it and exits with its status.

    Args:
        scratch: the only folder in which files may be written.
        memory_bytes: limit on the address space.
        is_gpu: limit what is written instead: a GPU's driver reserves terabytes of addresses.
        without: layers that are left out, of :data:`RELAXED`.

    Returns:
        What the kernel did not grant, in words; empty where everything holds.
    """
    if sys.platform != "linux":
        return [f"nothing is confined on {sys.platform}"]
    libc = ctypes.CDLL(None, use_errno=True)
    missing = [f"no {one}: the GPU's driver does not start with it" for one in without]
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    uid, gid = os.getuid(), os.getgid()
    spaces = _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWPID | _CLONE_NEWNS | _CLONE_NEWIPC
    if "namespaces" not in without and libc.unshare(spaces) == 0:
        _map_ids(uid, gid)
        _become_first(libc)
        libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
        if libc.mount(b"proc", b"/proc", b"proc", 0, None) != 0:
            missing.append("/proc shows other processes")
    else:
        reason = "left out" if "namespaces" in without else os.strerror(ctypes.get_errno())
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        missing.append(f"no namespaces ({reason}): it sees other processes")
        if problem := _restrict_calls(libc):
            missing.append(f"{problem}: it has the network, and can end any process of this user")
    of_memory = resource.RLIMIT_DATA if is_gpu else resource.RLIMIT_AS
    for which, most in (
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, PROCESSES),
        *(() if memory_bytes is None else ((of_memory, memory_bytes),)),
    ):
        _, hard = resource.getrlimit(which)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (least, least))
    problem = "" if "Landlock" in without else _restrict_files(libc, scratch, is_gpu)
    return missing + ([problem] if problem else [])


def _map_ids(uid: int, gid: int) -> None:
    """Keep the user's and group's numbers in the new namespace."""
    for name, text in (
        ("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1"),
    ):  # fmt: skip
        try:
            Path("/proc/self", name).write_text(text)
        except OSError:
            continue  # the namespace works without: files then belong to nobody


def _become_first(libc: ctypes.CDLL) -> None:
    """Fork: the child becomes PID 1 of the namespace; the parent exits with its status."""
    child = os.fork()
    if child == 0:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _restrict_calls(libc: ctypes.CDLL) -> str:
    """Filter system calls for this process and what it starts; returns why it could not, or ""."""
    if os.uname().machine not in _MACHINES:
        return f"no seccomp rules for {os.uname().machine}"
    code = _filter(*_MACHINES[os.uname().machine], os.getpid())
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0) != 0:
        return f"no seccomp ({os.strerror(ctypes.get_errno())})"
    return ""


def _filter(machine: int, numbers: Mapping[str, int], own: int) -> bytes:
    """The instructions (struct sock_filter) of the filter for the process `own`."""
    numbers = {**numbers, **_EVERYWHERE}
    # Call -> argument, its values, whether these alone are allowed (else these alone are denied).
    rules: dict[str, tuple[int, tuple[int, ...], bool]] = {
        **dict.fromkeys(
            ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"), (0, (own,), True)
        ),
        "prlimit64": (0, (0, own), True),
        "socket": (0, (socket.AF_UNIX,), True),
        "fcntl": (1, (fcntl.F_SETOWN, fcntl.F_SETSIG, _F_SETOWN_EX), False),
        "ioctl": (1, (_FIOSETOWN, _SIOCSPGRP), False),
    }
    wrong_machine = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    found = [*wrong_machine, (_LOAD, 0, 0, 0)]
    if machine == _MACHINES["x86_64"][0]:
        found += [(_AT_LEAST, 0, 1, _FIRST_OF_X32), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    for name, number in numbers.items():
        # A new session would hide a process from the judge; the call does nothing, successfully.
        denied = (_RETURN, 0, 0, _ERRNO | (0 if name == "setsid" else errno.EPERM))
        argument, values, are_allowed = rules.get(name, (0, (), True))
        left = range(len(values), 0, -1)
        block = [(_LOAD, 0, 0, 16 + 8 * argument)]
        block += [(_EQUAL, jump, 0, value) for jump, value in zip(left, values, strict=True)]
        block += [denied] if are_allowed else [(_RETURN, 0, 0, _ALLOW), denied]
        found += [(_LOAD, 0, 0, 0), (_EQUAL, 0, len(block), number), *block]
    return b"".join(struct.pack("=HBBI", *one) for one in [*found, (_RETURN, 0, 0, _ALLOW)])


def _restrict_files(libc: ctypes.CDLL, scratch: Path, is_gpu: bool) -> str:
    """Apply Landlock; returns why it could not be, or "". CUDA's driver writes below /proc when it
    starts: of all that is there, a GPU's process may write what is about itself."""
    abi = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if abi < 1:
        reason = os.strerror(ctypes.get_errno())
        return f"no Landlock, so files can be written wherever the user may ({reason})"
    handled = _ACCESS_OF_ABI[max(known for known in _ACCESS_OF_ABI if known <= abi)]
    net = _NET_ALL if abi >= _NET_ABI else 0
    scoped = _SCOPE_ALL if abi >= _SCOPE_ABI else 0
    attributes = struct.pack("=QQQ", handled, net, scoped)
    size = 24 if abi >= _SCOPE_ABI else 16 if abi >= _NET_ABI else 8
    rules = libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0)
    if rules < 0:
        return f"Landlock refuses its rules ({os.strerror(ctypes.get_errno())})"
    try:
        allowed = [(Path("/"), _READING), (scratch, handled)]
        if is_gpu:
            allowed.append((Path("/proc/self").resolve(), handled))
        for pattern in _DEVICES:
            allowed += [(path, handled) for path in Path("/dev").glob(pattern)]
        for path, access in allowed:
            access &= handled if path.is_dir() else handled & _OF_FILES
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", access, beneath)
                if libc.syscall(_LANDLOCK_ADD, rules, _RULE_PATH_BENEATH, rule, 0) != 0:
                    return f"Landlock refuses {path} ({os.strerror(ctypes.get_errno())})"
            finally:
                os.close(beneath)
        if libc.syscall(_LANDLOCK_RESTRICT, rules, 0) != 0:
            return f"Landlock cannot be entered ({os.strerror(ctypes.get_errno())})"
    finally:
        os.close(rules)
    return ""
