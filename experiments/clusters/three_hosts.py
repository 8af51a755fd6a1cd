"""The paper's topology over three hosts: `sudo python -m experiments.clusters.three_hosts [--rate 100mbit]`.

A head and two workers, each in a network namespace with its own address, joined by a switch that is a namespace too, so
nothing outside them changes. Every link has a rate (`tc tbf`), and a delay and loss where the kernel has `netem`. Ray
runs with a token. The run over the three is compared with the same run in one process, file by file.

Needs Linux, root, `ip` and `tc`; says what is missing otherwise.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd

EXPERIMENT = Path(__file__).parents[1] / "fashion-mnist.yaml"
SWITCH, HOSTS = "h2fdp-switch", ("h2fdp-head", "h2fdp-one", "h2fdp-two")
HEAD, PORT = "10.77.0.1", 6379
SECONDS_TO_JOIN = 60


def run(*command: str) -> None:
    """Run a command; its words on an error are the script's."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")


def inside(host: str, *command: str) -> list[str]:
    """The command, run in a host's namespace."""
    return ["ip", "netns", "exec", host, *command]


@contextmanager
def network(rate: str, delay: str = "", loss: str = "") -> Iterator[None]:
    """A switch and three hosts on it; removed at the end, with all links in it."""
    with ExitStack() as made:
        for name in (SWITCH, *HOSTS):
            run("ip", "netns", "add", name)
            made.callback(subprocess.run, ["ip", "netns", "delete", name])
        run(*inside(SWITCH, "ip", "link", "add", "bridge", "type", "bridge"))
        run(*inside(SWITCH, "ip", "link", "set", "bridge", "up"))
        for number, host in enumerate(HOSTS, start=1):
            port = f"port{number}"
            run("ip", "link", "add", port, "netns", SWITCH, "type", "veth", "peer", "name", "eth0", "netns", host)
            run(*inside(SWITCH, "ip", "link", "set", port, "master", "bridge", "up"))
            run(*inside(host, "ip", "address", "add", f"10.77.0.{number}/24", "dev", "eth0"))
            for device in ("lo", "eth0"):
                run(*inside(host, "ip", "link", "set", device, "up"))
            for where, device in ((host, "eth0"), (SWITCH, port)):
                limit(where, device, rate, delay, loss)
        yield


def limit(where: str, device: str, rate: str, delay: str, loss: str) -> None:
    """Limit what a device sends; delay and loss only where the kernel can."""
    tc = inside(where, "tc", "qdisc", "add", "dev", device)
    run(*tc, "root", "handle", "1:", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")
    if not delay:
        return
    done = subprocess.run([*tc, "parent", "1:1", "handle", "10:", "netem", "delay", delay, "loss", loss], text=True,
                          capture_output=True)  # fmt: skip
    if done.returncode:
        print(f"not run on {where} {device}: delay {delay} and loss {loss} ({done.stderr.strip()})")


@contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Ray's head and two workers, a CPU each, ended by the ids of the processes that were started."""
    begin = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", "--disable-usage-stats"]
    commands = [
        inside(HOSTS[0], *begin, "--head", f"--node-ip-address={HEAD}", f"--port={PORT}", f"--temp-dir={folder}",
               "--include-dashboard=false"),
        *(inside(host, *begin, f"--address={HEAD}:{PORT}", f"--node-ip-address=10.77.0.{number}")
          for number, host in enumerate(HOSTS[1:], start=2)),
    ]  # fmt: skip
    with ExitStack() as started:
        for number, command in enumerate(commands):
            log = started.enter_context(open(folder / f"host{number}.log", "w"))
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            started.callback(end, process)
            time.sleep(3)  # workers give up at once on a head that is not there yet
        yield


def end(process: subprocess.Popen[bytes]) -> None:
    """End a host and what it started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def wait_for_hosts() -> None:
    """Until all three have joined."""
    count = (
        f"import ray; ray.init(address='{HEAD}:{PORT}', log_to_driver=False, logging_level='ERROR');"
        "print(sum(node['Alive'] for node in ray.nodes()))"
    )
    deadline = time.monotonic() + SECONDS_TO_JOIN
    while True:
        done = subprocess.run(inside(HOSTS[0], sys.executable, "-c", count), capture_output=True, text=True)
        if done.stdout.strip() == str(len(HOSTS)):
            return
        if time.monotonic() > deadline:
            sys.exit(f"the hosts did not join within {SECONDS_TO_JOIN} s: {done.stdout}{done.stderr}")


def train(out: Path, intervals: int, settings: list[str], host: str | None = None) -> float:
    """Run the experiment; seconds of the whole process."""
    words = [f"training.intervals={intervals}", *settings]
    command = [sys.executable, "-m", "h2fdp", "run", str(EXPERIMENT), "--out", str(out), "--quiet"]
    command += [part for word in words for part in ("--set", word)]
    began = time.perf_counter()
    subprocess.run(inside(host, *command) if host else command, check=True)
    return time.perf_counter() - began


def equal(one: Path, other: Path) -> bool:
    """Equal metrics, but for wall time, and equal ledgers."""
    metrics = [pd.read_parquet(run / "metrics.parquet").drop(columns="wall_s") for run in (one, other)]
    return metrics[0].equals(metrics[1]) and len({(run / "privacy.jsonl").read_bytes() for run in (one, other)}) == 1


def main() -> None:
    """Build the hosts, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=20)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--delay", default="10ms")
    parser.add_argument("--loss", default="0.1%")
    asked = parser.parse_args()
    lacking = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if lacking or os.getuid():
        sys.exit(f"not run: needs root, ip and tc; user {os.getuid()}, lacking: {', '.join(lacking) or 'no program'}")
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    folder = Path(tempfile.mkdtemp(prefix="h2fdp-", dir="/tmp"))  # paths of sockets are short
    try:
        inline = train(folder / "inline", asked.intervals, ["runtime.backend=inline"])
        with network(asked.rate, asked.delay, asked.loss), cluster(folder):
            wait_for_hosts()
            address = f"runtime.address='{HEAD}:{PORT}'"
            there = train(folder / "there", asked.intervals, [address, "runtime.hosts=3"], HOSTS[0])
        same = equal(folder / "inline", folder / "there")
        print(f"{asked.intervals} intervals: one process {inline:.1f} s, three hosts at {asked.rate} {there:.1f} s")
        print("equal metrics and ledgers" if same else "the results differ")
        sys.exit(not same)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
