"""A Slurm cluster of three nodes on this machine, and its recipe: `sudo python -m experiments.clusters.slurm_hosts`.

Each node has a network, a host name, processes, a /tmp and a /dev/shm of its own (namespaces) and runs `slurmd`;
`slurmctld` runs on their switch. The nodes share all other files. Jobs are submitted with `slurm.sh`:

- `undisturbed`: a run;
- `fewer`: the run with `--no-kill`, which loses a node and continues on the others;
- `lost`: the run, which loses the first node, where Ray's head and the driver are; Slurm ends the job, and
  `h2fdp resume` completes the run once the node has started again;
- `sweep`: a sweep;
- `stopped`: the run, which `scancel --batch --signal=TERM` stops with a checkpoint, and `h2fdp resume` completes;
- `cancelled`: the run, which a plain `scancel` ends, and `h2fdp resume` completes; it stops with a checkpoint where the
  interval ends before Ray does, and is killed after Slurm's `KillWait` otherwise;
- `exported`: the run, where the environment says SBATCH_EXPORT=NONE, with `--export=ALL`.

`--case NAME` submits only one of them.

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

from experiments.clusters.three_hosts import HOSTS, SWITCH, equal, inside, network, run

RECIPE = Path(__file__).parent / "slurm.sh"
NEEDED = ("ip", "tc", "unshare", "munged", "slurmctld", "slurmd", "sbatch", "scontrol")
CONTROL, CONTROL_ADDRESS = "h2fdp-control", "10.77.0.254"
SECONDS_TO_START, SECONDS_OF_A_JOB = 60, 900
AUTO = ("--quiet", "--set", "runtime.address=auto")
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
        "topology": str(Path(__file__).parents[2] / "topologies" / "paper.yaml"),
        "data": {"name": "digits", "partition": {"labels_per_device": 3}},
        "model": "softmax",
        "method": "h2fdp",
        "training": {"extends": "paper", "intervals": intervals, "step_size": 0.01},
        "privacy": {"epsilon": 4.0, "delta": 1e-5, "calibration": "accounted", "noise_key": "seed"},
        "tracking": {"tensorboard": False},
    }


class Nodes:
    """The hosts of a cluster, each with its daemon; all of a host ends with its first process.

    Args:
        folder: of their logs.
        daemon: a node's, a command of the shell in which {host} is its name.
    """

    def __init__(self, folder: Path, daemon: str) -> None:
        self._folder, self._daemon = folder, daemon
        self._first: dict[str, subprocess.Popen[bytes]] = {}

    def begin(self, host: str, name: str, daemon: str) -> None:
        """Start a host, whose first process starts the daemon and waits for orphans; its network is on."""
        there = self._folder / f"{name}.there"
        there.unlink(missing_ok=True)
        own = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        mounts = f"hostname {name} && mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && touch {there}"
        words = inside(host, *own, "bash", "-c", f"{mounts} && {{ {daemon} & wait; }}")
        with open(self._folder / f"{name}.out", "a") as log:
            self._first[host] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        until(there.exists, f"{name} does not start")

    def within(self, host: str, *command: str) -> list[str]:
        """The command, run in all namespaces of a host."""
        first = output("ps", "-o", "pid=", "--ppid", str(self._first[host].pid))
        return ["nsenter", f"--target={first}", "--mount", "--uts", "--net", "--pid", *command]

    def begin_node(self, host: str) -> None:
        """Start a node of the cluster."""
        run(*inside(host, "ip", "link", "set", "eth0", "up"))
        self.begin(host, host, self._daemon.format(host=host))

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
        made = Nodes(folder, "slurmd -D")
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


def until_half(out: Path, whole: int, ended: Callable[[], bool]) -> None:
    """Until half of a run is on disk, by the bytes of its ledger; it must not have ended by then."""
    ledger = out / "privacy.jsonl"

    def half_or_ended() -> bool:
        return (ledger.exists() and ledger.stat().st_size >= whole / 2) or ended()

    until(half_or_ended, f"half of {out.name} is not done", SECONDS_OF_A_JOB)
    if ended():
        sys.exit(f"{out.name} ended before a node was lost; take more --intervals if it is complete")


def in_one_process(folder: Path, intervals: int) -> int:
    """Write the files of the run and of the sweep and compute both without a cluster; bytes of the run's ledger."""
    sweep = experiment(5) | {"sweep": {"seed": [1, 2]}}
    for command, written in (("run", experiment(intervals)), ("sweep", sweep)):
        file = folder / f"{command}.yaml"
        file.write_text(yaml.safe_dump(written))
        words = [command, str(file), "--out", f"{folder}/{command}-alone", "--quiet", "--set", "runtime.backend=inline"]
        subprocess.run([sys.executable, "-m", "h2fdp", *words], check=True, stdout=subprocess.DEVNULL)
    return (folder / "run-alone" / "privacy.jsonl").stat().st_size


