"""A Slurm cluster of three nodes on this machine, and its recipe: `sudo python -m experiments.slurm_hosts`.

Each node has a network, a host name, processes, a /tmp and a /dev/shm of its own (namespaces) and runs `slurmd`;
`slurmctld` runs on their switch. The nodes share all other files. Five jobs are submitted with `experiments/slurm.sh`:

1. a run;
2. the run with `--no-kill`, which loses a node and continues on the others;
3. the run, which loses the first node, where Ray's head and the driver are; Slurm ends the job;
4. `h2fdp resume`, which completes that run once the node has started again;
5. a sweep.

Metrics and ledgers are compared with those of one process, bit by bit.

Needs Linux, root, `ip`, `tc`, Slurm and MUNGE (Debian: slurm-wlm, munge); says what is missing otherwise.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from experiments.three_hosts import HOSTS, SWITCH, equal, inside, network, run

RECIPE = Path(__file__).parent / "slurm.sh"
NEEDED = ("ip", "tc", "unshare", "munged", "slurmctld", "slurmd", "sbatch", "scontrol")
CONTROL, CONTROL_ADDRESS = "h2fdp-control", "10.77.0.254"
SECONDS_TO_START, SECONDS_OF_A_JOB = 60, 900
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"}
CONFIGURATION = """\
ClusterName=h2fdp
SlurmctldHost={control}({address})
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SelectType=select/cons_tres
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=15
KillWait=10
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def experiment(intervals: int) -> dict[str, Any]:
    """The paper's network on digits."""
    return {
        "name": "slurm",
        "topology": str(Path(__file__).parents[1] / "topologies" / "paper.yaml"),
        "data": {"name": "digits", "partition": {"labels_per_device": 3}},
        "model": "softmax",
        "method": "h2fdp",
        "training": {"extends": "paper", "intervals": intervals, "step_size": 0.01},
        "privacy": {"epsilon": 4.0, "delta": 1e-5, "calibration": "accounted", "noise_key": "seed"},
        "tracking": {"tensorboard": False},
    }


class Nodes:
    """The daemons of a cluster, by the hosts that they run on; all of a host ends with its first process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._first: dict[str, subprocess.Popen[bytes]] = {}

    def begin(self, host: str, name: str, daemon: str) -> None:
        """Start a host, whose first process starts the daemon and waits for orphans; its network is on."""
        script = (
            f"hostname {name} && mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && {{ {daemon} & wait; }}"
        )
        own = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        with open(self.folder / f"{name}.out", "a") as log:
            self._first[host] = subprocess.Popen(
                inside(host, *own, "bash", "-c", script), stdout=log, stderr=log, start_new_session=True
            )

    def begin_node(self, host: str) -> None:
        """Start a node of the cluster."""
        run(*inside(host, "ip", "link", "set", "eth0", "up"))
        self.begin(host, host, "slurmd -D")

    def lose(self, host: str) -> None:
        """Cut a node off and end all of its processes at once, as where its power fails."""
        run(*inside(host, "ip", "link", "set", "eth0", "down"))
        self.end(host)
        print(f"lost {host}", flush=True)

    def end(self, host: str) -> None:
        """SIGKILL the first process of a host; the kernel then kills all others."""
        self._first[host].kill()
        self._first[host].wait()
        until(lambda: not output("ip", "netns", "pids", host), f"processes of {host} do not end")

    def end_all(self) -> None:
        """End every host that was started."""
        for host in self._first:
            self.end(host)


@contextmanager
def slurm(folder: Path) -> Iterator[Nodes]:
    """The daemons of MUNGE and Slurm, with a key and a configuration of their own."""
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o600)
    for name in ("state", *HOSTS):
        (folder / name).mkdir()
    nodes = "\n".join(
        f"NodeName={host} NodeAddr=10.77.0.{number} CPUs={os.cpu_count()}" for number, host in enumerate(HOSTS, start=1)
    )
    configuration = CONFIGURATION.format(control=CONTROL, address=CONTROL_ADDRESS, folder=folder, nodes=nodes)
    (folder / "slurm.conf").write_text(configuration)
    (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}\n")  # it uses none of them
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    run(*inside(SWITCH, "ip", "link", "set", "lo", "up"))
    run(*inside(SWITCH, "ip", "address", "add", f"{CONTROL_ADDRESS}/24", "dev", "bridge"))
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder}/munge.{name}" for option, name in files.items()]
    with ExitStack() as started:
        munge = subprocess.Popen(["munged", "--foreground", "--force", *options], stderr=subprocess.DEVNULL)
        started.callback(munge.wait)
        started.callback(munge.kill)
        until((folder / "munge.socket").exists, "munged does not start")
        made = Nodes(folder)
        started.callback(made.end_all)
        made.begin(SWITCH, CONTROL, "slurmctld -D")
        for host in HOSTS:
            made.begin_node(host)
        yield made


def output(*command: str) -> str:
    """What a command prints; nothing where it fails."""
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def until(true: Callable[[], object], wrong: str, seconds: float = SECONDS_TO_START) -> None:
    """Wait; end with a message after some time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"{wrong} within {seconds} s")
        time.sleep(0.2)


