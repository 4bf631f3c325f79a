"""A Slurm cluster of two nodes on this host, without munge, systemd, accounting, control groups."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo")
NODES = ("n1", "n2")
PATIENCE_S = 60.0

_CONF = """\
ClusterName=gemmetry
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
Licenses=gpu:3
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=100
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=100
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""


def missing() -> list[str]:
    """The programs of Slurm that this machine lacks."""
    os.environ["PATH"] += os.pathsep + "/usr/sbin"
    return [name for name in PROGRAMS if shutil.which(name) is None]


class SlurmCluster:
    """Daemons that run until :meth:`close`."""

    def __init__(self) -> None:
        # The paths of sockets are short (unix(7)), those of pytest's folders are not.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        with contextlib.ExitStack() as sockets:
            free = [sockets.enter_context(socket.socket()) for _ in range(3)]
            for one in free:
                one.bind(("127.0.0.1", 0))
            ports = [one.getsockname()[1] for one in free]
        (self.folder / "state").mkdir()
        host = socket.gethostname().partition(".")[0]
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(_CONF.format(
            folder=self.folder, host=host, user=getpass.getuser(), ports=ports,
        ))  # fmt: skip
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start("slurmctld", "slurmctld", "-c", "-D")
            self.start_nodes()
        except BaseException:
            self.close()
            raise

    def start_nodes(self) -> None:
        """Start the nodes that do not run, and wait until they accept jobs."""
        for node in NODES:
            daemon = self._daemons.get(node)
            if daemon is None or daemon.poll() is not None:
                self._start(node, "slurmd", "-D", "-N", node)
        ends = time.monotonic() + PATIENCE_S
        while self.call("sinfo", "--noheader", "--Node", "--format=%T").split() != ["idle"] * 2:
            assert time.monotonic() < ends, self.logs()
            time.sleep(0.1)

    def kill_node(self, node: str) -> None:
        """``kill -9`` of a node's daemon and of everything that runs on it."""
        daemon = self._daemons[node]
        doomed = [daemon.pid, *(pid for pid in _of_node(node, self.conf) if pid != daemon.pid)]
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemon.wait()

    def call(self, *command: str) -> str:
        """The output of a command of Slurm; "" if it fails."""
        environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        return found.stdout if found.returncode == 0 else ""

    def logs(self) -> str:
        """What the daemons logged."""
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))

    def close(self) -> None:
        """End all jobs and daemons, and remove their files."""
        if "slurmctld" in self._daemons:
            self.call("scancel", "--full", "--user", getpass.getuser())
        for node in NODES:
            if node in self._daemons:
                self.kill_node(node)
        for daemon in self._daemons.values():
            daemon.kill()
            daemon.wait()
        for pid in _steps(self.conf):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str, *command: str) -> None:
        environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._daemons[name] = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def _of_node(node: str, conf: Path) -> list[int]:
    """The processes of jobs on `node`, by their environment; slurmstepd, their parent, included."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if f"SLURM_CONF={conf}".encode() not in variables:
                continue
            if f"SLURMD_NODENAME={node}".encode() in variables:
                found.add(int(entry.name))
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parent = int(stat[1])
                if b"slurmstepd" in Path(f"/proc/{parent}/cmdline").read_bytes():
                    found.add(parent)
    return sorted(found)


def _steps(conf: Path) -> list[int]:
    """What is left of slurmstepd once the jobs have ended: it waits for its slurmd."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"slurmstepd" in (entry / "cmdline").read_bytes():
                variables = (entry / "environ").read_bytes().split(b"\0")
                if f"SLURM_CONF={conf}".encode() in variables:
                    found.append(int(entry.name))
    return found
