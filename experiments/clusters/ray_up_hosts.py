"""A cluster by `ray up` on three hosts of this machine: `sudo python -m experiments.clusters.ray_up_hosts`.

The hosts are those of `slurm_hosts`, each with `sshd`, a home and an `/etc/passwd` of its own; a fourth, on their
switch, is the user's machine. It starts the cluster with the commands of `ray-up.yaml` and runs, by `ray exec`:

1. a run, which loses a worker and continues on the others;
2. the run, which loses the head; `ray up` starts the cluster again, and `h2fdp resume` completes the run;
3. a sweep.

Metrics and ledgers are compared with those of one process, bit by bit.

Needs Linux, root, `ip`, `tc`, `ssh`, `sshd` and `rsync`; says what is missing otherwise.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from experiments.clusters.slurm_hosts import Nodes, check, in_one_process, program, until, until_half
from experiments.clusters.three_hosts import HOSTS, SWITCH, inside, network, run

RECIPE = Path(__file__).parent / "ray-up.yaml"
NEEDED = ("ip", "tc", "unshare", "nsenter", "ssh", "ssh-keygen", "sshd", "rsync")
USER, USER_ADDRESS = "h2fdp-user", "10.77.0.254"
AUTOSCALER = "RAY_UP_enable_autoscaler_v2=0"  # the second version starts one worker of two
SECONDS_TO_JOIN, SECONDS_OF_A_RUN = 180, 600
SSHD = """\
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
MaxStartups 100
"""


class Cluster:
    """What a user does with `ray up` and `ray exec` on a machine of their own, at the switch."""

    def __init__(self, folder: Path, nodes: Nodes) -> None:
        self._folder, self.nodes = folder, nodes
        recipe = yaml.safe_load(RECIPE.read_text())
        addresses = [f"10.77.0.{number}" for number in range(1, len(HOSTS) + 1)]
        recipe["provider"] |= {"head_ip": addresses[0], "worker_ips": addresses[1:]}
        recipe["auth"] = {"ssh_user": "root", "ssh_private_key": str(folder / "key")}
        for each in ("head_start_ray_commands", "worker_start_ray_commands"):  # half of the CPUs that there are
            recipe[each] = [line.replace("ray start", "ray start --num-cpus=1") for line in recipe[each]]
        (folder / "cluster.yaml").write_text(yaml.safe_dump(recipe))

    def ray(self, command: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a command of Ray on the user's machine."""
        whole = ["ray", command, str(self._folder / "cluster.yaml"), *words]
        with open(self._folder / "ray.log", "a") as log:
            print("$", *whole, file=log, flush=True)
            return subprocess.Popen(
                self.nodes.within(SWITCH, "env", f"HOME={self._folder / USER}", AUTOSCALER, *whole),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def done(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a command, which must succeed."""
        if process.wait(SECONDS_OF_A_RUN):
            sys.exit(f"exit code {process.returncode}\n" + (self._folder / "ray.log").read_text()[-4000:])

    def h2fdp(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command of h2fdp on the head."""
        print("h2fdp", *words, flush=True)
        return self.ray("exec", " ".join(["cd", str(self._folder), "&& RAY_AUTH_MODE=token h2fdp", *words, "--quiet"]))

    def up(self) -> None:
        """Start the cluster; wait until all hosts are in it."""
        self.done(self.ray("up", "--yes", "--no-config-cache"))
        count = "import ray; ray.init(); exit(sum(node['Alive'] for node in ray.nodes()) != 3)"
        until(
            lambda: self.ray("exec", f'RAY_AUTH_MODE=token python -c "{count}"').wait() == 0,
            "the hosts do not join",
            SECONDS_TO_JOIN,
        )


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """The hosts with `sshd`, and the cluster that `ray up` starts on them."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    (folder / "sshd_config").write_text(SSHD.format(folder=folder))
    for host in (*HOSTS, USER):
        place = folder / host
        (place / ".ray").mkdir(parents=True)
        (place / ".bashrc").write_text(
            f"export PATH={os.environ['PATH']} PYTHONPATH={os.environ.get('PYTHONPATH', '')}\n"
        )
        lines = Path("/etc/passwd").read_text().splitlines()
        lines[0] = f"root:x:0:0:root:{place}:/bin/bash"
        (place / "passwd").write_text("\n".join(lines) + "\n")
    (folder / USER / ".ray" / "auth_token").write_text(secrets.token_hex(32))
    (folder / USER / ".ray" / "auth_token").chmod(0o600)
    route = f"ip route replace default via {USER_ADDRESS}"  # by which Ray finds out its own address
    home = f"export HOME={folder}/{{host}} && mount --bind {folder}/{{host}}/passwd /etc/passwd"
    sshd = "mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -e -f"
    nodes = Nodes(folder, f"{route} && {home} && {sshd} {folder}/sshd_config")
    run(*inside(SWITCH, "ip", "address", "add", f"{USER_ADDRESS}/24", "dev", "bridge"))
    with ExitStack() as started:
        started.callback(nodes.end_all)
        for host in HOSTS:
            nodes.begin_node(host)
        nodes.begin(SWITCH, USER, "sleep infinity")
        made = Cluster(folder, nodes)
        made.up()
        yield made
        made.done(made.ray("down", "--yes"))


def drill(folder: Path, intervals: int) -> None:
    """The runs, in order."""
    whole, auto = in_one_process(folder, intervals), ["--set", "runtime.address=auto"]
    with network("1gbit"), cluster(folder) as there:
        process = there.h2fdp("run", "run.yaml", "--out", "fewer", *auto)
        until_half(folder / "fewer", whole, lambda: process.poll() is not None)
        there.nodes.lose(HOSTS[2])
        there.done(process)
        check(folder, "fewer")
        there.nodes.begin_node(HOSTS[2])

        process = there.h2fdp("run", "run.yaml", "--out", "lost", *auto)
        until_half(folder / "lost", whole, lambda: process.poll() is not None)
        there.nodes.lose(HOSTS[0])
        process.wait(SECONDS_OF_A_RUN)
        there.nodes.begin_node(HOSTS[0])
        there.up()
        there.done(there.h2fdp("resume", "lost"))
        check(folder, "lost")

        there.done(there.h2fdp("sweep", "sweep.yaml", "--out", "sweep", *auto))
        check(folder, "sweep")


if __name__ == "__main__":
    program(__doc__, NEEDED, drill)
