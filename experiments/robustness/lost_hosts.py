"""Real losses of a run's processes: `python -m experiments.robustness.lost_hosts [--repeats N] [--only host]`.

Each repetition trains a small network, loses a host, a node, a machine or the driver at a random moment, and compares
metrics and ledger with an undisturbed run. A run that lost its driver is resumed until it is done. Prints how many runs
recovered with equal bits, stopped with a message, or came out different. Nothing here depends on how fast the machine
is: what strikes waits for the interval, and for the process that it is to strike.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pandas as pd
import ray
from ray.cluster_utils import Cluster

from h2fdp import Experiment, Topology, UserError, resume
from h2fdp.runtime.ray_session import _read_token_anew

Outcome = str
Fault = Callable[[random.Random, Path], Outcome]
INTERVALS = 100
SECONDS_AFTER = 0.1  # an interval, within which the fault strikes
MOST_RESUMES = 3  # of a run whose driver was killed; a machine without memory or time may refuse one


def experiment(**runtime: Any) -> Experiment:
    """Ten subnets of five devices on digits; some seconds of intervals."""
    return Experiment(
        topology=Topology.regular(edges=10, devices=5, trust=0.5, seed=1),
        data="digits",
        model="softmax",
        training="paper",
        method="h2fdp",
        epsilon=8.0,
        noise_key="seed",
        batch_size=2,
        intervals=INTERVALS,
        local_steps=10,
        runtime=runtime,
    )


def lose_a_host(draw: random.Random, folder: Path) -> Outcome:
    """SIGKILL one of two local hosts."""
    return disturbed(experiment(backend="ray", hosts=2, cpus_per_host=0.5), folder, draw, kill_an_actor)


def lose_any_node(draw: random.Random, folder: Path) -> Outcome:
    """SIGKILL one actor of the cloud, an edge server or a device of a small network that has an actor for each."""
    made = experiment(placement="entity")
    made.topology = Topology.regular(edges=2, devices=2, trust=0.5, seed=2)
    return disturbed(made, folder, draw, kill_an_actor)


def lose_a_machine(draw: random.Random, folder: Path) -> Outcome:
    """SIGKILL every process of one of two workers of a cluster, with a host and the objects that it keeps."""
    with three_machines() as cluster:
        made = experiment(address=cluster.address, hosts=3)
        return disturbed(made, folder, draw, lambda which: kill_a_machine(which, cluster))


def lose_the_driver(draw: random.Random, folder: Path) -> Outcome:
    """SIGKILL the process of a run that computes inline; resume it."""
    return driven(experiment(backend="inline"), draw, folder)


def lose_the_driver_of_hosts(draw: random.Random, folder: Path) -> Outcome:
    """SIGKILL the process that drives two local hosts on Ray; resume the run."""
    return driven(experiment(backend="ray", hosts=2, cpus_per_host=0.5), draw, folder)


def driven(made: Experiment, draw: random.Random, folder: Path) -> Outcome:
    """Run in a process of its own, kill that at a random moment, resume until it is done, compare."""
    undisturbed = undisturbed_run(made, folder)
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    kill_a_driver(draw, drive(partial(made.run, out)), out, (undisturbed / "privacy.jsonl").stat().st_size)
    for _ in range(MOST_RESUMES):
        if state_of(out) != "done":
            drive(partial(resume, out) if (out / "config.yaml").exists() else partial(made.run, out)).join()
    if state_of(out) != "done":
        return "stopped with a message"
    return "recovered" if recorded(out) == recorded(undisturbed) else "DIFFERENT"


FAULTS: dict[str, Fault] = {
    "host": lose_a_host,
    "node": lose_any_node,
    "machine": lose_a_machine,
    "driver": lose_the_driver,
    "ray-driver": lose_the_driver_of_hosts,
}


def disturbed(made: Experiment, folder: Path, draw: random.Random, strike: Callable[[random.Random], None]) -> Outcome:
    """Run, strike once at a random moment of the training, compare."""
    undisturbed = undisturbed_run(made, folder)
    moment = draw.randrange(1, INTERVALS - 10)
    struck = threading.Event()

    def striking() -> None:
        strike(draw)
        struck.set()

    timer = threading.Timer(draw.uniform(0, SECONDS_AFTER), striking)

    def soon(row: dict[str, Any]) -> None:
        if row["interval"] == moment:
            timer.start()
        if row["interval"] == INTERVALS - 1:
            timer.join()  # where intervals are faster than the timer, it strikes the last one

    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    try:
        made.run(out, on_interval=soon)
    except UserError as error:
        print(f"  stopped: {error}")
        return "stopped with a message"
    if not struck.is_set():
        return "NOT STRUCK"
    return "recovered" if recorded(out) == recorded(undisturbed) else "DIFFERENT"


def undisturbed_run(made: Experiment, folder: Path) -> Path:
    """The directory of the same run without a fault, inline."""
    undisturbed = folder / f"inline-{made.topology.devices}"
    if not undisturbed.exists():
        inline = experiment(backend="inline")
        inline.topology = made.topology
        inline.run(undisturbed)
    return undisturbed


def recorded(run: Path) -> tuple[str, bytes]:
    """Metrics but for wall time, and the ledger."""
    metrics = pd.read_parquet(run / "metrics.parquet").drop(columns="wall_s")
    return metrics.to_json(double_precision=15), (run / "privacy.jsonl").read_bytes()


def drive(work: Callable[[], object]) -> BaseProcess:
    """A process of its own that drives a run; what takes long to import is there from the start."""
    started = multiprocessing.get_context("forkserver")
    started.set_forkserver_preload(["torch", "pandas", "h2fdp.run.api", "h2fdp.run.loop"])
    process = started.Process(target=told, args=(work,))
    process.start()
    return process


def told(work: Callable[[], object]) -> None:
    """Print a user's mistake; the run says of itself how it stands."""
    try:
        work()
    except UserError as error:
        print(f"  {error}", flush=True)


