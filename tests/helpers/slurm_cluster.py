"""A Slurm cluster of one machine, started by hand and listening on 127.0.0.1 only."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CPUS = 4
"""Processors that the node claims, so that tasks run in parallel on small machines, too."""
MAX_ARRAY_SIZE = 3
"""Most tasks of an array job, so that a few tasks need two jobs."""

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")

_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
MailProg=/bin/true
KillWait=1
MaxArraySize={max_array_size}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4096 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class SlurmCluster:
    folder: Path

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    def ask(self, *command: str) -> str:
        return subprocess.run(
            command,
            env={**os.environ, "SLURM_CONF": str(self.conf)},
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()


def missing() -> str | None:
    """Reason why the cluster cannot be started here; None if it can."""
    if os.geteuid() != 0:
        return "slurmd has to be started by root"
    absent = [program for program in _PROGRAMS if not shutil.which(program)]
    return f"no {', '.join(absent)}; install slurm-wlm and munge" if absent else None


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    # Not pytest's folder: a socket's path has at most about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = SlurmCluster(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)  # munged wants its socket to be accessible to all users
        (folder / "state").mkdir()
        (folder / "spool").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        cluster.conf.write_text(
            _CONF.format(
                folder=folder, host=socket.gethostname().partition(".")[0], cpus=CPUS,
                max_array_size=MAX_ARRAY_SIZE, controller_port=_free_port(), node_port=_free_port(),
            )
        )  # fmt: skip

        def start(*command: str) -> None:
            environment = {**os.environ, "SLURM_CONF": str(cluster.conf)}
            output = (folder / f"{command[0]}.out").open("w")
            stack.enter_context(output)
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
            stack.callback(_end, process)

        start(
            "munged", "--foreground", f"--key-file={key}", f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munged.seed",
        )  # fmt: skip
        _wait_for((folder / "munge.socket").exists, folder)
        start("slurmctld", "-D", "-f", str(cluster.conf))
        start("slurmd", "-D", "-f", str(cluster.conf))
        stack.callback(cluster.ask, "scancel", "--user=root")
        _wait_for(lambda: cluster.ask("sinfo", "--noheader", "--format=%t") == "idle", folder)
        yield cluster


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _wait_for(condition: Callable[[], bool], folder: Path) -> None:
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            logs = {path.name: path.read_text()[-2000:] for path in folder.glob("*.[lo][ou][gt]")}
            raise TimeoutError(f"the Slurm cluster does not start: {logs}")
        time.sleep(0.1)