def until_all_idle() -> None:
    """Until each node can take a job."""
    until(
        lambda: (
            output(*inside(SWITCH, "sinfo", "--noheader", "--Node", "--format=%t")).split() == ["idle"] * len(HOSTS)
        ),
        "the nodes of Slurm are not idle",
    )


def submit(folder: Path, command: list[str], options: Sequence[str] = ()) -> str:
    """Submit the recipe with a command of h2fdp once all nodes are idle; the number of the job."""
    until_all_idle()
    own = ["--parsable", "--chdir", str(folder), "--cpus-per-task=1", *options]
    done = subprocess.run(
        inside(SWITCH, "sbatch", *own, str(RECIPE), "h2fdp", *command), capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"sbatch: {done.stderr.strip()}")
    print(f"job {done.stdout.strip()}: {' '.join([*options, *command])}", flush=True)
    return done.stdout.strip()


def state(job: str) -> str:
    """Of a job."""
    words = output(*inside(SWITCH, "scontrol", "show", "job", "--oneliner", job)).split()
    return next((word.removeprefix("JobState=") for word in words if word.startswith("JobState=")), "")


def wait_for(job: str, expected: str, folder: Path) -> None:
    """Until a job has ended in the expected state."""
    until(lambda: state(job) in ENDED, f"job {job} does not end", SECONDS_OF_A_JOB)
    print(f"job {job}: {state(job)}", flush=True)
    if state(job) != expected:
        sys.exit((folder / f"slurm-{job}.out").read_text())


def until_half(out: Path, whole: int, job: str) -> None:
    """Until half of a run is on disk, by the bytes of its ledger; it must not have ended by then."""
    ledger = out / "privacy.jsonl"

    def half_or_ended() -> bool:
        return (ledger.exists() and ledger.stat().st_size >= whole / 2) or state(job) in ENDED

    until(half_or_ended, f"half of {out.name} is not done", SECONDS_OF_A_JOB)
    if state(job) in ENDED:
        sys.exit(f"job {job} ended before a node was lost: {state(job)}; take more --intervals")


def check(one: Path, other: Path) -> None:
    """End with a message where two runs differ."""
    if not equal(one, other):
        sys.exit(f"{other}: metrics or ledger differ from {one}")
    print(f"{other.name}: equal metrics and ledger", flush=True)


def in_one_process(command: list[str]) -> None:
    """What the jobs are compared with."""
    whole = [sys.executable, "-m", "h2fdp", *command, "--quiet", "--set", "runtime.backend=inline"]
    subprocess.run(whole, check=True, stdout=subprocess.DEVNULL)


def drill(folder: Path, intervals: int) -> None:
    """The jobs, in order."""
    alone, file, sweep = folder / "alone", str(folder / "slurm.yaml"), str(folder / "sweep.yaml")
    Path(file).write_text(yaml.safe_dump(experiment(intervals)))
    Path(sweep).write_text(yaml.safe_dump(experiment(5) | {"sweep": {"seed": [1, 2]}}))
    in_one_process(["run", file, "--out", str(alone)])
    in_one_process(["sweep", sweep, "--out", str(folder / "sweep-alone")])
    whole = (alone / "privacy.jsonl").stat().st_size
    auto = ["--quiet", "--set", "runtime.address=auto"]
    with network("1gbit"), slurm(folder) as nodes:
        wait_for(submit(folder, ["run", file, "--out", "run", *auto]), "COMPLETED", folder)
        check(alone, folder / "run")

        job = submit(folder, ["run", file, "--out", "fewer", *auto], ["--no-kill"])
        until_half(folder / "fewer", whole, job)
        nodes.lose(HOSTS[2])
        wait_for(job, "COMPLETED", folder)
        check(alone, folder / "fewer")
        nodes.begin_node(HOSTS[2])

        job = submit(folder, ["run", file, "--out", "lost", *auto])
        until_half(folder / "lost", whole, job)
        nodes.lose(HOSTS[0])
        wait_for(job, "NODE_FAIL", folder)
        nodes.begin_node(HOSTS[0])
        wait_for(submit(folder, ["resume", "lost", "--quiet"]), "COMPLETED", folder)
        check(alone, folder / "lost")

        wait_for(submit(folder, ["sweep", sweep, "--out", "sweep", *auto]), "COMPLETED", folder)
        for one in sorted((folder / "sweep-alone" / "runs").iterdir()):
            check(one, folder / "sweep" / "runs" / one.name)


def main() -> None:
    """Build the cluster, submit, compare; remove all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=100)
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and runs")
    asked = parser.parse_args()
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if lacking or os.getuid():
        sys.exit(f"not run: needs root and programs; user {os.getuid()}, lacking: {', '.join(lacking) or 'no program'}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = Path(tempfile.mkdtemp(prefix="h2fdp-", dir="/var/tmp"))  # each node has a /tmp of its own
    try:
        drill(folder, asked.intervals)
    finally:
        if asked.keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