def kill_a_driver(draw: random.Random, driver: BaseProcess, out: Path, whole: int) -> None:
    """SIGKILL a driver once a random part of its ledger is on disk, and a bit; wait until its hosts have ended.

    Args:
        whole: bytes of the ledger of the undisturbed run.
    """
    ledger, part = out / "privacy.jsonl", draw.random()
    while driver.is_alive() and not (ledger.exists() and ledger.stat().st_size >= part * whole):
        time.sleep(0.002)
    time.sleep(draw.uniform(0, SECONDS_AFTER))
    print(f"  killing the driver at {part:.0%} of the ledger", flush=True)
    assert driver.pid is not None, "it was started"
    left = below(driver.pid)
    driver.kill()
    driver.join()
    while any(Path(f"/proc/{each}").exists() for each in left):
        time.sleep(0.1)


def below(process: int) -> list[int]:
    """All processes that a process has started, and that these have started."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True)
    return [each for child in map(int, found.stdout.split()) for each in (child, *below(child))]


def state_of(run: Path) -> str:
    """By its summary; empty where there is none."""
    path = run / "summary.json"
    return str(json.loads(path.read_text())["state"]) if path.exists() else ""


def kill_an_actor(draw: random.Random) -> None:
    """SIGKILL a living host, whichever; wait until there is one."""
    alive: dict[str, int] = {}
    while not alive:
        actors = ray._private.state.actors().values()
        alive = {each["Name"]: each["Pid"] for each in actors if each["State"] == "ALIVE" and each["Pid"]}
    name = draw.choice(sorted(alive))
    print(f"  killing {name}", flush=True)
    os.kill(alive[name], signal.SIGKILL)


def kill_a_machine(draw: random.Random, cluster: Any) -> None:
    """SIGKILL a worker's processes; the driver's machine stays."""
    here = ray.get_runtime_context().get_node_id()
    machine = draw.choice([worker for worker in cluster.workers if worker.node_id != here])
    raylet = machine.all_processes["raylet"][0].process.pid
    below = subprocess.run(["ps", "-o", "pid=", "--ppid", str(raylet)], capture_output=True, text=True, check=True)
    for process in [raylet, *map(int, below.stdout.split())]:
        os.kill(process, signal.SIGKILL)


@contextmanager
def three_machines() -> Iterator[Any]:
    """A cluster of three machines of one CPU on this one, with a token."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # paths of sockets are short
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    _read_token_anew()
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, "temp_dir": folder})
    try:
        cluster.workers = [cluster.add_node(), cluster.add_node()]
        yield cluster
    finally:
        cluster.shutdown()
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            del os.environ[name]
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Every fault, so many times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(FAULTS), default=None)
    asked = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in [asked.only] if asked.only else FAULTS:
            began, outcomes = time.monotonic(), Counter[Outcome]()
            for repetition in range(asked.repeats):
                outcome = FAULTS[name](random.Random(f"{asked.seed}/{name}/{repetition}"), Path(folder))
                print(f"  {name} {repetition + 1}: {outcome}", flush=True)
                outcomes[outcome] += 1
            print(f"{name:<12}{dict(outcomes)}  in {time.monotonic() - began:.0f} s", flush=True)
            bad += outcomes["DIFFERENT"] + outcomes["NOT STRUCK"]
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