def check(folder: Path, name: str) -> None:
    """End with a message where a run, or one of the sweep, differs from that of one process."""
    if name == "sweep":
        pairs = [(each, folder / "sweep/runs" / each.name) for each in (folder / "sweep-alone/runs").iterdir()]
    else:
        pairs = [(folder / "run-alone", folder / name)]
    if not pairs or not all(equal(*pair) for pair in pairs):
        sys.exit(f"{name}: metrics or ledgers differ from those of one process")
    print(f"{name}: equal metrics and ledgers", flush=True)


def undisturbed(nodes: Nodes, folder: Path, whole: int) -> None:
    """A run."""
    wait_for(submit(folder, ["run", "run.yaml", "--out", "undisturbed", *AUTO]), "COMPLETED", folder)
    check(folder, "undisturbed")


def fewer(nodes: Nodes, folder: Path, whole: int) -> None:
    """A run that loses a node and goes on."""
    job = submit(folder, ["run", "run.yaml", "--out", "fewer", *AUTO], ["--no-kill"])
    until_half(folder / "fewer", whole, lambda: state(job) in ENDED)
    nodes.lose(HOSTS[2])
    wait_for(job, "COMPLETED", folder)
    check(folder, "fewer")
    nodes.begin_node(HOSTS[2])


def lost(nodes: Nodes, folder: Path, whole: int) -> None:
    """A run that loses the first node, and its resume."""
    job = submit(folder, ["run", "run.yaml", "--out", "lost", *AUTO])
    until_half(folder / "lost", whole, lambda: state(job) in ENDED)
    nodes.lose(HOSTS[0])
    wait_for(job, "NODE_FAIL", folder)
    nodes.begin_node(HOSTS[0])
    resume(folder, "lost")


def sweep(nodes: Nodes, folder: Path, whole: int) -> None:
    """A sweep."""
    wait_for(submit(folder, ["sweep", "sweep.yaml", "--out", "sweep", *AUTO]), "COMPLETED", folder)
    check(folder, "sweep")


def stopped(nodes: Nodes, folder: Path, whole: int) -> None:
    """A run that a signal stops after its interval, and its resume."""
    _end_by_scancel(folder, "stopped", whole, ["--batch", "--signal=TERM"], "FAILED")


def cancelled(nodes: Nodes, folder: Path, whole: int) -> None:
    """A run that a plain `scancel` ends, and its resume."""
    _end_by_scancel(folder, "cancelled", whole, [], "CANCELLED")


def _end_by_scancel(folder: Path, name: str, whole: int, words: Sequence[str], end: str) -> None:
    job = submit(folder, ["run", "run.yaml", "--out", name, *AUTO])
    until_half(folder / name, whole, lambda: state(job) in ENDED)
    run(*inside(SWITCH, "scancel", *words, job))
    wait_for(job, end, folder)
    resume(folder, name)


def resume(folder: Path, name: str) -> None:
    """Continue a run in a job of its own, from a checkpoint, to its end."""
    checkpoints = sorted((folder / name / "checkpoint").glob("*.ckpt"))
    if not checkpoints or not int(checkpoints[-1].stem):
        sys.exit(f"{name}: left no checkpoint after an interval; take more --intervals")
    how = "stopped" if '"interrupted"' in (folder / name / "log.jsonl").read_text() else "was killed"
    print(f"{name}: {how}, with a checkpoint after interval {int(checkpoints[-1].stem)}", flush=True)
    wait_for(submit(folder, ["resume", name, "--quiet"]), "COMPLETED", folder)
    check(folder, name)


def exported(nodes: Nodes, folder: Path, whole: int) -> None:
    """A run where the environment says that jobs are to have none of it."""
    os.environ["SBATCH_EXPORT"] = "NONE"
    wait_for(submit(folder, ["run", "run.yaml", "--out", "exported", *AUTO], ["--export=ALL"]), "COMPLETED", folder)
    del os.environ["SBATCH_EXPORT"]
    check(folder, "exported")


CASES = {each.__name__: each for each in (undisturbed, fewer, lost, sweep, stopped, cancelled, exported)}


def drill(folder: Path, intervals: int, cases: Sequence[str]) -> None:
    """The jobs, in order."""
    whole = in_one_process(folder, intervals)
    with network("1gbit"), slurm(folder) as nodes:
        for case in cases:
            CASES[case](nodes, folder, whole)


def program(text: str | None, needed: Sequence[str], steps: Callable[..., None], cases: Sequence[str] = ()) -> None:
    """The command line: a folder for all files, which is removed at the end, and the steps in it.

    Args:
        steps: take the folder, how many intervals a run has and, of `cases`, those that are asked for.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=100)
    if cases:
        parser.add_argument("--case", action="append", choices=cases, help="only this one, given any number of times")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and runs")
    asked = parser.parse_args()
    lacking = [name for name in needed if shutil.which(name) is None]
    if lacking or os.getuid():
        sys.exit(f"not run: needs root and programs; user {os.getuid()}, lacking: {', '.join(lacking) or 'no program'}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = Path(tempfile.mkdtemp(prefix="h2fdp-", dir="/var/tmp"))  # each node has a /tmp of its own
    try:
        steps(folder, asked.intervals, *([asked.case or cases] if cases else []))
    finally:
        if asked.keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    program(__doc__, NEEDED, drill, list(CASES))
