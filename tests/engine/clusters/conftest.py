"""A Slurm cluster and a Ray cluster of two nodes each, on this host."""

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
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo")
NODES = ("n1", "n2")
PATIENCE_S = 60.0

# Without munge, systemd, accounting and control groups.
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
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=100
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=100
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""


@pytest.fixture(scope="session")
def slurm() -> Iterator[None]:
    """Two nodes, n1 and n2; commands of Slurm in this process and its children speak to them."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setenv("PATH", "/usr/sbin", prepend=os.pathsep)
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            pytest.skip(f"needs Slurm: {', '.join(missing)} are not installed")
        # The paths of sockets are short (unix(7)), pytest's folders are not.
        folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        patch.setenv("SLURM_CONF", str(_configured(folder)))
        stack.callback(_end_jobs, folder)
        for command in (["slurmctld", "-c"], *(["slurmd", "-N", node] for node in NODES)):
            daemon = stack.enter_context(subprocess.Popen(
                [*command, "-D"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            ))  # fmt: skip
            stack.callback(daemon.kill)
        stack.callback(_call, "scancel", "--full", "--user", getpass.getuser())
        ends = time.monotonic() + PATIENCE_S
        while _call("sinfo", "--noheader", "--Node", "--format=%T").split() != ["idle"] * 2:
            logs = [path.read_text(errors="replace") for path in folder.glob("*.log")]
            assert time.monotonic() < ends, "\n".join(logs)
            time.sleep(0.1)
        yield


def _configured(folder: Path) -> Path:
    """The file with the configuration of a cluster that keeps everything in `folder`."""
    with contextlib.ExitStack() as sockets:
        free = [sockets.enter_context(socket.socket()) for _ in range(3)]
        for one in free:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in free]
    (folder / "state").mkdir()
    host, conf = socket.gethostname().partition(".")[0], folder / "slurm.conf"
    conf.write_text(_CONF.format(folder=folder, host=host, user=getpass.getuser(), ports=ports))
    return conf


def _call(*command: str) -> str:
    """The output of a command of Slurm; "" if it fails."""
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return found.stdout if found.returncode == 0 else ""


def _end_jobs(folder: Path) -> None:
    """End what is left of jobs, by their environment, and slurmstepd, which waits for its
    slurmd."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes()
            is_step = b"slurmstepd" in (entry / "cmdline").read_bytes()
            is_job = is_step or b"\0SLURMD_NODENAME=" in variables
            if is_job and f"SLURM_CONF={folder}/slurm.conf".encode() in variables.split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


_SMALL = {"object_store_memory": 80 * 2**20}


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A head without GPUs, to which :func:`ray_nodes` adds nodes."""
    utils = pytest.importorskip("ray.cluster_utils", reason="needs Ray: pip install gemmetry[ray]")
    # A lost node is noticed after 2.5 s instead of 15 s.
    system = {"_system_config": {"health_check_period_ms": 500}, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # Else other tests leave tasks no time.
        head = {"num_cpus": 0, "num_gpus": 0, **_SMALL, **system}
        cluster = utils.Cluster(initialize_head=True, head_node_args=head)
        try:
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture
def ray_nodes(ray_cluster: Any) -> Iterator[Any]:
    """Adds nodes with resources to the cluster, and kills their raylets."""
    added = []

    def add(**resources: Any) -> Any:
        added.append(ray_cluster.add_node(**_SMALL, **resources))
        return added[-1]

    def kill(node: Any) -> None:
        (raylet,) = node.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)

    yield SimpleNamespace(address=ray_cluster.address, add=add, kill=kill)
    for node in added:
        ray_cluster.remove_node(node, allow_graceful=False)
    # Until the cluster has noticed, it would start actors of the next test on nodes of this one.
    ray_cluster.wait_for_nodes()
