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
        self._environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._daemons: list[subprocess.Popen[bytes]] = []
        try:
            self._start("slurmctld", "-c", "-D")
            for node in NODES:
                self._start("slurmd", "-D", "-N", node)
            ends = time.monotonic() + PATIENCE_S
            while self.call("sinfo", "--noheader", "--Node", "--format=%T").split() != ["idle"] * 2:
                assert time.monotonic() < ends, self.logs()
                time.sleep(0.1)
        except BaseException:
            self.close()
            raise

    def call(self, *command: str) -> str:
        """The output of a command of Slurm; "" if it fails."""
        found = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=60
        )
        return found.stdout if found.returncode == 0 else ""

    def logs(self) -> str:
        """What the daemons logged."""
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))

    def close(self) -> None:
        """End all jobs and daemons, and remove their files."""
        if self._daemons:
            self.call("scancel", "--full", "--user", getpass.getuser())
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
        for pid in _left(self.conf):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, *command: str) -> None:
        self._daemons.append(subprocess.Popen(
            command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        ))  # fmt: skip


def _left(conf: Path) -> list[int]:
    """What is left of jobs, by their environment, and of slurmstepd, which waits for its slurmd."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                variables = (entry / "environ").read_bytes()
                is_step = b"slurmstepd" in (entry / "cmdline").read_bytes()
                is_job = is_step or b"\0SLURMD_NODENAME=" in variables
                if is_job and f"SLURM_CONF={conf}".encode() in variables.split(b"\0"):
                    found.append(int(entry.name))
    return found
